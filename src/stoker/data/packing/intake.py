"""The intake: samples in the order in which a stream brings them -> pieces of shards.

The length of a stream is not known beforehand, so there is no shuffle: a sample's number is its place of arrival in its
split. Its split is the one that its source names or, where none is named, a seeded draw for its place of arrival. A
class that has a name gets its number when it is first met; a label that is a number stays that number.
"""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stoker.data import random
from stoker.data.packing.pieces import MOST_BYTES, MOST_SAMPLES, Given
from stoker.data.packing.store import Key, Store
from stoker.data.packing.streams import Arrival
from stoker.data.samples import Sample
from stoker.data.sources import rows
from stoker.data.sources.rows import MOST_CLASSES, Rows
from stoker.errors import Problem

# As other sources' folders are called -> as a pack calls them.
SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
# No epoch of training has this number, so these draws are no epoch's.
DRAW = 2**32 - 3


@dataclass(kw_only=True)
class Point:
    """How far a stream was read: all that is needed to go on from there. JSON can hold it."""

    at: int = 0
    """the byte at which reading goes on"""
    arrivals: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """samples by split"""
    names: list[str] = field(default_factory=list)
    """classes that have names, by their numbers"""
    largest: int = -1
    """largest label that came as a number"""
    titles: dict[int, str] = field(default_factory=dict)
    """names of labels that came as numbers, where the stream says them"""
    is_split: bool | None = None
    """whether the stream names the splits; None before its first sample"""
    first: str | None = None
    """name of the first picture whose own folder is its class"""

    def __post_init__(self) -> None:
        # In JSON all keys are texts.
        self.titles = {int(number): title for number, title in self.titles.items()}


