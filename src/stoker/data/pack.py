"""A pack: data as Stoker stores it. Plain tar shards, an index, and pack.json, which is written last.

    train-00000.tar ...   members 00000123.jpg and 00000123.cls (the label's number), by a sample's number in its split
    val-00000.tar ...
    index/train/*.npy     the columns of index.py: which bytes of which shard a sample is
    bad.csv               what could not be packed, and why; only where there is such a thing
    pack.json             the record below: a folder without it is no finished pack

A pack holds no times, no names of machines and no paths of them: the same source and settings give the same bytes.
Beside it lies time.json, the seconds that it took, which is no part of it.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.config import DataConfig
from stoker.data import dataset, index
from stoker.data.dataset import HELD_OUT, Dataset
from stoker.data.index import Index
from stoker.errors import Problem

RECORD = "pack.json"
BAD = "bad.csv"
INDEX = "index"
UNFINISHED = ".packing"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One tar of a pack."""

    name: str
    samples: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Split:
    """The samples of a pack that belong together: train, val or test."""

    samples: int
    bytes: int
    """of the samples, as they are stored"""
    source_bytes: int
    """of the samples, as the source has them"""
    fingerprint: str
    shards: tuple[Shard, ...]


@dataclass(frozen=True, kw_only=True)
class PackRecord:
    """pack.json: what a pack holds, and how it was made."""

    name: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
    bad: int
    """samples that could not be packed; they are listed in bad.csv"""
    made: dict[str, Any]
    version: int = VERSION

    def text(self) -> str:
        """The record as it is stored."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def is_pack(folder: Path) -> bool:
    """Whether a folder is a pack, finished or not."""
    return (folder / RECORD).exists() or (folder / UNFINISHED).is_dir()


def read_record(folder: Path) -> PackRecord:
    """What a finished pack says of itself."""
    path = folder / RECORD
    if not path.exists():
        raise Problem(
            f"{folder} has no {RECORD}, so it is not a finished pack",
            fix=f"run the command that made it again, and it goes on: stoker pack SOURCE {folder}",
        )
    try:
        values = json.loads(path.read_bytes())
        version = int(values["version"])
        if version <= VERSION:
            splits = {
                name: Split(**{**split, "shards": tuple(Shard(**shard) for shard in split["shards"])})
                for name, split in values["splits"].items()
            }
            return PackRecord(**{**values, "classes": tuple(values["classes"]), "splits": splits})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Problem(f"{path} can't be read: {error}", fix="pack the data again, into another folder") from None
    raise Problem(
        f"{folder} is a pack of version {version}, and this Stoker knows versions up to {VERSION}",
        fix="use a newer Stoker, or pack the data again with this one",
    )


def open_pack(folder: Path, config: DataConfig, *, seed: int) -> Dataset:
    """Map a finished pack's index into memory. Reads no sample, but sees that every shard is there."""
    record = read_record(folder)
    check_shards(folder, record)
    if "train" not in record.splits:
        raise Problem(
            f"{folder} holds no samples to train on",
            fix=f"pack data with a train split, or with none; to evaluate on it: stoker eval RUN --data {folder}",
        )
    train = opened(folder, record, "train")
    held_out_name, *others = [name for name in HELD_OUT if name in record.splits] or [""]
    if not held_out_name:
        return dataset.split(train, name=record.name, classes=record.classes, holdout=config.holdout, seed=seed)
    return Dataset(
        name=record.name,
        classes=record.classes,
        train=train,
        held_out=opened(folder, record, held_out_name),
        held_out_name=held_out_name,
        others={name: opened(folder, record, name) for name in others},
    )


def held_out(folder: Path) -> tuple[Index, tuple[str, ...]]:
    """The samples of a finished pack to evaluate on, and its classes: a held-out split, or all where there is none."""
    record = read_record(folder)
    check_shards(folder, record)
    split = next((name for name in HELD_OUT if name in record.splits), "train")
    return opened(folder, record, split), record.classes


def opened(folder: Path, record: PackRecord, split: str) -> Index:
    """The index of one split."""
    found = index.open_index(folder / INDEX / split, root=folder, digest=record.splits[split].fingerprint)
    if len(found) != record.splits[split].samples:
        raise Problem(
            f"the index of {split} in {folder} holds {len(found)} samples, and {RECORD} says "
            f"{record.splits[split].samples}",
            fix="copy the pack again, or make it anew",
        )
    return found


def check_shards(folder: Path, record: PackRecord) -> None:
    """Refuse a pack of which a part is missing. Looks at sizes, not into the files."""
    for split in record.splits.values():
        for shard in split.shards:
            path = folder / shard.name
            try:
                size = path.stat().st_size
            except OSError:
                raise Problem(f"{path} is missing", fix="copy the pack again, all of it, or make it anew") from None
            if size < shard.bytes:
                raise Problem(
                    f"{path} has {size:,} bytes, and should have {shard.bytes:,}: it was cut off",
                    fix="copy the shard again, or make the pack anew",
                )
