"""Data as people have it: a folder of class folders, split or not, and the built-in dials."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stoker import progress
from stoker.config import DataConfig
from stoker.data import dials, index, order
from stoker.data.index import Index
from stoker.errors import Problem
from stoker.machine import gauges

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})
TRAIN = ("train", "training")
# The first of these that is there is what a run is evaluated on.
HELD_OUT = ("val", "valid", "validation", "test")
DIALS = re.compile(r"dials(?::(\d+)(?:x(\d+))?)?")
DIALS_COUNT, DIALS_SIZE = 4000, 96


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What a source holds."""

    name: str
    classes: tuple[str, ...]
    train: Index
    held_out: Index
    held_out_name: str
    empty: tuple[Path, ...] = ()
    """files of no bytes, left out of the indexes"""
    ignored: int = 0
    """files whose names are no picture's"""

    def fingerprint(self) -> str:
        """A digest of both indexes and the class names."""
        names = hashlib.sha256("\n".join(self.classes).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        return f"{self.train.fingerprint()}-{self.held_out.fingerprint()}-{names}"


@dataclass(kw_only=True)
class Listing:
    """The pictures found below one folder."""

    paths: list[str]
    sizes: list[int]
    labels: list[int]
    empty: list[Path]
    ignored: int = 0


def open_source(config: DataConfig, *, seed: int, show: bool) -> Dataset:
    """Index a source in place. Reads names and sizes, no pictures."""
    root = found_root(config, show=show)
    # A class may be called "train" too: then it holds pictures, not folders.
    train_folder = next((root / name for name in TRAIN if (root / name).is_dir() and class_names(root / name)), None)
    dataset = split_folder(root, train_folder) if train_folder else one_folder(root, config, seed=seed)
    found = len(dataset.train) + len(dataset.held_out) + len(dataset.empty)
    if len(dataset.empty) > config.allow_bad * found:
        raise Problem(
            f"{len(dataset.empty)} of {found} files in {root} are empty, the first: {dataset.empty[0]}",
            fix=f"see all that can't be read with: stoker inspect {config.data}; or allow more with --allow-bad",
        )
    return dataset


def found_root(config: DataConfig, *, show: bool) -> Path:
    """The folder that a source's name stands for."""
    match = DIALS.fullmatch(config.data)
    root = made_dials(match, Path(config.cache), show=show) if match else Path(config.data)
    if not root.exists():
        raise Problem(
            f"there is no folder {root}", fix="check the path: a folder of class folders, or dials, is wanted"
        )
    if not root.is_dir():
        raise Problem(f"{root} is a file", fix="give the folder that holds a folder for each class")
    return root


def made_dials(match: re.Match[str], cache: Path, *, show: bool) -> Path:
    """The folder of the built-in dataset, drawn now if it is not there."""
    count, size = int(match[1] or DIALS_COUNT), int(match[2] or DIALS_SIZE)
    dest = cache / f"dials-{count}x{size}"
    processes = gauges.cores_allotted().allotted
    if not dest.exists():
        steps = dials.make(dest, count=count, size=size, seed=0, processes=processes)
        try:
            progress.follow(steps, total=count + count // 5, what=f"drawing {dest}", show=show)
        except OSError as error:
            raise Problem(f"{dest} can't be made: {error}", fix="give another folder with --cache") from None
    return dest


def class_names(folder: Path) -> list[str]:
    """The class folders of a folder, in the order of their names."""
    return sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith("."))


def listing(root: Path, below: str, classes: Sequence[str]) -> Listing:
    """Every picture in the class folders of root/below, in the order of their names."""
    found = Listing(paths=[], sizes=[], labels=[], empty=[])
    for label, name in enumerate(classes):
        before = len(found.paths)
        for folder, folders, files in os.walk(root / below / name):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for file in sorted(files):
                add(found, root, Path(folder) / file, label)
        if len(found.paths) == before:
            raise Problem(
                f"the class folder {root / below / name} holds no pictures",
                fix=f"put pictures ({', '.join(sorted(SUFFIXES))}) into it, or remove it",
            )
    return found


def add(found: Listing, root: Path, path: Path, label: int) -> None:
    """Enter one file where it belongs."""
    if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
        found.ignored += 1
        return
    # A link to nowhere is as good as an empty file.
    size = path.stat().st_size if path.exists() else 0
    if size == 0:
        found.empty.append(path)
        return
    found.paths.append(str(path.relative_to(root)))
    found.sizes.append(size)
    found.labels.append(label)


def indexed(root: Path, found: Listing) -> Index:
    """A listing as columns."""
    return index.of_files(root, found.paths, sizes=found.sizes, labels=found.labels)


def check_classes(folder: Path, classes: list[str]) -> None:
    """Refuse a folder that nothing can be learned from."""
    if len(classes) < 2:
        found = f"one class folder, {classes[0]}" if classes else "no class folders"
        raise Problem(
            f"{folder} holds {found}: there is nothing to tell apart",
            fix="give a folder with a folder of pictures for each class: DATA/cat/1.jpg, DATA/dog/2.jpg",
        )


def split_folder(root: Path, train_folder: Path) -> Dataset:
    """A folder that is split into train and val (or test) already."""
    held_out_name = next((name for name in HELD_OUT if (root / name).is_dir()), None)
    if held_out_name is None:
        raise Problem(
            f"{root} has {train_folder.name}/ but none of {', '.join(HELD_OUT)}",
            fix=f"add {root}/val, or give {train_folder} itself: --holdout then sets a share of it aside",
        )
    classes = class_names(train_folder)
    check_classes(train_folder, classes)
    train = listing(root, train_folder.name, classes)
    held_out = labelled_as(root, held_out_name, classes)
    return Dataset(
        name=root.name,
        classes=tuple(classes),
        train=indexed(root, train),
        held_out=indexed(root, held_out),
        held_out_name=held_out_name,
        empty=tuple(train.empty + held_out.empty),
        ignored=train.ignored + held_out.ignored,
    )


def labelled_as(root: Path, below: str, classes: Sequence[str]) -> Listing:
    """The pictures of root/below with the labels of known classes, of which some may be absent."""
    present = class_names(root / below)
    strange = [name for name in present if name not in classes]
    if strange or not present:
        found = f"classes that are not known: {', '.join(strange[:5])}" if strange else "no class folders"
        raise Problem(f"{root / below} holds {found}", fix=f"give it folders named {', '.join(classes[:5])} ...")
    found_below = listing(root, below, present)
    found_below.labels = [classes.index(present[label]) for label in found_below.labels]
    return found_below


def open_held_out(config: DataConfig, classes: Sequence[str], *, show: bool) -> Index:
    """The samples to evaluate on: a source's own held-out folder, or all of it where it is not split."""
    root = found_root(config, show=show)
    below = next((name for name in HELD_OUT if (root / name).is_dir()), ".")
    return indexed(root, labelled_as(root, below, classes))


def one_folder(root: Path, config: DataConfig, *, seed: int) -> Dataset:
    """A folder of class folders, of which a seeded share is held out."""
    classes = class_names(root)
    check_classes(root, classes)
    found = listing(root, ".", classes)
    whole = indexed(root, found)
    count = len(whole)
    size = min(max(1, round(count * config.holdout)), count - 1)
    # Epoch 2**32 - 1 never trains, so this permutation is no epoch's order.
    shuffled = order.permuted(np.arange(count), count=count, seed=seed, epoch=2**32 - 1)
    return Dataset(
        name=root.name,
        classes=tuple(classes),
        train=whole.taken(np.sort(shuffled[size:])),
        held_out=whole.taken(np.sort(shuffled[:size])),
        held_out_name=f"a seeded {config.holdout:.0%}",
        empty=tuple(found.empty),
        ignored=found.ignored,
    )
