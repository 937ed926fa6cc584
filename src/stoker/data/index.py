"""The index: which bytes of which file a sample is. Columns of numbers, so that a million samples are a few arrays.

On disk it is a folder of .npy files, one a column, at most 29 bytes a sample and the paths of the files that hold them.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import Problem

# What a sample's bytes are. OTHER is any format that Pillow knows; the last three are pixels without any header, as
# grey, as interleaved red, green and blue, and as a plane of each, and need a width and a height.
JPEG, OTHER, GREY, RGB, PLANES = range(5)
COLUMNS = {
    "names": np.uint8,
    "name_ends": np.int64,
    "file": np.int32,
    "offset": np.int64,
    "length": np.uint32,
    "label": np.int32,
    "codec": np.uint8,
    "width": np.uint16,
    "height": np.uint16,
    "crc": np.uint32,
}
# The table of files, which samples refer to, and what is not always known.
TABLE = ("names", "name_ends")
OPTIONAL = ("width", "height", "crc")


@dataclass(frozen=True, kw_only=True, eq=False)
class Index:
    """A list of samples, as columns; one row a sample. Reads no sample until it is asked for."""

    root: Path
    names: NDArray[np.uint8]
    """the paths of all files below root, one after another, as UTF-8"""
    name_ends: NDArray[np.int64]
    """where each path ends in names"""
    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.uint32]
    label: NDArray[np.int32]
    codec: NDArray[np.uint8]
    width: NDArray[np.uint16] | None = None
    height: NDArray[np.uint16] | None = None
    crc: NDArray[np.uint32] | None = None
    """CRC-32 of each sample's bytes"""
    digest: str | None = None
    """the fingerprint, where it is known already"""

    def __len__(self) -> int:
        return len(self.file)

    def path(self, sample: int) -> Path:
        """The file that holds a sample."""
        file = self.file[sample]
        start = self.name_ends[file - 1] if file else 0
        return self.root / self.names[start : self.name_ends[file]].tobytes().decode("utf-8", "surrogateescape")

    def place(self, sample: int) -> str:
        """Where a sample is, in words: its file, and the byte where it begins if others are in it too."""
        return f"{self.path(sample)}" + (f" at byte {self.offset[sample]}" if self.offset[sample] else "")

    def read(self, sample: int) -> bytes:
        """A sample's bytes."""
        with open(self.path(sample), "rb", buffering=0) as file:
            if self.offset[sample]:
                file.seek(self.offset[sample])
            wanted = int(self.length[sample])
            raw = file.read(wanted)
            # A network file system may hand out less than it was asked for.
            while len(raw) < wanted and (more := file.read(wanted - len(raw))):
                raw += more
            return raw

    @property
    def total_bytes(self) -> int:
        """bytes of all samples together"""
        return int(self.length.sum(dtype=np.int64))

    def taken(self, samples: NDArray[np.int64]) -> "Index":
        """The same files with some of the samples."""
        rows = {name: getattr(self, name) for name in COLUMNS if name not in TABLE}
        taken = {name: column[samples] for name, column in rows.items() if column is not None}
        return replace(self, digest=None, **taken)

    def fingerprint(self) -> str:
        """A digest of names, places, sizes and labels: another one means other data."""
        if self.digest is not None:
            return self.digest
        digest = hashlib.sha256()
        for name in COLUMNS:
            if name not in OPTIONAL:
                digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return digest.hexdigest()[:16]


def made(root: Path, files: list[str], columns: dict[str, NDArray[Any]]) -> Index:
    """An index of samples in some files below root. Offsets are 0 and codecs JPEG where they are not given."""
    encoded = [name.encode("utf-8", "surrogateescape") for name in files]
    count = len(columns["file"])
    known: dict[str, Any] = {"offset": np.zeros(count, np.int64), "codec": np.full(count, JPEG)} | columns
    columns_as_stored: dict[str, Any] = {
        name: np.ascontiguousarray(column, COLUMNS[name]) for name, column in known.items()
    }
    return Index(
        root=root,
        names=np.frombuffer(b"".join(encoded), np.uint8),
        name_ends=np.cumsum([len(name) for name in encoded], dtype=np.int64),
        **columns_as_stored,
    )


def of_files(root: Path, paths: list[str], *, sizes: list[int], labels: list[int]) -> Index:
    """An index in which every sample is a whole file."""
    columns: dict[str, NDArray[Any]] = {
        "file": np.arange(len(paths)),
        "length": np.array(sizes, np.int64),
        "label": np.array(labels, np.int64),
        "codec": np.array([codec_of(path) for path in paths], np.uint8),
    }
    return made(root, paths, columns)


def codec_of(name: str) -> int:
    """What a picture file's name says of its bytes."""
    return JPEG if name.lower().endswith((".jpg", ".jpeg")) else OTHER


def write(index: Index, folder: Path) -> None:
    """Save an index as a folder of columns."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COLUMNS:
        column = getattr(index, name)
        if column is not None:
            with open(folder / f"{name}.npy", "wb") as file:
                np.save(file, column)
                file.flush()
                os.fsync(file.fileno())


def open_index(folder: Path, *, root: Path, digest: str | None = None) -> Index:
    """Map a saved index into memory."""
    try:
        columns = {
            # Mapping nothing is an error, and an empty column is none.
            name: np.load(path, mmap_mode="r") if path.stat().st_size > 128 else np.load(path)
            for name in COLUMNS
            if (path := folder / f"{name}.npy").exists() or name not in OPTIONAL
        }
    except (OSError, ValueError, EOFError) as error:
        raise Problem(f"the index in {folder} can't be read: {error}", fix="pack the data again") from None
    wrong = [name for name, column in columns.items() if column.dtype != COLUMNS[name]]
    lengths = {len(column) for name, column in columns.items() if name not in TABLE}
    ends, file = columns["name_ends"], columns["file"]
    is_whole = not wrong and len(lengths) == 1 and len(ends) > 0 and ends[0] >= 0 and (ends[1:] >= ends[:-1]).all()
    if not is_whole or ends[-1] > len(columns["names"]) or (len(file) and not 0 <= file.max() < len(ends)):
        raise Problem(f"the index in {folder} is damaged: its columns don't fit together", fix="pack the data again")
    return Index(root=root, digest=digest, **columns)
