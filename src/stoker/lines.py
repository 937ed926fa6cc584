"""Files of lines, read so that their size does not matter: whole, thinned, searched, or only the last ones.

A line is read whatever the lines around it hold. What can't be read is passed over and counted, never raised.
"""

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from stoker import records
from stoker.errors import Problem

Row = TypeVar("Row")
# Files up to this size are read whole, in a tenth of a second.
WHOLE_BYTES = 4 << 20
# No line that Stoker writes comes near to this.
LONGEST_BYTES = 1 << 20
# Read around a place in a file, which is a few lines, and looked through at a time.
AROUND_BYTES, BLOCK_BYTES = 4096, 1 << 20


@dataclass(frozen=True, kw_only=True)
class Found(Generic[Row]):
    """The lines of a file as records, in their order."""

    path: Path
    rows: tuple[Row, ...] = ()
    torn: int = 0
    """lines that are no JSON"""
    is_cut: bool = False
    """whether one of them is the last, without its end, as a kill leaves it"""
    unread: tuple[tuple[str, int], ...] = ()
    """why other lines could not be read, and how many"""
    is_thinned: bool = False
    """whether lines were left out because there are so many"""
    count: int = 0
    """lines of the file, as far as they were looked at"""
    failure: str | None = None
    """why the file could not be read; one that is not there holds no lines, and that is all"""

    @property
    def told(self) -> list[str]:
        """what could not be read, in words; a torn last line is no news, and each may be wrong in a way of its own"""
        torn = self.torn - self.is_cut
        return [
            *([f"{self.path.name}, because it can't be read: {self.failure}"] if self.failure is not None else []),
            *([f"{torn} lines of {self.path.name}, because they are no JSON"] if torn else []),
            *(f"{count} lines of {self.path.name}, because {what}" for what, count in self.unread[:3]),
        ]


@dataclass(frozen=True, kw_only=True)
class Placed(Generic[Row]):
    """A record and where its line begins and ends in the file."""

    begin: int
    end: int
    row: Row


class Tally(Generic[Row]):
    """Makes records of lines, and counts those that are none."""

    def __init__(self, kind: type[Row], path: Path) -> None:
        self.kind, self.path = kind, path
        self.torn, self.unread, self.count = 0, Counter[str](), 0
        self.is_cut = False

    def row(self, text: bytes) -> Row | None:
        """A line as a record; None where it is none."""
        self.count += 1
        try:
            return records.checked(json.loads(text), self.kind, self.path)
        except Problem as problem:
            self.unread[problem.what] += 1
        except (ValueError, RecursionError):
            self.torn += 1
            self.is_cut = not text.endswith(b"\n")
        return None

    def placed(self, begin: int, text: bytes) -> Placed[Row] | None:
        """The same with its place."""
        row = self.row(text)
        return None if row is None else Placed(begin=begin, end=begin + len(text), row=row)

    def found(self, rows: Iterable[Row], *, is_thinned: bool) -> Found[Row]:
        """What became of the lines."""
        return Found(
            path=self.path, rows=tuple(rows), torn=self.torn, is_cut=self.is_cut, unread=tuple(self.unread.items()),
            is_thinned=is_thinned, count=self.count,
        )  # fmt: skip


def whole(path: Path, kind: type[Row]) -> Found[Row]:
    """All lines of a file as records. It need not be there."""
    try:
        with open(path, "rb") as file:
            return read(file, kind, path)
    except OSError as error:
        return unreadable(path, error)


def last(path: Path, kind: type[Row], most: int) -> Found[Row]:
    """The last lines of a file as records. The others are counted, but not parsed."""
    kept, count = deque[bytes](maxlen=most), 0
    try:
        with open(path, "rb") as file:
            for text in file:
                kept.append(text)
                count += 1
    except OSError as error:
        return unreadable(path, error)
    return replace(read(kept, kind, path), count=count, is_thinned=count > len(kept))


def holding(path: Path, kind: type[Row], text: bytes) -> Found[Row]:
    """The lines of a file that hold some bytes, as records. The others are looked through, but not parsed."""
    try:
        return read(texts_with(path, text), kind, path)
    except OSError as error:
        return unreadable(path, error)


def unreadable(path: Path, error: OSError) -> Found[Row]:
    """What is found in a file that can't be opened or read."""
    return Found(path=path, failure=None if isinstance(error, FileNotFoundError) else error.strerror or str(error))


def texts_with(path: Path, text: bytes) -> Iterator[bytes]:
    """The lines of a file that hold some bytes."""
    rest = b""
    with open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            block = rest + block
            end = block.rfind(b"\n") + 1
            place = block.find(text, 0, end)
            while place >= 0:
                begin, stop = block.rfind(b"\n", 0, place) + 1, block.index(b"\n", place) + 1
                yield block[begin:stop]
                place = block.find(text, stop, end)
            rest = block[end:]
    if text in rest:
        yield rest


