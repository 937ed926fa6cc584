"""The end of a file of lines that grows: its last lines at first, then only what is new. Its size does not matter."""

import os
from dataclasses import dataclass
from pathlib import Path

# Bytes before its place by which a file is known again.
MARK_BYTES = 128


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What came of a look at a file."""

    texts: tuple[bytes, ...] = ()
    """whole lines, the oldest first"""
    restarted: bool = False
    """whether the file was cut or replaced: what was given before is void"""


class Ending:
    """Follows a file that need not be there yet. A torn last line waits until it is whole."""

    def __init__(self, path: Path, *, last_bytes: int) -> None:
        self.path, self.last_bytes = path, last_bytes
        self.read_bytes = 0
        """that were read in all"""
        self._place = 0
        self._mark = b""
        self._seen: tuple[int, int, int] | None = None
        self._was_there = False

    def new(self) -> Lines:
        """The lines since the last look, of its last bytes at most. A file as it was is not opened."""
        seen = signature(self.path)
        if seen == self._seen:
            return Lines()
        self._seen = seen
        if seen is None:
            self._place, self._mark = 0, b""
            return Lines(restarted=self._was_there)
        try:
            return self._read()
        except OSError:
            self._seen = None
            return Lines()

    def _read(self) -> Lines:
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(self._place - len(self._mark), 0))
            is_same = size >= self._place and file.read(len(self._mark)) == self._mark
            restarted = self._was_there and not is_same
            place = self._place if is_same else 0
            begin = max(place, size - self.last_bytes)
            file.seek(max(begin - 1, 0))
            block = file.read(size - max(begin - 1, 0))
        self.read_bytes += len(block) + len(self._mark)
        is_cut = begin > place
        if begin > 0:
            # One byte before says whether a line begins here.
            block = block[block.find(b"\n") + 1 or len(block) :] if is_cut else block[1:]
        whole = block[: block.rfind(b"\n") + 1]
        if whole or not is_same:
            self._place = size - len(block) + len(whole)
            self._mark = whole[-MARK_BYTES:]
        self._was_there = True
        return Lines(texts=tuple(whole.splitlines()), restarted=restarted)


def signature(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file does; None where it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
