"""The store: the shards of a pack that is being made, those that are whole and those that are not."""

import contextlib
import csv
import fcntl
import io
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from stoker import runs
from stoker.data import index
from stoker.data.index import Index
from stoker.data.pack import BAD, INDEX, RECORD, UNFINISHED, PackRecord, Shard, Split
from stoker.data.packing import shards
from stoker.data.packing.shards import Bad, Fragment, Part, Whole
from stoker.errors import Problem
from stoker.units import bytes_text

Key = tuple[str, int]
# How long it took to make a pack. No part of the pack: its bytes are the same however long that was.
TIME = "time.json"


class Store:
    """Takes fragments, in the order of each split, and makes whole shards of them."""

    def __init__(self, dest: Path, *, shard_samples: int, began: float) -> None:
        """`began` is when this start of packing did, by time.monotonic."""
        self.dest, self.unfinished = dest, dest / UNFINISHED
        self.shard_samples = shard_samples
        self.whole: dict[Key, Whole] = {}
        self.parts: dict[Key, Part] = {}
        self.bad = 0
        for path in sorted(self.unfinished.glob("*.tar.npz")):
            split, _, shard = path.name.removesuffix(".tar.npz").rpartition("-")
            found = shards.read_whole(dest, self.unfinished, split=split, shard=int(shard))
            if found is not None:
                self.whole[split, int(shard)] = found
                self.bad += len(found.bad)
        self.began, self.earlier_seconds = began, earlier_seconds(dest) if self.whole else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self.parts.values():
            part.drop()

    @property
    def places(self) -> int:
        """samples in whole shards, with the bad ones"""
        return sum(len(whole.source_crcs) for whole in self.whole.values())

    def is_same(self, split: str, place: int, crc: int) -> bool:
        """Whether a sample of a whole shard was packed from the bytes with this checksum."""
        crcs, number = self.whole[split, place // self.shard_samples].source_crcs, place % self.shard_samples
        return number < len(crcs) and int(crcs[number]) == crc

    def add(self, fragment: Fragment, *, expected: int) -> bool:
        """Take a fragment; says whether its shard, of `expected` samples, is whole now."""
        key = (fragment.split, fragment.shard)
        if key not in self.parts:
            self.parts[key] = Part(self.dest, self.unfinished, split=fragment.split, shard=fragment.shard)
        part = self.parts[key]
        part.add(fragment)
        self.bad += len(fragment.bad)
        if part.places < expected:
            return False
        self.close(key)
        return True

    def close(self, key: Key) -> None:
        """End a shard as it is."""
        self.whole[key] = self.parts[key].close()
        del self.parts[key]
        self.write_time()

    def write_time(self) -> None:
        """Write down how long packing has taken, in all its starts; nothing where that is not known of earlier ones."""
        if self.earlier_seconds is None:
            (self.dest / TIME).unlink(missing_ok=True)
            return
        seconds = self.earlier_seconds + time.monotonic() - self.began
        shards.save(self.dest / TIME, json.dumps({"seconds": round(seconds, 3), "version": 1}).encode())

    def bad_samples(self) -> list[Bad]:
        """All that could not be packed so far, in the order of the splits and shards."""
        closed = [bad for key in sorted(self.whole) for bad in self.whole[key].bad]
        return closed + [bad for part in self.parts.values() for f in part.fragments for bad in f.bad]

    def write_bad(self, empty: list[Bad]) -> None:
        """Write down what could not be packed."""
        found = empty + self.bad_samples()
        if not found:
            # An earlier attempt may have met some.
            (self.dest / BAD).unlink(missing_ok=True)
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([("place", "reason"), *((bad.place, bad.reason) for bad in found)])
        shards.save(self.dest / BAD, text.getvalue().encode("utf-8", "surrogateescape"))

    def labels(self, split: str) -> set[int]:
        """The numbers of the classes that a split's whole shards hold."""
        wholes = [whole for (name, _), whole in self.whole.items() if name == split]
        return {label for whole in wholes for label in np.unique(whole.rows["label"]).tolist()}

    def indexed(self, split: str) -> Index:
        """The index of a split whose shards are all whole."""
        count = sum(1 for name, _ in self.whole if name == split)
        wholes = [self.whole[split, shard] for shard in range(count)]
        columns = {name: np.concatenate([whole.rows[name] for whole in wholes]) for name in shards.ROWS}
        columns["file"] = np.repeat(np.arange(count), [len(whole.rows["length"]) for whole in wholes])
        return index.made(self.dest, [shards.name(split, shard) for shard in range(count)], columns)

    def finish(self, *, name: str, classes: tuple[str, ...], empty: list[Bad], made: dict[str, object]) -> PackRecord:
        """Write the indexes and, last, the record."""
        self.write_bad(empty)
        if not any(len(whole.rows["length"]) for whole in self.whole.values()):
            first = (empty + self.bad_samples())[0]
            raise Problem(
                f"not one of {len(empty) + self.bad} samples can be read, the first: {first.place}: {first.reason}",
                fix=f"see {self.dest / BAD}, and give a source of pictures",
            )
        splits = {}
        for split in sorted({split for split, _ in self.whole}):
            found = self.indexed(split)
            index.write(found, self.dest / INDEX / split)
            wholes = [self.whole[split, shard] for shard in range(len(found.name_ends))]
            splits[split] = Split(
                samples=len(found),
                bytes=found.total_bytes,
                source_bytes=sum(whole.source_bytes for whole in wholes),
                fingerprint=found.fingerprint(),
                shards=tuple(
                    Shard(name=shards.name(split, n), samples=len(whole.rows["length"]), bytes=whole.file_bytes)
                    for n, whole in enumerate(wholes)
                ),
            )
        bad = len(empty) + self.bad
        record = PackRecord(name=name, classes=classes, splits=splits, bad=bad, made=made)
        self.write_time()
        shards.save(self.dest / RECORD, record.text().encode())
        return record


def earlier_seconds(dest: Path) -> float | None:
    """How long earlier starts have packed, up to their last whole shard; None where that was not written down."""
    try:
        return float(json.loads((dest / TIME).read_bytes())["seconds"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


@contextlib.contextmanager
def held(dest: Path) -> Iterator[None]:
    """Keep a second process from packing into the same folder. A kill lets go of it."""
    lock = dest / UNFINISHED / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Problem(
                f"another process is packing into {dest}", fix="wait for it, stop it, or give another folder"
            ) from None
        yield


@contextlib.contextmanager
def writing(dest: Path) -> Iterator[None]:
    """Say what to do when something can't be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in runs.FULL:
            raise Problem(f"{dest} can't be written: {error}", fix="give another folder, or free this one") from None
        free = bytes_text(shutil.disk_usage(dest).free)
        raise Problem(
            f"the disk is full: {dest} can't be written ({error.strerror}; {free} free)",
            fix="free some space and run the same command again: it goes on after the last whole shard",
        ) from None


def check_room(dest: Path, wanted_bytes: float) -> None:
    """Refuse to begin what the disk has no room for."""
    folder = next(folder for folder in (dest, *dest.absolute().parents) if folder.is_dir())
    free_bytes = shutil.disk_usage(folder).free
    if wanted_bytes > free_bytes:
        raise Problem(
            f"the pack will take about {bytes_text(wanted_bytes)}, and {folder} has {bytes_text(free_bytes)} left",
            fix="free some space, give a folder on another disk, or a smaller --short-side or --quality",
        )


def remove_unfinished(dest: Path) -> None:
    """Remove what was only needed while packing."""
    shutil.rmtree(dest / UNFINISHED, ignore_errors=True)
    runs.sync(dest)