def read(texts: Iterable[bytes], kind: type[Row], path: Path) -> Found[Row]:
    """Lines as records."""
    tally = Tally(kind, path)
    return tally.found([row for text in texts if (row := tally.row(text)) is not None], is_thinned=False)


def sampled(path: Path, kind: type[Row], most: int, *, apart: Callable[[Row, Row], bool] | None = None) -> Found[Row]:
    """About `most` lines of a file at even distances, with the first and the last; all of them where they are fewer.

    Of a large file only these lines are read. Where `apart` is given, it says of two rows, one after the other, whether
    something has changed between them: then the last row before the change and the first one after it are kept too.
    """
    try:
        size = path.stat().st_size
        if size <= WHOLE_BYTES:
            return evenly(whole(path, kind), most, apart)
        tally = Tally(kind, path)
        with open(path, "rb", buffering=AROUND_BYTES) as file:
            texts = spaced(file, begin=0, end=size, most=most)
            found = [one for begin, text in texts if (one := tally.placed(begin, text)) is not None]
            if apart is not None:
                found = with_changes(file, found, tally, apart)
    except OSError as error:
        return unreadable(path, error)
    return tally.found((one.row for one in found), is_thinned=True)


def evenly(found: Found[Row], most: int, apart: Callable[[Row, Row], bool] | None) -> Found[Row]:
    """About `most` of the rows, at even distances."""
    rows, count = found.rows, len(found.rows)
    if count <= most:
        return found
    kept = {number * (count - 1) // max(most - 1, 1) for number in range(most)}
    if apart is not None:
        changes = [number for number in range(1, count) if apart(rows[number - 1], rows[number])]
        kept.update(place for number in changes for place in (number - 1, number))
    return replace(found, rows=tuple(rows[number] for number in sorted(kept)), is_thinned=True)


def spaced(file: BinaryIO, *, begin: int, end: int, most: int) -> list[tuple[int, bytes]]:
    """Where lines begin, and these lines: about `most` at even distances, the first and the last whole one included."""
    if hasattr(os, "posix_fadvise"):  # a disk that reads ahead takes three times as long
        os.posix_fadvise(file.fileno(), begin, end - begin, os.POSIX_FADV_RANDOM)
    found: list[tuple[int, bytes]] = []
    seen = begin
    for number in range(most - 1):
        place = begin + (end - begin) * number // (most - 1)
        line = line_from(file, max(place, seen))
        if line is not None and line[0] + len(line[1]) <= end:
            found.append(line)
            seen = line[0] + len(line[1])
    last = last_line(file, begin=seen, end=end)
    return [*found, last] if last is not None else found


def line_from(file: BinaryIO, place: int) -> tuple[int, bytes] | None:
    """The first line that begins at a place or after it, and where; None where it is not whole, or there is none."""
    begin = place
    file.seek(max(place - 1, 0))
    if place > 0:
        before = file.readline(LONGEST_BYTES)
        if not before.endswith(b"\n"):
            return None
        begin = place - 1 + len(before)
    text = file.readline(LONGEST_BYTES)
    return (begin, text) if text.endswith(b"\n") else None


def last_line(file: BinaryIO, *, begin: int, end: int) -> tuple[int, bytes] | None:
    """The last whole line between two places, the first of which is a line's beginning; None where there is none."""
    start = max(begin, end - LONGEST_BYTES)
    file.seek(start)
    block = file.read(end - start)
    stop = block.rfind(b"\n") + 1
    first = block.rfind(b"\n", 0, max(stop - 1, 0)) + 1
    # A line that begins before the block is longer than any of Stoker's.
    return (start + first, block[first:stop]) if stop and (first or start == begin) else None


def with_changes(
    file: BinaryIO, found: Sequence[Placed[Row]], tally: Tally[Row], apart: Callable[[Row, Row], bool]
) -> list[Placed[Row]]:
    """The same rows, and those just before and after every change between two of them."""
    kept = list(found[:1])
    most = 2 * len(found)
    for one in found[1:]:
        while apart(kept[-1].row, one.row) and len(kept) < most:
            before, after = change(file, kept[-1], one, tally, apart)
            kept += [before] if before is not kept[-1] else []
            if after is one:
                break
            kept.append(after)
        kept.append(one)
    return kept


def change(
    file: BinaryIO, old: Placed[Row], new: Placed[Row], tally: Tally[Row], apart: Callable[[Row, Row], bool]
) -> tuple[Placed[Row], Placed[Row]]:
    """The last row like the old one and the first one apart from it, found by halving what is between."""
    before, after, low, high = old, new, old.end, new.begin
    while low < high:
        middle = (low + high) // 2
        line = line_from(file, middle)
        one = tally.placed(*line) if line is not None and line[0] < after.begin else None
        if one is None:
            high = middle
        elif apart(old.row, one.row):
            after, high = one, middle
        else:
            before, low = one, one.end
    return before, after
