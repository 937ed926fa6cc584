"""Pieces of packing: a few samples in a row of one shard, wherever their bytes are, and how they become a fragment."""

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.data import index
from stoker.data.decode import Unreadable
from stoker.data.index import Index
from stoker.data.packing import downloads
from stoker.data.packing.encode import CHANNELS, Encoding, stored, stored_pixels
from stoker.data.packing.shards import Bad, Cutting, Fragment
from stoker.data.samples import Sample
from stoker.data.sources.lists import is_address

# A piece is small, so that all cores have work and memory stays bounded, and large enough to be worth a message.
MOST_SAMPLES = 32
MOST_BYTES = 4 * 2**20
FETCHERS = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Samples of an index that is saved in a folder. The name of a file in it may be an address on the web."""

    split: str
    shard: int
    first: int
    """number of the first sample in its split; the others follow"""
    folder: Path
    root: Path
    fingerprint: str
    """of the index"""
    rows: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """Samples whose bytes came out of a stream."""

    split: str
    shard: int
    first: int
    samples: tuple[Sample, ...]
    labels: tuple[int, ...]


Piece = Rows | Given


@dataclass(frozen=True, kw_only=True)
class Found:
    """A sample's bytes, or why there are none."""

    name: str
    label: int
    raw: bytes = b""
    wrong: str | None = None
    codec: int = index.OTHER
    width: int = 0
    height: int = 0


def worked(piece: Piece, encoding: Encoding) -> Fragment:
    """A piece as a fragment of its shard: read, checked and encoded."""
    cutting = Cutting(split=piece.split, shard=piece.shard)
    for place, sample in enumerate(found(piece), start=piece.first):
        cutting.seen(sample.raw)
        try:
            if sample.wrong is not None:
                raise Unreadable(sample.wrong)
            if sample.codec in CHANNELS:
                size = {"width": sample.width, "height": sample.height}
                picture = stored_pixels(sample.raw, encoding, codec=sample.codec, **size)
            else:
                picture = stored(sample.raw, encoding)
            cutting.add(place, picture, sample.label)
        except Unreadable as error:
            cutting.bad.append(Bad(place=sample.name, reason=str(error)))
    return cutting.done()


def found(piece: Piece) -> Iterator[Found]:
    """The samples of a piece, in their order."""
    if isinstance(piece, Given):
        for sample, label in zip(piece.samples, piece.labels, strict=True):
            yield Found(name=sample.name, label=label, raw=sample.raw)
        return
    source = opened(piece.folder.absolute(), piece.root.absolute(), piece.fingerprint)
    rows = piece.rows.tolist()
    if any(is_address(file_name(source, row)) for row in rows):
        with ThreadPoolExecutor(FETCHERS) as threads:
            yield from threads.map(read, [source] * len(rows), rows)
    else:
        yield from (read(source, row) for row in rows)


@functools.lru_cache(maxsize=2)
def opened(folder: Path, root: Path, fingerprint: str) -> Index:
    """A saved index, mapped into memory once."""
    return index.open_index(folder, root=root, digest=fingerprint)


def file_name(source: Index, row: int) -> str:
    """The name of a sample's file as the index has it."""
    file = source.file[row]
    start = source.name_ends[file - 1] if file else 0
    return source.names[start : source.name_ends[file]].tobytes().decode("utf-8", "surrogateescape")


def read(source: Index, row: int) -> Found:
    """A sample of an index."""
    name, label, length = file_name(source, row), int(source.label[row]), int(source.length[row])
    if is_address(name):
        try:
            return Found(name=name, label=label, raw=downloads.fetched(name))
        except Unreadable as error:
            return Found(name=name, label=label, wrong=str(error))
    if source.offset[row]:
        name = f"{name} at byte {source.offset[row]}"
    try:
        raw = source.read(row)
    except OSError as error:
        return Found(name=name, label=label, wrong=error.strerror or str(error))
    if len(raw) < length:
        return Found(name=name, label=label, raw=raw, wrong=f"the file ends after {len(raw)} of {length} bytes")
    codec = int(source.codec[row])
    if codec not in CHANNELS:
        return Found(name=name, label=label, raw=raw)
    assert source.width is not None and source.height is not None
    width, height = int(source.width[row]), int(source.height[row])
    return Found(name=name, label=label, raw=raw, codec=codec, width=width, height=height)
