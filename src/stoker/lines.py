"""Files of lines, read so that their size does not matter: whole, thinned, searched, or only what is new.

A line is read whatever the lines around it hold. What can't be read is passed over and counted, never raised.
"""

import json
import os
from collections import Counter
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
# Bytes before its place by which a tail knows its file again.
MARK_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class Found(Generic[Row]):
    """The lines of a file as records, in their order."""

    path: Path
    rows: tuple[Row, ...] = ()
    torn: int = 0
    """lines that are no JSON, as a kill leaves them"""
    unread: tuple[tuple[str, int], ...] = ()
    """why other lines could not be read, and how many"""
    is_thinned: bool = False
    """whether lines were left out because there are so many"""

    @property
    def told(self) -> list[str]:
        """what could not be read, in words; a torn line is no news, and each may be wrong in a way of its own"""
        return [f"{count} lines of {self.path.name}, because {what}" for what, count in self.unread[:3]]


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
        self.torn, self.unread = 0, Counter[str]()

    def row(self, text: bytes | str) -> Row | None:
        """A line as a record; None where it is none."""
        try:
            return records.checked(json.loads(text), self.kind, self.path)
        except Problem as problem:
            self.unread[problem.what] += 1
        except (ValueError, RecursionError):
            self.torn += 1
        return None

    def placed(self, begin: int, text: bytes) -> Placed[Row] | None:
        """The same with its place."""
        row = self.row(text)
        return None if row is None else Placed(begin=begin, end=begin + len(text), row=row)

    def found(self, rows: Iterable[Row], *, is_thinned: bool) -> Found[Row]:
        """What became of the lines."""
        return Found(
            path=self.path, rows=tuple(rows), torn=self.torn, unread=tuple(self.unread.items()), is_thinned=is_thinned
        )


def whole(path: Path, kind: type[Row]) -> Found[Row]:
    """All lines of a file as records. It need not be there."""
    return read(texts_of(path), kind, path)


def holding(path: Path, kind: type[Row], text: bytes) -> Found[Row]:
    """The lines of a file that hold some bytes, as records. The others are looked through, but not parsed."""
    return read(texts_with(path, text), kind, path)


def texts_of(path: Path) -> Iterator[bytes]:
    """The lines of a file; none where it is not there or can't be read."""
    try:
        with open(path, "rb") as file:
            yield from file
    except OSError:
        return


def texts_with(path: Path, text: bytes) -> Iterator[bytes]:
    """The lines of a file that hold some bytes."""
    rest = b""
    try:
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
    except OSError:
        return
    if text in rest:
        yield rest


def read(texts: Iterable[bytes | str], kind: type[Row], path: Path) -> Found[Row]:
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
    except OSError:
        return Found(path=path)
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


class Tail:
    """Follows a file of lines that grows, from its beginning on.

    The file need not be there yet. It may be cut or replaced by another, as metrics.jsonl is when a run goes on from a
    checkpoint: then the tail starts over from the new beginning, and `restarted` says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restarted = False
        """whether the last call began anew: what was given before is void"""
        self.is_thinned = False
        """whether the last call left lines out because there were so many"""
        self.place = 0
        self._number: int | None = None
        self._mark = b""

    def new(self) -> list[str]:
        """The whole lines written since the last call, without their ends. A torn last line waits until it is whole."""
        return self._lines(most=None)

    def past(self, most: int) -> list[str]:
        """The same, but where more than some megabytes have come, only about `most` of them at even distances.

        This is for the first call on a file that may be large, and for whoever would rather miss lines than be late.
        The first and the last whole line are among them.
        """
        return self._lines(most=most)

    def _lines(self, *, most: int | None) -> list[str]:
        self.restarted = self.is_thinned = False
        try:
            with open(self.path, "rb", buffering=AROUND_BYTES) as file:
                self._recognise(file)
                end = file.seek(0, 2)
                if most is not None and end - self.place > WHOLE_BYTES:
                    self.is_thinned = True
                    pieces = spaced(file, begin=self.place, end=end, most=most)
                    place = pieces[-1][0] + len(pieces[-1][1]) if pieces else self.place
                    texts = [text for _, text in pieces]
                else:
                    file.seek(self.place)
                    block = file.read(end - self.place)
                    block = block[: block.rfind(b"\n") + 1]
                    place, texts = self.place + len(block), block.splitlines()
                begin = max(0, place - MARK_BYTES)
                file.seek(begin)
                self.place, self._mark = place, file.read(place - begin)
        except OSError:
            self._forget(None)
            return []
        return [text.decode(errors="replace").rstrip("\r\n") for text in texts]

    def _recognise(self, file: BinaryIO) -> None:
        """Start over where this is not the file whose lines were given before."""
        number = os.fstat(file.fileno()).st_ino
        file.seek(max(0, self.place - MARK_BYTES))
        if number != self._number or file.read(len(self._mark)) != self._mark:
            self._forget(number)

    def _forget(self, number: int | None) -> None:
        self.restarted = self.place > 0
        self.place, self._number, self._mark = 0, number, b""
