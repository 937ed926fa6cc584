"""A folder of class folders, split into train and val or not."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.config import DataConfig
from stoker.data import dataset, index
from stoker.data.dataset import HELD_OUT, TRAIN, Dataset
from stoker.data.index import Index
from stoker.data.sources.pictures import SUFFIXES
from stoker.errors import Problem

# By archives made on a Mac, and by network disks.
LEFT_BEHIND = ("__MACOSX", "@eaDir", "lost+found")


@dataclass(kw_only=True)
class Listing:
    """The pictures found below one folder."""

    root: Path
    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    empty: list[Path] = field(default_factory=list)
    ignored: int = 0

    def indexed(self) -> Index:
        """The listing as columns."""
        return index.of_files(self.root, self.paths, sizes=self.sizes, labels=self.labels)


def opened(root: Path, config: DataConfig, *, seed: int) -> Dataset:
    """Index a folder in place. Reads names and sizes, no pictures."""
    # A class may be called "train" too: then it holds pictures, not folders.
    train_folder = next((root / name for name in TRAIN if (root / name).is_dir() and class_names(root / name)), None)
    return split_folder(root, train_folder) if train_folder else one_folder(root, config, seed=seed)


def others(root: Path, data: Dataset) -> dict[str, Index]:
    """The held-out folders that are not evaluated on, where they hold class folders and not pictures without labels."""
    names = [name for name in HELD_OUT if name != data.held_out_name and (root / name).is_dir()]
    if data.whole is not None:
        return {}
    return {name: labelled_as(root, name, data.classes).indexed() for name in names if class_names(root / name)}


def held_out(root: Path) -> tuple[Index, tuple[str, ...]]:
    """The samples to evaluate on, and their classes: a folder's own held-out part, or all where it is not split."""
    below = next((name for name in HELD_OUT if (root / name).is_dir()), "")
    classes = class_names(root / below)
    if not classes:
        raise Problem(
            f"{root / below} holds no class folders",
            fix="give a folder with a folder of pictures for each class, or a CSV file with lines of path,label",
        )
    return listing(root, below, classes).indexed(), tuple(classes)


def class_names(folder: Path) -> list[str]:
    """The class folders of a folder, in the order of their names."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and is_class(entry.name))


def is_class(name: str) -> bool:
    """Whether a folder is somebody's class, and not what a system leaves behind."""
    return not name.startswith(".") and name not in LEFT_BEHIND


def listing(root: Path, below: str, classes: Sequence[str]) -> Listing:
    """Every picture in the class folders of root/below, in the order of their names."""
    found = Listing(root=root)
    for label, name in enumerate(classes):
        before = len(found.paths)
        for entry, path in files(root, os.path.join(below, name)):
            add(found, entry, path, label)
        if len(found.paths) == before:
            raise Problem(
                f"the class folder {root / below / name} holds no pictures",
                fix=f"put pictures ({', '.join(sorted(SUFFIXES))}) into it, or remove it",
            )
    return found


def files(root: Path, below: str) -> Iterator[tuple["os.DirEntry[str]", str]]:
    """Every file below a folder and its path from root, the folder's own before those of the folders in it."""
    # A million paths are joined as strings: as Path objects they would take minutes.
    try:
        with os.scandir(root / below) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise Problem(f"{root / below} can't be read: {error}", fix="make it readable, or remove it") from None
    folders = [entry for entry in ordered if entry.is_dir()]
    for entry in ordered:
        if not entry.is_dir():
            yield entry, f"{below}/{entry.name}"
    for entry in folders:
        # A link to a folder may lead back up.
        if not entry.name.startswith(".") and not entry.is_symlink():
            yield from files(root, f"{below}/{entry.name}")


def add(found: Listing, entry: "os.DirEntry[str]", path: str, label: int) -> None:
    """Enter one file where it belongs."""
    if entry.name.startswith(".") or os.path.splitext(entry.name)[1].lower() not in SUFFIXES:
        found.ignored += 1
        return
    try:
        size = entry.stat().st_size
    except OSError:
        # A link to nowhere is as good as an empty file.
        size = 0
    if size == 0:
        found.empty.append(found.root / path)
        return
    found.paths.append(path)
    found.sizes.append(size)
    found.labels.append(label)


def check_classes(folder: Path, classes: list[str]) -> None:
    """Refuse a folder that nothing can be learned from."""
    if len(classes) < 2:
        found = f"one class folder, {classes[0]}" if classes else "no class folders"
        fix = "give a folder with a folder of pictures for each class: DATA/cat/1.jpg, DATA/dog/2.jpg"
        if classes and len(class_names(folder / classes[0])) > 1:
            fix = f"did you mean {folder / classes[0]}?"
        raise Problem(f"{folder} holds {found}: there is nothing to tell apart", fix=fix)


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
    rest = labelled_as(root, held_out_name, classes)
    return Dataset(
        name=root.name,
        classes=tuple(classes),
        train=train.indexed(),
        held_out=rest.indexed(),
        held_out_name=held_out_name,
        empty=tuple(train.empty + rest.empty),
        ignored=train.ignored + rest.ignored,
    )


def labelled_as(root: Path, below: str, classes: Sequence[str]) -> Listing:
    """The pictures of root/below with the labels of known classes, of which some may be absent."""
    present = class_names(root / below)
    numbers = {name: number for number, name in enumerate(classes)}
    strange = [name for name in present if name not in numbers]
    if strange or not present:
        found = f"classes that are not known: {', '.join(strange[:5])}" if strange else "no class folders"
        raise Problem(f"{root / below} holds {found}", fix=f"give it folders named {', '.join(classes[:5])} ...")
    found_below = listing(root, below, present)
    found_below.labels = [numbers[present[label]] for label in found_below.labels]
    return found_below


def one_folder(root: Path, config: DataConfig, *, seed: int) -> Dataset:
    """A folder of class folders, of which a seeded share is held out."""
    classes = class_names(root)
    check_classes(root, classes)
    found = listing(root, "", classes)
    return dataset.split(
        found.indexed(),
        name=root.name,
        classes=tuple(classes),
        holdout=config.holdout,
        seed=seed,
        empty=tuple(found.empty),
        ignored=found.ignored,
    )
