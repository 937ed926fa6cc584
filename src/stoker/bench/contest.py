"""A contestant in a process of its own, on cores of its own: what it measures there, round after round."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import psutil

from stoker.bench import peers
from stoker.bench.job import Job
from stoker.bench.thread_peers import pillow_pixels

Found = TypeVar("Found")
# A job takes some seconds. What takes this long will never end.
MOST_SECONDS = 300


class Failed(Exception):
    """A contestant could not do its work. Its text is the reason."""


class Contestant:
    """A way to load, kept ready in its own process, so that libraries don't get into each other's way."""

    def __init__(self, peer: peers.Peer) -> None:
        self.peer = peer
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=quiet)
        self._process = psutil.Process(self._pool.submit(os.getpid).result())

    def rate(self, job: Job) -> float:
        """Samples a second over a job."""
        return self._asked(samples_per_second, job)

    def difference(self, job: Job) -> float:
        """How far its pixels are from Pillow's, in levels of 255, on average."""
        return self._asked(mean_difference, job)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def kill(self) -> None:
        """End the process and all that it has started, at once."""
        for process in (*self._process.children(recursive=True), self._process):
            process.kill()

    def _asked(self, what: Callable[[str, Job], Found], job: Job) -> Found:
        try:
            return self._pool.submit(what, self.peer.key, job).result(timeout=MOST_SECONDS)
        except TimeoutError:
            # It may hang for good; its workers with it.
            self.kill()
            raise Failed(f"it took longer than {MOST_SECONDS} s") from None
        except BrokenProcessPool:
            raise Failed("its process was killed or crashed") from None
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise Failed(f"{type(error).__name__}: {reason}"[:200]) from error


def quiet() -> None:
    """Send what libraries print to stderr: stdout is for the answer."""
    os.dup2(2, 1)


@contextmanager
def pinned(cores: int) -> Iterator[tuple[int, ...]]:
    """Keep this thread, and the processes it starts, on the first of the allotted cores; gives their numbers."""
    if not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    before = os.sched_getaffinity(0)
    taken = sorted(before)[:cores]
    os.sched_setaffinity(0, taken)
    try:
        yield tuple(taken)
    finally:
        os.sched_setaffinity(0, before)


def samples_per_second(key: str, job: Job) -> float:
    """The rate of a loader in full flow: neither its start nor its end is counted, when some of its workers idle."""
    batches = peers.found(key).load(job)
    arrived = [(time.perf_counter(), len(rows)) for rows, _ in batches]
    # As many as were made ahead before the first came, and as were still in work when the last was begun.
    edge = min(2 * job.workers + 2, (len(arrived) - 2) // 2)
    timed = arrived[edge : len(arrived) - edge]
    return sum(count for _, count in timed[1:]) / (timed[-1][0] - timed[0][0])


def mean_difference(key: str, job: Job) -> float:
    """The mean distance of a loader's pixels from Pillow's. Every row must come, and come once."""
    seen: list[int] = []
    differences: list[float] = []
    for rows, pixels in peers.found(key).load(job):
        is_planes = pixels.shape[1:] == (3, job.side, job.side)
        for row, picture in zip(rows.tolist(), pixels.transpose(0, 2, 3, 1) if is_planes else pixels, strict=True):
            seen.append(row)
            differences.append(float(np.abs(picture.astype(np.int16) - pillow_pixels(job, row)).mean()))
    if sorted(seen) != list(range(len(job.rows))):
        raise Failed(f"it gave {len(set(seen))} of {len(job.rows)} samples, and {len(seen)} in all")
    return float(np.mean(differences))
