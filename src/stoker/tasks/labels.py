"""What a network's outputs are called, and which of them a dataset's classes are."""

import functools
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stoker.data.index import Index
from stoker.errors import Problem

# WordNet's name of a noun, which ImageNet calls its classes by.
WNID = re.compile(r"n\d{8}(?!\d)")
IMAGENET = 1000


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The names of a network's outputs."""

    names: tuple[str, ...]
    """as they are shown"""
    ids: tuple[str, ...] = ()
    """WordNet's, where the outputs are ImageNet's"""
    is_guess: bool = False
    """whether the names follow from the number of outputs alone: other ones may be meant"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Numbered:
    """Samples whose labels are the network's outputs."""

    samples: Index
    how: str
    """what told which class is which output"""


def named(names: tuple[str, ...]) -> Labels:
    """Names that a run or an export gave. ImageNet's go by WordNet's too."""
    is_imagenet = len(names) == IMAGENET and names == imagenet_names()
    return Labels(names=names, ids=wnids() if is_imagenet else ())


def of_outputs(count: int) -> Labels:
    """The names of so many outputs of which nothing else is known: ImageNet's for a thousand, else numbers."""
    if count == IMAGENET:
        return Labels(names=imagenet_names(), ids=wnids(), is_guess=True)
    return Labels(names=tuple(str(number) for number in range(count)), is_guess=True)


@functools.cache
def wnids() -> tuple[str, ...]:
    """The WordNet names of ImageNet's thousand classes, in the order of a network's outputs."""
    try:
        data: Any = importlib.import_module("timm.data")
    except ImportError:
        raise Problem("timm, which lists ImageNet's classes, is not installed", fix="pip install timm") from None
    # The outputs are in the order of these names.
    return tuple(sorted(data.ImageNetInfo().label_names()))


@functools.cache
def imagenet_names() -> tuple[str, ...]:
    """ImageNet's classes in words; each name once."""
    meta: Any = importlib.import_module("torchvision.models._meta")
    return tuple(meta._IMAGENET_CATEGORIES)


def numbered(samples: Index, own: Sequence[str], labels: Labels, *, where: str) -> Numbered:
    """Samples of a dataset with classes of its own, labelled by the network's outputs."""
    present = np.unique(samples.label).tolist()
    found = {number: place_of(own[number], labels) for number in present}
    strange = [own[number] for number, place in found.items() if place is None]
    how = "by name" if not labels.ids else "by WordNet's names"
    if strange and labels.is_guess and len(own) == len(labels.names):
        found, strange, how = {number: number for number in present}, [], "by order: there are as many as outputs"
    if strange:
        raise Problem(
            f"{where} holds classes that the network does not know: {listed(strange)}",
            fix=f"give data of the network's {len(labels.names)} classes: {listed(labels.ids or labels.names)}",
        )
    places = np.array([found.get(number, -1) for number in range(len(own))], np.int32)
    return Numbered(samples=replace(samples, label=places[samples.label], digest=None), how=how)


def place_of(name: str, labels: Labels) -> int | None:
    """The output that a dataset's class is, if its name tells: n01494475 and n01494475_hammerhead are one class."""
    places = table(labels)
    place = places.get(name)
    if place is None and (match := WNID.match(name)):
        place = places.get(match[0])
    return place


@functools.lru_cache(maxsize=4)
def table(labels: Labels) -> dict[str, int]:
    """The outputs by all names they go by; a number is a name only where nobody gave others."""
    numbers = {str(number): number for number in range(len(labels.names))} if labels.is_guess else {}
    return {**numbers, **by_place(labels.names), **by_place(labels.ids)}


def by_place(names: Sequence[str]) -> dict[str, int]:
    """Places by name."""
    return {name: place for place, name in enumerate(names)}


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first of some names."""
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")
