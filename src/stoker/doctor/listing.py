"""How fast a folder's files are found and asked for their sizes, and how many there are, in a limited time."""

import collections
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

# Of the pictures that are met, to decode some of them.
MOST_PICTURES = 256
# Looking at the clock after each file would cost more than some disks take to find one.
STRIDE = 64


@dataclass(frozen=True, kw_only=True)
class Walk:
    """What was found below a folder before the time was over."""

    files: int
    seconds: float
    is_whole: bool
    """whether every file was seen"""
    all_files: int | None
    """how many there are, or an estimate from the folders that were seen; None where none was seen to its end"""
    picture_files: int
    """of the files that were seen"""
    pictures: tuple[tuple[str, int], ...]
    """paths below the folder, and bytes, of some of the pictures"""

    @property
    def files_per_second(self) -> float:
        """rate of finding files and asking for their sizes"""
        return self.files / max(self.seconds, 1e-9)


def walked(root: Path, *, most_seconds: float) -> Walk:
    """List folders level by level, each level in a random order, so that those that are seen stand for the rest."""
    # Here, not above: it imports numpy, and `stoker --help` passes by.
    from stoker.data.sources.folders import is_class
    from stoker.data.sources.pictures import SUFFIXES

    began, dice = time.perf_counter(), random.Random(0)
    waiting, files, full_folders, is_over = collections.deque([""]), 0, 0, False
    pictures, picture_files = list[tuple[str, int]](), 0
    while waiting and not is_over:
        below, inside, before = waiting.popleft(), list[str](), files
        try:
            with os.scandir(root / below) as entries:
                for entry in entries:
                    path = os.path.join(below, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        inside += [path] if is_class(entry.name) else []
                        continue
                    size = entry.stat().st_size
                    files += 1
                    if os.path.splitext(entry.name)[1].lower() in SUFFIXES:
                        picture_files += 1
                        pictures += [(path, size)] if size and len(pictures) < MOST_PICTURES else []
                    is_over = files % STRIDE == 0 and time.perf_counter() - began > most_seconds
                    if is_over:
                        waiting.append(below)
                        break
                else:
                    full_folders += files > before
        except OSError:
            continue  # a folder that may not be read, or a file that is gone, says nothing of the speed
        dice.shuffle(inside)
        waiting += inside
        is_over = is_over or (bool(waiting) and time.perf_counter() - began > most_seconds)
    seconds = time.perf_counter() - began
    return Walk(
        files=files,
        seconds=seconds,
        is_whole=not waiting,
        all_files=estimated(files, seen=full_folders, left=len(waiting)),
        picture_files=picture_files,
        pictures=tuple(pictures),
    )


def estimated(files: int, *, seen: int, left: int) -> int | None:
    """All files, where some folders are left to be seen: these hold as many as those that were seen."""
    if not left:
        return files
    return files + round(files / seen * left) if seen else None
