"""How the samples of an atom are shifted, erased and mixed: pure functions from places in an epoch to numbers.

What concerns one sample is keyed by its position; what concerns the whole atom, by the position of its first sample.
The picture that a sample is mixed with is the next one of the atom: their order is random anyway.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stoker.config import AugmentConfig
from stoker.data import random
from stoker.data.augment import Box

# Tries at a box and its shapes, as torchvision's RandomErasing has them.
TRIES = 10
RATIO = (0.3, 3.3)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mix:
    """What is done to the samples of an atom."""

    shifts: NDArray[np.int64] | None = None
    """pixels that each picture moves down and to the right: count x 2; None where none is moved"""
    erased: NDArray[np.int64] | None = None
    """top, left, height and width of the box that each picture loses, zeros where none: count x 4"""
    kind: Literal["plain", "mixup", "cutmix"] = "plain"
    """how each sample is mixed with the next one of the atom"""
    weight: float = 1.0
    """share of the picture and of the label that is the sample's own"""
    box: Box | None = None
    """cutmix: the part, in whole pixels, that comes from the next sample"""


def drawn(config: AugmentConfig, *, seed: int, epoch: int, positions: NDArray[np.int64], resolution: int) -> Mix | None:
    """What is done to the samples at some positions, which are one atom. None where the settings want nothing."""
    if not (config.translate or config.erase or config.mixup or config.cutmix):
        return None
    shifts = shifted(config.translate, seed=seed, epoch=epoch, positions=positions) if config.translate else None
    erased = boxes(config, seed=seed, epoch=epoch, positions=positions, resolution=resolution) if config.erase else None
    plain = Mix(shifts=shifts, erased=erased)
    # A sample can't be mixed with itself.
    if len(positions) < 2 or not (config.mixup or config.cutmix):
        return plain
    first = int(positions[0])
    words = random.word_block(seed, epoch=epoch, position=first, purpose=random.MIX)
    to_cut, to_mix, down, across = ((word + 0.5) / 2.0**32 for word in words)
    if config.cutmix and to_cut < config.cutmix_probability:
        share = beta(config.cutmix, seed=seed, epoch=epoch, position=first)
        box = cut_box(share, down=down, across=across, resolution=resolution)
        weight = 1 - box.width * box.height / resolution**2
        return Mix(shifts=shifts, erased=erased, kind="cutmix", weight=weight, box=box) if weight < 1 else plain
    if config.mixup and to_mix < config.mixup_probability:
        share = beta(config.mixup, seed=seed, epoch=epoch, position=first)
        weight = max(share, 1 - share)
        return Mix(shifts=shifts, erased=erased, kind="mixup", weight=weight) if weight < 1 else plain
    return plain


def shifted(most: int, *, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far each picture moves, down and to the right: whole pixels from -most to most, all as likely."""
    numbers = random.uniforms(seed, epoch=epoch, positions=positions, purpose=random.SHIFT, count=2)
    return (numbers * (2 * most + 1)).astype(np.int64) - most


def boxes(
    config: AugmentConfig, *, seed: int, epoch: int, positions: NDArray[np.int64], resolution: int
) -> NDArray[np.int64]:
    """The box that each picture loses, as torchvision's RandomErasing chooses it; zeros for pictures that lose none."""
    found = np.zeros((len(positions), 4), np.int64)
    chance = random.uniforms(seed, epoch=epoch, positions=positions, purpose=random.ERASE, count=1)[:, 0]
    rows = np.flatnonzero(chance < config.erase)
    # The first of these is the same number again.
    numbers = random.uniforms(seed, epoch=epoch, positions=positions[rows], purpose=random.ERASE, count=3 + 2 * TRIES)
    place, tries = numbers[:, 1:3], numbers[:, 3:].reshape(-1, TRIES, 2)
    least, most = config.erase_area
    area = resolution**2 * (least + (most - least) * tries[:, :, 0])
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = np.exp(low + (high - low) * tries[:, :, 1])
    sizes = np.rint(np.sqrt(np.stack([area * ratio, area / ratio], axis=2))).astype(np.int64)
    fits = (sizes[:, :, 0] < resolution) & (sizes[:, :, 1] < resolution)
    size = sizes[np.arange(len(rows)), fits.argmax(axis=1)]
    corner = (place * (resolution - size + 1)).astype(np.int64)
    found[rows] = np.where(np.any(fits, axis=1, keepdims=True), np.hstack([corner, size]), 0)
    return found


def beta(alpha: float, *, seed: int, epoch: int, position: int) -> float:
    """A number of the distribution Beta(alpha, alpha)."""
    words = random.word_block(seed, epoch=epoch, position=position, purpose=random.BETA)
    key = sum(word << 32 * k for k, word in enumerate(words))
    # numpy promises that RandomState's distributions never change, and its newer ones may.
    return float(np.random.RandomState(np.random.Philox(key=key)).beta(alpha, alpha))


def cut_box(share: float, *, down: float, across: float, resolution: int) -> Box:
    """A box of 1 - share of a picture around a random middle, clipped at the border (Yun et al., "CutMix", 2019)."""
    half = int(resolution * math.sqrt(1 - share)) // 2
    row, column = int(down * resolution), int(across * resolution)
    top, bottom = max(row - half, 0), min(row + half, resolution)
    left, right = max(column - half, 0), min(column + half, resolution)
    return Box(left=left, top=top, width=right - left, height=bottom - top)
