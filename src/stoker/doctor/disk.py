"""What the disk below a folder does: large reads, photo-sized reads here and there, safe writes, lists of files.

Everything is tried in a temporary folder there, which is gone afterwards. Where nothing may be written, files that are
there already are read.
"""

import mmap
import os
import random
import tempfile
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from stoker import units
from stoker.doctor import listing
from stoker.doctor.listing import Walk
from stoker.doctor.profile import DiskSpeed
from stoker.doctor.trials import tried
from stoker.errors import Problem
from stoker.machine import gauges

FILE_BYTES, PIECE_BYTES = 512 * units.MIB, 8 * units.MIB
# About a photo, and a multiple of every block that a disk wants for a direct read.
RANDOM_BYTES, BLOCK_BYTES = 128 * units.KIB, 4096
MOST_THREADS = 16
SMALL_FILES = 2000
LEAST_FREE_BYTES = units.GIB
# With fewer files, listing a dataset says nothing of the disk.
ENOUGH_FILES = 500
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
STEPS = 4


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A file to be read, and whether its bytes come from the disk and not from this machine's memory."""

    handle: int
    size: int
    bypassed_by: str | None
    """None where the page cache can't be avoided"""


def measured(
    missing: dict[str, str], *, folder: Path, data: Path | None, seconds: float
) -> Generator[str, None, DiskSpeed]:
    """Measure the disk below a folder, and how long the files of a dataset take to be listed."""
    room = gauges.disk(folder)
    place, kind = Path(room.folder), file_system(Path(room.folder))
    threads = min(MOST_THREADS, gauges.cores_allotted().allotted)
    written = sequential = reads = own = walk = None
    with ExitStack() as held:
        yield "disk: writes"
        spare = tried(missing, "disk: writes", held.enter_context, spare_folder(room))
        if spare is not None:
            written = tried(missing, "disk: writes", written_bytes_per_second, spare / "large", seconds=seconds)
        yield "disk: reads"
        path = spare / "large" if spare is not None and written is not None else None
        reader = tried(missing, "disk: reads", held.enter_context, opened(path, place, kind))
        if reader is not None:
            sequential = tried(missing, "disk: reads", read_bytes_per_second, reader, seconds=seconds)
        yield "disk: reads here and there"
        if reader is not None:
            reads = tried(
                missing, "disk: reads here and there", reads_per_second, reader, threads=threads, seconds=seconds
            )
        yield "disk: list of files"
        if data is not None or spare is None:
            walk = tried(missing, "disk: list of files", listing.walked, data or place, most_seconds=2 * seconds)
        if walk is None or walk.files < ENOUGH_FILES or not is_dataset(walk):
            own = None if spare is None else tried(missing, "disk: list of files", own_listed, spare, seconds=seconds)
        if own is None and (walk is None or walk.files < ENOUGH_FILES):
            missing.setdefault("disk: list of files", f"fewer than {ENOUGH_FILES} are there, and none can be made")
    return DiskSpeed(
        folder=str(place),
        file_system=kind,
        sequential_bytes_per_second=sequential,
        random_reads_per_second=reads,
        random_read_bytes=RANDOM_BYTES,
        random_read_threads=threads,
        is_cold=reader is not None and reader.bypassed_by is not None,
        bypassed_by=None if reader is None else reader.bypassed_by,
        write_bytes_per_second=written,
        **listed(own, walk, data),
    )


