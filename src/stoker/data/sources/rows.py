"""Samples as they are found in a source's files, before their labels are numbers."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.config import DataConfig
from stoker.data import dataset, index
from stoker.data.dataset import HELD_OUT, TRAIN, Dataset
from stoker.data.index import Index
from stoker.errors import Problem

Label = int | str
# A larger label is a mistake, not a class: numbers up to the largest are all classes.
MOST_CLASSES = 1_000_000
# A picture's length is stored in 32 bits.
MOST_BYTES = 2**32 - 1


def column(kind: str) -> Any:
    """A growing column of numbers."""
    return field(default_factory=lambda: array(kind))


@dataclass(kw_only=True)
class Rows:
    """Columns of samples that grow while a source is read. A label or a split is stored as its place in a table."""

    root: Path
    files: list[str] = field(default_factory=list)
    labels: dict[Label, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """names of numbered classes, where the source gives them"""
    only_found: bool = False
    """whether only the numbers that occur are classes, not all from 0 to the largest"""
    empty: list[Path] = field(default_factory=list)
    ignored: int = 0
    file: "array[int]" = column("i")
    offset: "array[int]" = column("q")
    length: "array[int]" = column("I")
    label: "array[int]" = column("i")
    split: "array[int]" = column("i")
    codec: "array[int]" = column("B")
    width: "array[int]" = column("H")
    height: "array[int]" = column("H")
    split_of_file: str = ""

    def begin(self, path: Path) -> None:
        """Say which file the samples to come are in."""
        name = str(path.relative_to(self.root))
        self.files.append(name)
        self.split_of_file = dataset.split_of(name)

    def add(
        self,
        offset: int,
        length: int,
        *,
        label: Label,
        codec: int,
        split: str | None = None,
        size: tuple[int, int] = (0, 0),
    ) -> None:
        """Add a sample of the current file."""
        named = self.split_of_file if split is None else split
        self.file.append(len(self.files) - 1)
        self.offset.append(offset)
        self.length.append(length)
        self.label.append(self.labels.setdefault(label, len(self.labels)))
        self.split.append(self.splits.setdefault(named, len(self.splits)))
        self.codec.append(codec)
        self.width.append(size[0])
        self.height.append(size[1])

    def relabel(self, new: Mapping[Label, Label]) -> None:
        """Put other labels in the places of these; several may become one."""
        table: dict[Label, int] = {}
        places = np.array([table.setdefault(new[old], len(table)) for old in self.labels], np.int32)
        self.label = array("i", places[np.frombuffer(self.label, np.int32)].tobytes())
        self.labels = table

    def indexed(self, number_of: Mapping[Label, int]) -> Index:
        """All samples, with the number of each one's class."""
        names = ["file", "offset", "length", "codec", *(["width", "height"] if any(self.width) else [])]
        columns: dict[str, NDArray[Any]] = {name: np.array(getattr(self, name)) for name in names}
        columns["label"] = np.array([number_of[label] for label in self.labels])[np.array(self.label)]
        return index.made(self.root, self.files, columns)

    def among(self, splits: Sequence[str]) -> NDArray[np.int64]:
        """The places of the samples that belong to one of these splits."""
        return np.flatnonzero(np.isin(np.array(self.split), [self.splits[s] for s in splits if s in self.splits]))


def class_names(rows: Rows, *, where: str) -> dict[Label, str]:
    """The class's name for each label, in the order of the classes."""
    if not rows.labels:
        raise Problem(f"{where} holds no pictures", fix=f"see what is in it, and that it is whole: ls -l {where}")
    if not all(isinstance(label, int) for label in rows.labels):
        return {label: str(label) for label in sorted(rows.labels, key=str)}
    numbers = sorted(int(label) for label in rows.labels)
    if numbers[0] < 0 or numbers[-1] >= MOST_CLASSES:
        wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise Problem(
            f"{where} holds samples with the label {wrong}, which is no class's number",
            fix="leave the files without true labels out, by a pattern such as 'DATA/{train,val}-*'",
        )
    if not rows.only_found:
        numbers = list(range(numbers[-1] + 1))
    names = {number: rows.names.get(number, str(number)) for number in numbers}
    counts: dict[str, int] = {}
    for name in names.values():
        counts[name] = counts.get(name, 0) + 1
    # ImageNet has two kinds of cranes: a name that two classes share is told apart by the number.
    return {number: name if counts[name] == 1 else f"{name} ({number})" for number, name in names.items()}


def opened(rows: Rows, *, where: str, name: str, config: DataConfig, seed: int) -> Dataset:
    """Number the labels, and split by the source's own split, or by a seeded share where it has none."""
    names = class_names(rows, where=where)
    classes = tuple(dict.fromkeys(names.values()))
    if len(rows.labels) < 2:
        raise Problem(
            f"{where} holds one class, {names[next(iter(rows.labels))]}: there is nothing to tell apart",
            fix="give data with at least two classes",
        )
    places = {name: number for number, name in enumerate(classes)}
    whole = rows.indexed({label: places[name] for label, name in names.items()})
    empty = tuple(rows.empty)
    held_out_name = next((split for split in HELD_OUT if split in rows.splits), None)
    train, held_out = rows.among((*TRAIN, "")), rows.among((held_out_name or "",))
    if held_out_name is None or not len(train):
        return dataset.split(
            whole,
            name=name,
            classes=classes,
            holdout=config.holdout,
            seed=seed,
            empty=empty,
            ignored=rows.ignored,
        )
    strange = sorted({*whole.label[held_out].tolist()} - {*whole.label[train].tolist()})
    if strange:
        raise Problem(
            f"{where} holds classes in {held_out_name} that train has not: "
            f"{', '.join(classes[number] for number in strange[:5])}",
            fix="give both splits the same classes",
        )
    return Dataset(
        name=name,
        classes=classes,
        train=whole.taken(train),
        held_out=whole.taken(held_out),
        held_out_name=held_out_name,
        others={
            name: whole.taken(rows.among((name,))) for name in HELD_OUT if name in rows.splits and name != held_out_name
        },
        empty=empty,
        ignored=rows.ignored,
    )


def held_out(rows: Rows, *, where: str) -> tuple[Index, tuple[str, ...]]:
    """The samples to evaluate on, and all classes: a split of the source's own, or all where it has none."""
    names = class_names(rows, where=where)
    classes = tuple(dict.fromkeys(names.values()))
    places = {name: number for number, name in enumerate(classes)}
    split = next((split for split in HELD_OUT if split in rows.splits), None)
    whole = rows.indexed({label: places[name] for label, name in names.items()})
    return whole if split is None else whole.taken(rows.among((split,))), classes
