"""A look at samples without training on them: which can be read, of what size and kind they are."""

import collections
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from stoker.data import decode
from stoker.data.index import Index


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen."""

    looked_at: int
    bad: dict[str, str]
    """unreadable samples, by path, with the reason"""
    formats: dict[str, int]
    modes: dict[str, int]
    widths: tuple[int, int, int]
    """least, middle and largest, in pixels"""
    heights: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One sample."""

    path: str
    bad: str | None = None
    format: str = ""
    mode: str = ""
    size: tuple[int, int] = (0, 0)


def chosen(index: Index, most: int) -> list[int]:
    """Up to `most` samples, evenly spread over the index."""
    count = min(most, len(index))
    return [int(place) for place in np.linspace(0, len(index) - 1, count).round()]


def seen(index: Index, sample: int) -> Seen:
    """Read and decode one sample."""
    path = index.place(sample)
    try:
        raw = index.read(sample)
        if index.crc is not None and zlib.crc32(raw) != index.crc[sample]:
            return Seen(path=path, bad="its bytes are not those that were packed: copy the file again")
        picture = decode.opened_sample(index, sample, raw)
        form, mode = picture.format or "pixels", picture.mode
        decode.rgb(picture)
    except (decode.Unreadable, OSError) as error:
        return Seen(path=path, bad=str(error))
    return Seen(path=path, format=form, mode=mode, size=picture.size)


def looks(index: Index, samples: list[int], *, threads: int) -> Iterator[Seen]:
    """Decode samples in threads, in order."""
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda sample: seen(index, sample), samples)


def look(index: Index, *, most: int, threads: int) -> Look:
    """Decode up to `most` samples of an index and say what was found."""
    return summed(list(looks(index, chosen(index, most), threads=threads)))


def summed(found: list[Seen]) -> Look:
    """Many samples as one statement."""
    good = [one for one in found if one.bad is None]
    return Look(
        looked_at=len(found),
        bad={one.path: one.bad for one in found if one.bad is not None},
        formats=dict(collections.Counter(one.format for one in good)),
        modes=dict(collections.Counter(one.mode for one in good)),
        widths=spread([one.size[0] for one in good]),
        heights=spread([one.size[1] for one in good]),
    )


def spread(values: list[int]) -> tuple[int, int, int]:
    """Least, middle and largest; zeros where there are none."""
    ordered = sorted(values) or [0]
    return ordered[0], ordered[len(ordered) // 2], ordered[-1]