class Intake:
    """Gives samples their split, number and label, and remembers where each shard began in the stream."""

    def __init__(self, store: Store, *, point: Point, seed: int, holdout: float) -> None:
        self.store, self.now = store, point
        self.seed, self.holdout = seed, holdout
        self.numbers = {name: number for number, name in enumerate(point.names)}
        self.begins: dict[Key, Point] = {}
        self.waiting: dict[str, list[tuple[Sample, int]]] = {}
        self.waiting_bytes: dict[str, int] = {}

    def pieces(self, arrivals: Iterable[Arrival]) -> Iterator[Given]:
        """Pieces of the shards that are not whole yet. What is in whole shards is passed over."""
        for arrival in arrivals:
            self.check_folder(arrival)
            sample, label = arrival.sample, self.number(arrival.sample)
            if arrival.title:
                self.now.titles[label] = arrival.title
            split = self.split(sample)
            place = self.now.counts.get(split, 0)
            key = (split, place // self.store.shard_samples)
            if key in self.store.whole:
                self.check_same(split, place, sample)
            else:
                if key not in self.begins:
                    self.begins[key] = dataclasses.replace(self.now, at=arrival.at, counts=dict(self.now.counts))
                self.waiting.setdefault(split, []).append((sample, label))
                self.waiting_bytes[split] = self.waiting_bytes.get(split, 0) + len(sample.raw)
            self.now.counts[split] = place + 1
            self.now.arrivals += 1
            is_last = (place + 1) % self.store.shard_samples == 0
            is_full = len(self.waiting.get(split, ())) == MOST_SAMPLES or self.waiting_bytes.get(split, 0) > MOST_BYTES
            if is_last or is_full:
                yield from self.emptied(split)
        for split in sorted(self.waiting):
            yield from self.emptied(split)

    def emptied(self, split: str) -> Iterator[Given]:
        """The samples of a split that wait, as a piece; nothing where none does."""
        waiting = self.waiting.pop(split, [])
        self.waiting_bytes[split] = 0
        if waiting:
            first = self.now.counts[split] - len(waiting)
            yield Given(
                split=split,
                shard=first // self.store.shard_samples,
                first=first,
                samples=tuple(sample for sample, _ in waiting),
                labels=tuple(label for _, label in waiting),
            )

    def check_same(self, split: str, place: int, sample: Sample) -> None:
        """Refuse a stream that is not the one of which the whole shards were made."""
        if not self.store.is_same(split, place, zlib.crc32(sample.raw)):
            raise self.other_stream(f"{sample.name} is not the sample that was number {place} of {split} before")

    def check_folder(self, arrival: Arrival) -> None:
        """Refuse a stream in which class folders are in several places: another reader would see other classes."""
        if arrival.above is None:
            return
        name = arrival.sample.name
        self.now.first = self.now.first or name
        if "/".join(self.now.first.split("/")[:-2]) != arrival.above:
            raise Problem(
                f"{self.now.first} and {name}: which folder is the class?",
                fix="unpack it and pack the folder, or make a tar in which all pictures are named CLASS/NAME.jpg",
            )

    def check_classes(self, *, where: str) -> None:
        """Refuse a stream that nothing can be learned from, when all of it is packed."""
        classes = self.classes()
        labels = {split: self.store.labels(split) for split in self.now.counts}
        present = set().union(*labels.values())
        if len(present) == 1:
            raise Problem(
                f"{where} holds one class, {classes[present.pop()]}: there is nothing to tell apart",
                fix="give data with at least two classes",
            )
        if not self.now.is_split or "train" not in labels:
            return
        for split, found in labels.items():
            if strange := sorted(found - labels["train"]):
                raise Problem(
                    f"{where} holds classes in {split} that train has not: "
                    f"{', '.join(classes[number] for number in strange[:5])}",
                    fix="give all splits the same classes",
                )

    def check_end(self) -> None:
        """Refuse a stream that ends before the one of which the whole shards were made."""
        for split in {split for split, _ in self.store.whole}:
            count = sum(len(whole.source_crcs) for (name, _), whole in self.store.whole.items() if name == split)
            came = self.now.counts.get(split, 0)
            if count != came:
                raise self.other_stream(f"the stream has {came} samples of {split}, and before it had {count}")

    def other_stream(self, what: str) -> Problem:
        """What to say about a stream that is not the one that was begun with."""
        dest = self.store.dest
        return Problem(what, fix=f"give the stream that {dest} was begun with; to start over: rm -r {dest}")

    def split(self, sample: Sample) -> str:
        """The split of the sample that arrives now."""
        is_named = sample.split != ""
        if self.now.is_split is None:
            self.now.is_split = is_named
        if is_named != self.now.is_split:
            where = f"in a folder {sample.split}, and others are in none" if is_named else "in no such folder"
            raise Problem(
                f"some pictures are in folders train, val or test, and {sample.name} is {where}",
                fix="put all of them into train and val folders, or none",
            )
        if is_named:
            return SPLITS.get(sample.split, sample.split)
        word = random.word_block(self.seed, epoch=DRAW, position=self.now.arrivals, purpose=random.ORDER)[0]
        return "val" if word < self.holdout * 2**32 else "train"

    def number(self, sample: Sample) -> int:
        """The number of a sample's class."""
        label = sample.label
        if isinstance(label, str):
            if label not in self.numbers:
                self.numbers[label] = len(self.now.names)
                self.now.names.append(label)
            found = self.numbers[label]
        else:
            self.now.largest = max(self.now.largest, label)
            found = label
        if (self.now.names and self.now.largest >= 0) or not 0 <= found < MOST_CLASSES:
            wrong = "some labels are numbers and some are names" if self.now.names else "which is no class's number"
            raise Problem(f"{sample.name} has the label {label!r}, {wrong}", fix="give all samples labels of one kind")
        return found

    def resume_point(self) -> dict[str, Any] | None:
        """Where reading must begin to meet all that is not in a whole shard; None where that is not known yet."""
        first = min(self.begins.values(), key=lambda point: point.arrivals, default=None)
        return None if first is None else dataclasses.asdict(first)

    def classes(self) -> tuple[str, ...]:
        """The classes met so far, in the order of their numbers."""
        if self.now.names or self.now.largest < 0:
            return tuple(self.now.names)
        numbered = Rows(root=self.store.dest, labels={self.now.largest: 0}, names=self.now.titles)
        return tuple(rows.class_names(numbered, where=str(self.store.dest)).values())
