"""The decoder in C++: JPEG bytes in files -> batches of pixels, in threads of its own, without Python's lock.

Built with the package where a compiler and libjpeg-turbo are there. Without it Pillow does the work, more slowly.
"""

import ctypes
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.config import ImageConfig
from stoker.data.index import COLUMNS, Index
from stoker.data.order import Plan
from stoker.errors import Problem

MISSING = "no native decoder: Pillow decodes, at less than half the speed"
CURE = "apt install g++ libjpeg-dev (or your system's), then install Stoker again"
# A JPEG is halved in the transform only where this many times the output's size is there (docs/decisions/0004).
HALVED_FROM = 4.0


class Look(ctypes.Structure):
    """ImageConfig, as crop.h has it."""

    _fields_ = (
        ("scale", ctypes.c_double * 2),
        ("ratio", ctypes.c_double * 2),
        ("flip", ctypes.c_double),
        ("crop", ctypes.c_double),
        ("halved_from", ctypes.c_double),
        ("side", ctypes.c_int32),
        ("is_random", ctypes.c_int32),
    )


class Request(ctypes.Structure):
    """A batch to be made, as engine.cpp has it."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("file", ctypes.c_void_p),
        ("offset", ctypes.c_void_p),
        ("length", ctypes.c_void_p),
        ("codec", ctypes.c_void_p),
        ("width", ctypes.c_void_p),
        ("height", ctypes.c_void_p),
        ("position", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("epoch", ctypes.c_uint32),
        ("look", Look),
        ("pixels", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Ticket:
    """A batch in the making. Keeps the memory alive that threads write to."""

    handle: int
    status: NDArray[np.uint8]
    """0 for each sample that is done; anything else must be done by Pillow"""
    held: tuple[NDArray[Any], ...]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The time that threads spent on a batch, added up."""

    read_seconds: float
    decode_seconds: float


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled part, or None where it was not built or can't run here."""
    built = sorted(Path(__file__).parent.glob("library*.so"))
    if not built:
        return None
    try:
        lib = ctypes.CDLL(os.fspath(built[0]))
    except OSError:
        return None
    lib.stoker_built_with.restype = ctypes.c_char_p
    if lib.stoker_built_with() is None:
        return None
    handle, number = ctypes.c_void_p, ctypes.c_int64
    lib.stoker_open.argtypes = [ctypes.c_int, ctypes.c_char_p, handle, handle, number, ctypes.c_int]
    lib.stoker_open.restype = handle
    lib.stoker_close.argtypes = [handle]
    lib.stoker_submit.argtypes = [handle, ctypes.POINTER(Request)]
    lib.stoker_submit.restype = handle
    lib.stoker_poll.argtypes = [handle, handle, number]
    lib.stoker_wait.argtypes = [handle, handle, ctypes.POINTER(number), ctypes.POINTER(number)]
    lib.stoker_will_need.argtypes = [handle, number, number, number]
    lib.stoker_decode.argtypes = [handle, number, *[ctypes.c_int] * 3, ctypes.c_uint64, ctypes.c_uint32, number]
    lib.stoker_decode.argtypes += [ctypes.POINTER(Look), ctypes.c_int, handle]
    return lib


def built_with() -> str | None:
    """What the decoder was built with, or None where there is none."""
    lib = library()
    return None if lib is None else lib.stoker_built_with().decode()


def look(config: ImageConfig, *, is_random: bool, halved_from: float = HALVED_FROM) -> Look:
    """The settings of pictures in the form that C++ takes."""
    side = config.resolution if is_random else config.eval_resolution or config.resolution
    scale, ratio = (ctypes.c_double * 2)(*config.crop_scale), (ctypes.c_double * 2)(*config.crop_ratio)
    return Look(scale, ratio, config.flip, config.eval_crop, halved_from, side, is_random)


