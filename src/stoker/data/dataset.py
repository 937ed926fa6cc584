"""What a source holds, how it is split by names, and how a share of it is set aside."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stoker.data import order
from stoker.data.index import Index

TRAIN = ("train", "training")
# The first of these that is there is what a run is evaluated on.
HELD_OUT = ("val", "valid", "validation", "test")
# MNIST calls its test files t10k.
SPLITS = {word: word for word in (*TRAIN, *HELD_OUT)} | {"t10k": "test"}


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What a source holds."""

    name: str
    classes: tuple[str, ...]
    train: Index
    held_out: Index
    held_out_name: str
    empty: tuple[Path, ...] = ()
    """samples of no bytes, left out of the indexes"""
    ignored: int = 0
    """files or records that hold no picture"""
    others: Mapping[str, Index] = field(default_factory=dict)
    """held-out parts of the source's own that are not evaluated on, by name; only where they were asked for"""
    whole: Index | None = None
    """all samples, where the source has no split of its own and a seeded share was set aside"""

    def fingerprint(self) -> str:
        """A digest of both indexes and the class names."""
        names = hashlib.sha256("\n".join(self.classes).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        return f"{self.train.fingerprint()}-{self.held_out.fingerprint()}-{names}"


def split(
    whole: Index,
    *,
    name: str,
    classes: tuple[str, ...],
    holdout: float,
    seed: int,
    empty: tuple[Path, ...] = (),
    ignored: int = 0,
) -> Dataset:
    """Hold a seeded share of the samples out: the same ones every time."""
    count = len(whole)
    size = min(max(1, round(count * holdout)), count - 1)
    # Epoch 2**32 - 1 never trains, so this permutation is no epoch's order.
    shuffled = order.permuted(np.arange(count), count=count, seed=seed, epoch=2**32 - 1)
    return Dataset(
        name=name,
        classes=classes,
        train=whole.taken(np.sort(shuffled[size:])),
        held_out=whole.taken(np.sort(shuffled[:size])),
        held_out_name=f"a seeded {holdout:.0%}",
        empty=empty,
        ignored=ignored,
        whole=whole,
    )


def split_of(name: str) -> str:
    """The split that a file's path speaks of, such as val for val/7.tar and for imagenet-val-7.tar; else empty."""
    return split_among(re.split(r"[^a-z0-9]+", name.lower()))


def split_among(words: Iterable[str]) -> str:
    """The last of some words that is a split's name; else empty."""
    return next((SPLITS[word] for word in reversed([*words]) if word in SPLITS), "")