@contextmanager
def spare_folder(room: gauges.Disk) -> Iterator[Path]:
    """A folder of our own on that disk, gone with all that is in it when the block ends, however it ends."""
    if not room.writable:
        raise Problem(f"{room.folder} is not writable", fix="choose a folder this user may write to")
    if room.free_bytes is not None and room.free_bytes < LEAST_FREE_BYTES:
        free = units.bytes_text(room.free_bytes)
        raise Problem(f"only {free} are free at {room.folder}", fix="choose a folder on a disk with more room")
    with tempfile.TemporaryDirectory(dir=room.folder, prefix=".stoker-doctor-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def written_bytes_per_second(path: Path, *, seconds: float) -> float:
    """Write a file, safely, in growing portions: how much a slow disk can take in the time shows only on the way."""
    piece = os.urandom(PIECE_BYTES)
    began, done, wanted = time.perf_counter(), 0, 1
    with path.open("wb", buffering=0) as file:
        while wanted > 0:
            for _ in range(wanted):
                done += file.write(piece)
            os.fsync(file.fileno())
            spent = time.perf_counter() - began
            wanted = int(min(FILE_BYTES - done, done / spent * (seconds - spent))) // PIECE_BYTES
    return done / spent


@contextmanager
def opened(path: Path | None, place: Path, kind: str | None) -> Iterator[Reader]:
    """A file of our own, or the largest that is there, opened past the page cache where the system lets us."""
    found = path or largest_file(place)
    handle, is_direct = open_directly(found)
    try:
        size = os.fstat(handle).st_size // BLOCK_BYTES * BLOCK_BYTES
        how = "O_DIRECT" if is_direct else None
        # Only what we wrote ourselves is thrown out of the cache: others may want their files there.
        if not is_direct and path is not None and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            how = "posix_fadvise"
        yield Reader(handle=handle, size=size, bypassed_by=None if kind in IN_MEMORY else how)
    finally:
        os.close(handle)


def open_directly(path: Path) -> tuple[int, bool]:
    """A file to be read past the page cache, or as usual where its file system knows no such way, and which it is."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError):
        return os.open(path, os.O_RDONLY), False
    try:
        # Some file systems refuse only the read.
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:
            os.preadv(handle, [buffer], 0)
    except OSError:
        os.close(handle)
        return os.open(path, os.O_RDONLY), False
    return handle, True


def largest_file(place: Path, *, most_seconds: float = 0.5) -> Path:
    """The largest of the files that are found below a folder in some time."""
    began, sizes = time.perf_counter(), dict[Path, int]()
    for folder, _, names in os.walk(place):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and os.access(path, os.R_OK):
                sizes[path] = path.stat().st_size
        if time.perf_counter() - began > most_seconds:
            break
    largest = max(sizes, key=lambda path: sizes[path], default=None)
    if largest is None or sizes[largest] < RANDOM_BYTES:
        raise Problem(f"{place} holds no file that is large enough to be read", fix="choose a writable folder")
    return largest


def read_bytes_per_second(reader: Reader, *, seconds: float) -> float:
    """Read a file from front to back, as far as the time allows."""
    with mmap.mmap(-1, PIECE_BYTES) as buffer:
        began, done = time.perf_counter(), 0
        while done < reader.size and time.perf_counter() - began < seconds:
            done += os.preadv(reader.handle, [buffer], done)
        return done / (time.perf_counter() - began)


def reads_per_second(reader: Reader, *, threads: int, seconds: float) -> float:
    """Read photo-sized pieces of a file in a random order, none twice, as far as the time allows."""
    if reader.bypassed_by == "posix_fadvise":
        os.posix_fadvise(reader.handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(reader.handle, 0, 0, os.POSIX_FADV_RANDOM)
    places = list(range(0, reader.size - RANDOM_BYTES + 1, RANDOM_BYTES))
    random.Random(0).shuffle(places)
    if not places:
        raise Problem("the file is too short", fix="choose a folder with larger files")
    began = time.perf_counter()

    def read(mine: list[int]) -> int:
        done = 0
        with mmap.mmap(-1, RANDOM_BYTES) as buffer:
            for place in mine:
                if time.perf_counter() - began >= seconds and done:
                    break
                os.preadv(reader.handle, [buffer], place)
                done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(read, [places[first::threads] for first in range(threads)]))
    return done / (time.perf_counter() - began)


def is_dataset(walk: Walk) -> bool:
    """Whether most files of a folder are pictures. Nobody lists other folders whole, and some are nearly empty."""
    return 2 * walk.picture_files > walk.files


def own_listed(spare: Path, *, seconds: float) -> Walk:
    """Make small files for some time, and list them. The system still knows files so young: a disk is no faster."""
    folder = spare / "small"
    folder.mkdir()
    began = time.perf_counter()
    for number in range(SMALL_FILES):
        (folder / f"{number}.jpg").write_bytes(b"x")
        if time.perf_counter() - began > seconds:
            break
    return listing.walked(folder, most_seconds=seconds)


def listed(own: Walk | None, walk: Walk | None, data: Path | None) -> dict[str, Any]:
    """What listing files says of the disk, and of the dataset."""
    best = own or (walk if walk is not None and walk.files >= ENOUGH_FILES else None)
    rate = None if best is None else best.files_per_second
    is_data = walk is not None and data is not None and is_dataset(walk)
    files = walk.all_files if walk is not None and is_data else None
    return {
        "files_listed": None if best is None else best.files,
        "list_files_per_second": rate,
        "listed": None if best is None else "made for it" if own else "of the folder",
        "data": None if data is None else str(data),
        "dataset_files": files,
        "dataset_list_seconds": None if not rate or files is None else files / rate,
        "is_extrapolated": walk is not None and is_data and not walk.is_whole,
    }


def file_system(place: Path) -> str | None:
    """The kind of file system that a folder is on; None where the system does not say."""
    try:
        mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    except Exception:  # psutil's errors differ by system
        return None
    return next((mounts[folder] for folder in (place, *place.parents) if mounts.get(folder)), None)
