"""Which part of a picture the network sees: pure functions from random numbers to boxes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.data import random

# Ten tries at a box as torchvision's RandomResizedCrop has, two numbers each; then two for its place, one for the flip.
TRIES = 10
DRAWS = 2 * TRIES + 3


@dataclass(frozen=True, kw_only=True)
class Box:
    """A part of a picture, in its pixels."""

    left: float
    top: float
    width: float
    height: float


def draws(seed: int, *, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """The random numbers that crop and flip the samples at some positions: a row for each."""
    return random.uniforms(seed, epoch=epoch, positions=positions, purpose=random.CROP, count=DRAWS)


def random_crop(
    width: int,
    height: int,
    *,
    drawn: Sequence[float],
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Box:
    """A box of random area, shape and place, in whole pixels, as torchvision's RandomResizedCrop chooses it."""
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for k in range(TRIES):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * drawn[2 * k])
        shape = math.exp(low + (high - low) * drawn[2 * k + 1])
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            left = int(drawn[2 * TRIES] * (width - w + 1))
            top = int(drawn[2 * TRIES + 1] * (height - h + 1))
            return Box(left=left, top=top, width=w, height=h)
    # No try fitted: the largest box of an allowed shape, in the middle.
    w = min(width, max(1, round(height * min(max(width / height, ratio[0]), ratio[1]))))
    h = min(height, max(1, round(w / min(max(width / height, ratio[0]), ratio[1]))))
    return Box(left=(width - w) // 2, top=(height - h) // 2, width=w, height=h)


def is_flipped(drawn: Sequence[float], probability: float) -> bool:
    """Whether a picture is turned left to right."""
    return drawn[2 * TRIES + 2] < probability


def centre_box(width: int, height: int, *, resolution: int, crop: float) -> Box:
    """What "short side to resolution / crop, then the middle" keeps of a picture, in the picture's own pixels."""
    short = round(resolution / crop)
    if width <= height:
        new_width, new_height = short, int(short * height / width)
    else:
        new_width, new_height = int(short * width / height), short
    across, down = width / new_width, height / new_height
    return Box(
        left=round((new_width - resolution) / 2) * across,
        top=round((new_height - resolution) / 2) * down,
        width=resolution * across,
        height=resolution * down,
    )
