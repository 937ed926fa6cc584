"""A large file of which only a little is read, here and there."""

import os
from pathlib import Path
from typing import Self

PAGE = 4096


class Pages:
    """A file to look into at known places. What was just read is remembered, so that neighbours cost nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.file).st_size
        self.start = 0
        self.page = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)

    def at(self, place: int, length: int) -> bytes:
        """The bytes from a place on; fewer where the file ends before."""
        start = place - self.start
        if start < 0 or start + length > len(self.page):
            self.start, start = place, 0
            self.page = os.pread(self.file, max(length, PAGE), place)
        return self.page[start : start + length]
