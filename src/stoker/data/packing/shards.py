"""Tar shards: pieces of them, made anywhere, and the file that the pieces are put into in their order.

Members are named as WebDataset wants them, by the sample's number in its split: 00000123.jpg and 00000123.cls. A shard
is whole when it stands in the pack under its name; until then it and its columns are in the folder of unfinished work.
"""

import io
import json
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from stoker import runs
from stoker.data.index import COLUMNS
from stoker.data.packing.encode import Stored

Columns = dict[str, NDArray[Any]]
# Of each sample of a shard, as the pack's index has it.
ROWS = {name: COLUMNS[name] for name in ("offset", "length", "label", "codec", "width", "height", "crc")}


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A sample that could not be packed."""

    place: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Fragment:
    """Some samples in a row of a shard: a part of a tar file, without its end."""

    split: str
    shard: int
    data: bytes
    rows: Columns
    """of the samples that are in it; offsets from its own begin"""
    bad: tuple[Bad, ...]
    source_crcs: NDArray[np.uint32]
    """CRC-32 of what the source holds, of the bad samples too"""
    source_bytes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Whole:
    """What is known of a finished shard."""

    rows: Columns
    bad: tuple[Bad, ...]
    source_crcs: NDArray[np.uint32]
    source_bytes: int
    file_bytes: int


def name(split: str, shard: int) -> str:
    """The file of a shard."""
    return f"{split}-{shard:05d}.tar"


def member(path: str, data: bytes) -> bytes:
    """One file of a tar: the same bytes whoever packs it, and whenever."""
    info = tarfile.TarInfo(path)
    info.size, info.mode = len(data), 0o644
    header = info.tobuf(tarfile.USTAR_FORMAT)
    return header + data + bytes(-len(data) % tarfile.BLOCKSIZE)


class Cutting:
    """A fragment in the making."""

    def __init__(self, *, split: str, shard: int) -> None:
        self.split, self.shard = split, shard
        self.parts: list[bytes] = []
        self.size = 0
        self.rows: list[tuple[int, ...]] = []
        self.bad: list[Bad] = []
        self.crcs: list[int] = []
        self.source_bytes = 0

    def seen(self, raw: bytes) -> None:
        """Note what the source holds of the next sample."""
        self.crcs.append(zlib.crc32(raw))
        self.source_bytes += len(raw)

    def add(self, place: int, picture: Stored, label: int) -> None:
        """Put a sample in."""
        offset = self.size + tarfile.BLOCKSIZE + picture.skip
        kept = picture.raw[picture.skip :] if picture.skip else picture.raw
        crc = zlib.crc32(kept)
        self.rows.append((offset, len(kept), label, picture.codec, picture.width, picture.height, crc))
        for extension, data in ((picture.extension, picture.raw), ("cls", b"%d" % label)):
            self.parts.append(member(f"{place:08d}.{extension}", data))
            self.size += len(self.parts[-1])

    def done(self) -> Fragment:
        """The fragment."""
        columns = zip(*self.rows) if self.rows else ((),) * len(ROWS)
        return Fragment(
            split=self.split,
            shard=self.shard,
            data=b"".join(self.parts),
            rows={name: np.array(column, kind) for (name, kind), column in zip(ROWS.items(), columns)},
            bad=tuple(self.bad),
            source_crcs=np.array(self.crcs, np.uint32),
            source_bytes=self.source_bytes,
        )


class Part:
    """A shard that is not whole yet. A kill loses it, and nothing else."""

    def __init__(self, dest: Path, unfinished: Path, *, split: str, shard: int) -> None:
        self.target = dest / name(split, shard)
        self.path = unfinished / f"{self.target.name}.part"
        self.columns = columns_file(unfinished, split, shard)
        self.file: BinaryIO = open(self.path, "wb")  # noqa: SIM115
        self.size = 0
        self.places = 0
        self.fragments: list[Fragment] = []

    def add(self, fragment: Fragment) -> None:
        """Append the next fragment; its bytes are not kept in memory."""
        self.file.write(fragment.data)
        moved = {**fragment.rows, "offset": fragment.rows["offset"] + self.size}
        self.size += len(fragment.data)
        self.places += len(fragment.source_crcs)
        held = {name: getattr(fragment, name) for name in ("split", "shard", "bad", "source_crcs", "source_bytes")}
        self.fragments.append(Fragment(data=b"", rows=moved, **held))

    def close(self) -> Whole:
        """End the tar and put it in its place, whole, after its columns."""
        end = 2 * tarfile.BLOCKSIZE
        self.file.write(bytes(end + -(self.size + end) % tarfile.RECORDSIZE))
        self.file.flush()
        os.fsync(self.file.fileno())
        size = self.file.tell()
        self.file.close()
        whole = Whole(
            rows={name: np.concatenate([f.rows[name] for f in self.fragments]) for name in ROWS},
            bad=tuple(bad for f in self.fragments for bad in f.bad),
            source_crcs=np.concatenate([f.source_crcs for f in self.fragments]),
            source_bytes=sum(f.source_bytes for f in self.fragments),
            file_bytes=size,
        )
        save_columns(self.columns, whole)
        os.replace(self.path, self.target)
        runs.sync(self.target.parent)
        return whole

    def drop(self) -> None:
        """Let go of a shard that can't be finished now, and of the room it takes."""
        self.file.close()
        self.path.unlink(missing_ok=True)


def columns_file(unfinished: Path, split: str, shard: int) -> Path:
    """Where the columns of a whole shard are kept until the pack is finished."""
    return unfinished / f"{name(split, shard)}.npz"


def save_columns(path: Path, whole: Whole) -> None:
    """Write a shard's columns down, whole or not at all."""
    packed = io.BytesIO()
    np.savez(
        packed,
        # JSON keeps names that are no UTF-8.
        bad=np.frombuffer(json.dumps([(bad.place, bad.reason) for bad in whole.bad]).encode(), np.uint8),
        source_crcs=whole.source_crcs,
        sizes=np.array([whole.source_bytes, whole.file_bytes]),
        **{f"row_{key}": column for key, column in whole.rows.items()},  # type: ignore[arg-type]
    )
    save(path, packed.getvalue())


def save(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    runs.sync(path.parent)


def read_whole(dest: Path, unfinished: Path, *, split: str, shard: int) -> Whole | None:
    """A finished shard of an unfinished pack; None where it is not there, or not as it was."""
    target, columns = dest / name(split, shard), columns_file(unfinished, split, shard)
    if not target.exists() or not columns.exists():
        return None
    with np.load(columns) as kept:
        source_bytes, file_bytes = kept["sizes"].tolist()
        if target.stat().st_size != file_bytes:
            return None
        pairs = json.loads(kept["bad"].tobytes())
        return Whole(
            rows={key: kept[f"row_{key}"] for key in ROWS},
            bad=tuple(Bad(place=place, reason=reason) for place, reason in pairs),
            source_crcs=kept["source_crcs"],
            source_bytes=source_bytes,
            file_bytes=file_bytes,
        )
