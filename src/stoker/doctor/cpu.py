"""How many whole pictures a second this machine's cores make ready for a network, one alone and all together."""

import itertools
import statistics
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from stoker.doctor import pictures
from stoker.doctor.pictures import Pictures
from stoker.doctor.profile import CpuSpeed
from stoker.doctor.trials import tried
from stoker.machine import gauges

if TYPE_CHECKING:
    from stoker.data.loader import Loader
    from stoker.data.order import Plan

SIDE = 224
# Pictures that each thread has in a batch, and batches made ahead: enough that no thread waits for another.
EACH, AHEAD = 8, 3
# Others who use the cores for a moment spoil one slice of the time, and not the middle one.
SLICES = 3
STEPS = 2


def measured(missing: dict[str, str], *, data: str | None, seconds: float) -> Generator[str, None, CpuSpeed | None]:
    """Decode pictures of the data, or drawn ones; yields what comes next, and returns what was found."""
    cores = gauges.cores_allotted().allotted
    yield "CPU: pictures decoded by one thread"
    where = "CPU: pictures decoded"
    with ExitStack() as held:
        some = None
        if data is not None:
            some = tried(missing, f"{where} of {data}", held.enter_context, pictures.found(data, seconds=seconds))
        if some is None:
            some = tried(missing, where, held.enter_context, pictures.found(None, seconds=seconds))
        one = None if some is None else tried(missing, where, pictures_per_second, some, threads=1, seconds=seconds)
        yield f"CPU: pictures decoded by {cores} threads"
        if some is None or one is None:
            return None
        every = tried(missing, where, pictures_per_second, some, threads=cores, seconds=seconds)
        if every is None:
            return None
        return speed(some, cores=cores, one=one, every=every)


def speed(some: Pictures, *, cores: int, one: float, every: float) -> CpuSpeed:
    """The figures with what they are about."""
    from stoker.data import native

    return CpuSpeed(
        cores=cores,
        threads=cores,
        decode_one_per_second=one,
        decode_all_per_second=every,
        picture=some.what,
        picture_bytes=some.mean_bytes,
        picture_pixels=some.mean_pixels,
        decoder=native.built_with() or "Pillow",
        data=some.data,
    )


def pictures_per_second(some: Pictures, *, threads: int, seconds: float) -> float:
    """Whole pictures that the loader reads, decodes and resizes in a second, once it is at full speed."""
    from stoker.config import ImageConfig
    from stoker.data.loader import Loader

    # No box of another shape has the whole area: every crop ends with the whole picture, but for a line of pixels.
    image = ImageConfig(resolution=SIDE, crop_scale=(1.0, 1.0), crop_ratio=(0.01, 100.0), flip=0.0)
    plans = endless(len(some.index), EACH * threads)
    loader = Loader(some.index, plans, image=image, seed=0, threads=threads, ahead=AHEAD, pin=False)
    try:
        # What was made ahead while nobody asked is over first, and then the clock starts.
        for _ in range(AHEAD + 1):
            next(loader)
        return statistics.median(rate(loader, seconds=seconds / 2) for _ in range(SLICES))
    finally:
        loader.close()


def rate(loader: "Loader", *, seconds: float) -> float:
    """Pictures that come out in a second."""
    began, done = time.perf_counter(), 0
    while done == 0 or time.perf_counter() - began < seconds:
        done += len(next(loader).labels)
    return done / (time.perf_counter() - began)


def endless(count: int, batch: int) -> "Iterator[Plan]":
    """Batches of the samples in turn, for ever."""
    import numpy as np

    from stoker.data.order import Plan

    for first in itertools.count(step=batch):
        positions = np.arange(first, first + batch)
        yield Plan(epoch=0, positions=positions, samples=positions % count)
