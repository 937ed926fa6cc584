"""The index: which bytes of which file a sample is. Columns of numbers, so that a million samples are a few arrays."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


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
    length: NDArray[np.int64]
    label: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.file)

    def path(self, sample: int) -> Path:
        """The file that holds a sample."""
        file = self.file[sample]
        start = self.name_ends[file - 1] if file else 0
        return self.root / self.names[start : self.name_ends[file]].tobytes().decode("utf-8", "surrogateescape")

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
        return int(self.length.sum())

    def taken(self, samples: NDArray[np.int64]) -> "Index":
        """The same files with some of the samples."""
        return replace(
            self,
            file=self.file[samples],
            offset=self.offset[samples],
            length=self.length[samples],
            label=self.label[samples],
        )

    def fingerprint(self) -> str:
        """A digest of names, places, sizes and labels: another one means other data."""
        digest = hashlib.sha256()
        for column in (self.names, self.name_ends, self.file, self.offset, self.length, self.label):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()[:16]


def of_files(root: Path, paths: list[str], *, sizes: list[int], labels: list[int]) -> Index:
    """An index in which every sample is a whole file."""
    encoded = [path.encode("utf-8", "surrogateescape") for path in paths]
    return Index(
        root=root,
        names=np.frombuffer(b"".join(encoded), np.uint8),
        name_ends=np.cumsum([len(name) for name in encoded], dtype=np.int64),
        file=np.arange(len(paths), dtype=np.int32),
        offset=np.zeros(len(paths), np.int64),
        length=np.array(sizes, np.int64),
        label=np.array(labels, np.int32),
    )
