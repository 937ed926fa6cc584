"""Stoker's loader against torch's DataLoader with Pillow and torchvision: same files, same crops by law, same cores."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.config import DataConfig, ImageConfig
from stoker.data import order, sources
from stoker.data.loader import Loader
from stoker.data.sources import Dataset
from stoker.errors import Problem

BATCH = 32
# Batches that were made ahead before the clock starts must be few among all.
LEAST = 8 * BATCH


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times as fast as a peer, over some rounds."""

    peer: str
    rounds: int
    ours_per_second: float
    peer_per_second: float
    ratio: float
    """middle of the rounds"""
    ratio_least: float
    ratio_most: float


@dataclass(frozen=True, kw_only=True)
class LoaderBench:
    """What a loader benchmark found, and on what."""

    data: str
    samples: int
    resolution: int
    workers: int
    ratios: tuple[Ratio, ...]


def compare(data: str, *, resolution: int, workers: int, rounds: int, show: bool) -> LoaderBench:
    """Load every training sample with each loader in turn, round after round, and set the rates side by side."""
    found = sources.open_source(DataConfig(data=data), seed=0, show=show)
    if len(found.train) < LEAST:
        raise Problem(
            f"{data} has {len(found.train)} training samples, too few to time",
            fix=f"give {LEAST} or more, or dials:2000x256",
        )
    root = found.train.root
    folder = next((root / name for name in sources.TRAIN if (root / name).is_dir()), root)
    image = ImageConfig(resolution=resolution)
    loaders: dict[str, Callable[[int], Iterator[Any]]] = {
        "stoker": lambda turn: ours(found, image, workers=workers, epoch=turn),
        "torch DataLoader, Pillow, torchvision v2": lambda _: stock(folder, resolution=resolution, workers=workers),
    }
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(rounds + 1):
        for name, make in loaders.items():
            speed = samples_per_second(make(turn))
            # The first round warms the page cache and the imports.
            if turn:
                rates[name].append(speed)
    mine = rates.pop("stoker")
    return LoaderBench(
        data=data,
        samples=len(found.train),
        resolution=resolution,
        workers=workers,
        ratios=tuple(ratio(name, mine, other) for name, other in rates.items()),
    )


def ratio(peer: str, mine: list[float], other: list[float]) -> Ratio:
    """The ratios of neighbouring measurements, which share the machine's mood."""
    pairs = [a / b for a, b in zip(mine, other, strict=True)]
    return Ratio(
        peer=peer,
        rounds=len(pairs),
        ours_per_second=statistics.median(mine),
        peer_per_second=statistics.median(other),
        ratio=statistics.median(pairs),
        ratio_least=min(pairs),
        ratio_most=max(pairs),
    )


def samples_per_second(batches: Iterator[Any]) -> float:
    """The rate of a loader over one pass, from its first batch on: starting up is not what is compared."""
    next(batches)
    began, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch)
    return count / (time.perf_counter() - began)


def ours(data: Dataset, image: ImageConfig, *, workers: int, epoch: int) -> Iterator[Any]:
    """One epoch of Stoker's loader."""
    pace = order.Pace(count=len(data.train), batch=BATCH, atoms=1, last_step="drop")
    plans = order.training_plans(pace, seed=0, epoch=epoch, position=0, epochs=epoch + 1, rank=0, world=1)
    loader = Loader(data.train, plans, image=image, seed=0, threads=workers, ahead=4, pin=False)
    try:
        for batch in loader:
            yield batch.labels
    finally:
        loader.close()


def stock(folder: Path, *, resolution: int, workers: int) -> Iterator[Any]:
    """One epoch of what the tutorials show."""
    import torch
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    transform = v2.Compose(
        [v2.RandomResizedCrop(resolution, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    )
    dataset = ImageFolder(os.fspath(folder), transform)
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, drop_last=True)
    for _, labels in loader:
        yield labels