class Engine:
    """Threads that make batches of the samples of one index."""

    def __init__(self, index: Index, *, threads: int) -> None:
        lib = library()
        self._engine: int | None = None
        assert lib is not None and threads > 0
        self._lib, self._index, self._owner = lib, index, os.getpid()
        self._names = np.ascontiguousarray(index.names)
        self._ends = np.ascontiguousarray(index.name_ends)
        # Files that hold many samples stay open; a folder of pictures would use up what the system allows.
        is_kept = len(index) > len(self._ends)
        root = os.fsencode(index.root) + b"/"
        self._engine = lib.stoker_open(
            threads, root, self._names.ctypes.data, self._ends.ctypes.data, len(self._ends), is_kept
        )
        if self._engine is None:
            raise Problem("the system lets no decode thread start", fix="raise the limit of processes: ulimit -u")
        self._tickets: dict[int, Ticket] = {}

    def submit(self, plan: Plan, pixels: NDArray[np.uint8], *, seed: int, look: Look) -> Ticket:
        """Begin a batch. Its pixels are whole once it was waited for."""
        # Threads write where they are told to: what is wrong here would be a crash there.
        assert self._engine is not None and pixels.flags.c_contiguous
        assert pixels.nbytes == len(plan.positions) * look.side**2 * 3 and len(plan.samples) == len(plan.positions)
        names = ("file", "offset", "length", "codec", "width", "height")
        columns: dict[str, NDArray[Any] | None] = {
            name: None if (column := getattr(self._index, name)) is None else column[plan.samples] for name in names
        }
        assert all(column is None or column.dtype == COLUMNS[name] for name, column in columns.items())
        positions = np.ascontiguousarray(plan.positions, np.int64)
        status = np.empty(len(positions), np.uint8)
        request = Request(
            count=len(positions), position=positions.ctypes.data, seed=seed, epoch=plan.epoch, look=look,
            pixels=pixels.ctypes.data, status=status.ctypes.data,
            **{name: None if column is None else column.ctypes.data for name, column in columns.items()},
        )  # fmt: skip
        handle = self._lib.stoker_submit(self._engine, ctypes.byref(request))
        held = tuple(column for column in columns.values() if column is not None)
        ticket = Ticket(handle=handle, status=status, held=(*held, positions, pixels))
        self._tickets[handle] = ticket
        return ticket

    def poll(self, ticket: Ticket, *, seconds: float) -> bool:
        """Whether every sample of a batch is done or refused, waiting at most so long."""
        # A batch that was waited for is gone, and its handle is an address.
        assert self._engine is not None and self._tickets[ticket.handle] is ticket
        return bool(self._lib.stoker_poll(self._engine, ticket.handle, int(max(seconds, 0) * 1000)))

    def wait(self, ticket: Ticket) -> Spent:
        """Wait until every sample of a batch is done or refused."""
        assert self._engine is not None
        del self._tickets[ticket.handle]
        read, decode = ctypes.c_int64(), ctypes.c_int64()
        self._lib.stoker_wait(self._engine, ticket.handle, ctypes.byref(read), ctypes.byref(decode))
        return Spent(read_seconds=read.value / 1e9, decode_seconds=decode.value / 1e9)

    def will_need(self, first: int, last: int) -> None:
        """Tell the system that the samples from first to last will be read soon, where they lie in one piece."""
        assert self._engine is not None
        index = self._index
        if index.file[first] == index.file[last]:
            begin = int(index.offset[first])
            length = int(index.offset[last]) + int(index.length[last]) - begin
            self._lib.stoker_will_need(self._engine, int(index.file[first]), begin, length)

    def close(self) -> None:
        """End the threads; what is not done yet is dropped."""
        if self._engine is not None:
            # A forked child has the engine but not its threads.
            if os.getpid() == self._owner:
                self._lib.stoker_close(self._engine)
            self._engine = None
            self._tickets.clear()

    def __del__(self) -> None:
        self.close()


def decoded(
    raw: bytes, *, look: Look, seed: int = 0, epoch: int = 0, position: int = 0, own_huffman: bool = True
) -> NDArray[np.uint8] | None:
    """One JPEG in the caller's thread; None where it is refused."""
    lib = library()
    assert lib is not None
    pixels = np.empty((look.side, look.side, 3), np.uint8)
    status = lib.stoker_decode(
        raw, len(raw), 0, 0, 0, seed, epoch, position, ctypes.byref(look), own_huffman, pixels.ctypes.data
    )
    return pixels if status == 0 else None
