"""Order + index + decode + threads -> batches, made ahead. Its whole state is the position that its plans began at."""

import collections
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.config import ImageConfig
from stoker.data import augment, decode
from stoker.data.index import Index
from stoker.data.order import Plan
from stoker.errors import Problem

# Samples a thread takes at a time: few enough to share a batch evenly, many enough to hide the cost of a task.
CHUNK = 4
# A run of so many unreadable neighbours is no accident.
SUBSTITUTES = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Pictures as bytes (count x height x width x 3) and their labels, on the host."""

    plan: Plan
    pixels: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a thread did on a part of a batch."""

    read_seconds: float
    decode_seconds: float
    bad: dict[int, str]
    """unreadable samples, by their place in the index, with the reason"""
    missing: tuple[int, ...]
    """rows of the batch that have no picture"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pending:
    """A batch in the making."""

    plan: Plan
    pixels: torch.Tensor
    labels: torch.Tensor
    parts: list[Future[Work]]


class Loader:
    """Batches in the order of their plans. The same pixels come out for any number of threads.

    In training an unreadable sample is replaced by the next one of the index that can be read; in evaluation it is left
    out, so that every readable sample counts once.
    """

    def __init__(
        self,
        index: Index,
        plans: Iterator[Plan],
        *,
        image: ImageConfig,
        seed: int | None,
        threads: int,
        ahead: int,
        pin: bool,
    ) -> None:
        self.index, self.plans, self.image, self.seed, self.pin = index, plans, image, seed, pin
        self.read_seconds = 0.0
        self.decode_seconds = 0.0
        self.bad: dict[int, str] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._pending: collections.deque[Pending] = collections.deque()
        self._ahead = ahead

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Batch:
        while len(self._pending) <= self._ahead and (plan := next(self.plans, None)) is not None:
            self._pending.append(self._begun(plan))
        if not self._pending:
            raise StopIteration
        return self._finished(self._pending.popleft())

    def close(self) -> None:
        """End the threads; what was made ahead is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()

    def _begun(self, plan: Plan) -> Pending:
        side = self.image.resolution if self.is_training else (self.image.eval_resolution or self.image.resolution)
        count = len(plan.samples)
        # Pinned memory lets the copy to a GPU run beside its work; torch reuses it once the copy is over.
        pixels = torch.empty((count, side, side, 3), dtype=torch.uint8, pin_memory=self.pin)
        labels = torch.empty(count, dtype=torch.int64, pin_memory=self.pin)
        drawn = augment.draws(self.seed, epoch=plan.epoch, positions=plan.positions) if self.seed is not None else None
        rows = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
        parts = [self._pool.submit(self._work, plan, part, drawn, pixels.numpy(), labels.numpy()) for part in rows]
        return Pending(plan=plan, pixels=pixels, labels=labels, parts=parts)

    def _finished(self, pending: Pending) -> Batch:
        done = [part.result() for part in pending.parts]
        self.read_seconds += sum(work.read_seconds for work in done)
        self.decode_seconds += sum(work.decode_seconds for work in done)
        for work in done:
            self.bad.update(work.bad)
        pixels, labels = pending.pixels, pending.labels
        missing = {row for work in done for row in work.missing}
        if missing:
            kept = torch.tensor([row for row in range(len(labels)) if row not in missing], dtype=torch.int64)
            pixels, labels = pixels[kept], labels[kept]
        return Batch(plan=pending.plan, pixels=pixels, labels=labels)

    @property
    def is_training(self) -> bool:
        """whether samples are cropped and flipped at random"""
        return self.seed is not None

    def _work(
        self,
        plan: Plan,
        rows: range,
        drawn: NDArray[np.float64] | None,
        pixels: NDArray[np.uint8],
        labels: NDArray[np.int64],
    ) -> Work:
        """Fill some rows of a batch. Runs in a decode thread."""
        reading = decoding = 0.0
        bad: dict[int, str] = {}
        missing: list[int] = []
        for row in rows:
            sample = int(plan.samples[row])
            for _ in range(SUBSTITUTES if drawn is not None else 1):
                began = time.perf_counter()
                between = began
                try:
                    raw = self._read(sample)
                    between = time.perf_counter()
                    pixels[row] = self._pixels(raw, None if drawn is None else drawn[row])
                    labels[row] = self.index.label[sample]
                    break
                except decode.Unreadable as error:
                    bad[sample] = str(error)
                    sample = (sample + 1) % len(self.index)
                finally:
                    reading += between - began
                    decoding += time.perf_counter() - between
            else:
                missing.append(row)
        if drawn is not None and missing:
            raise Problem(
                f"{SUBSTITUTES} samples in a row can't be read, the last: {self.index.path(sample - 1)}",
                fix="see what is wrong with: stoker inspect DATA",
            )
        return Work(read_seconds=reading, decode_seconds=decoding, bad=bad, missing=tuple(missing))

    def _read(self, sample: int) -> bytes:
        """A sample's bytes. A disk that fails now and then gets a few tries: its sample is not a bad one."""
        for patience in (0.1, 0.5, 2.0, None):
            try:
                return self.index.read(sample)
            except FileNotFoundError:
                raise decode.Unreadable("the file is gone") from None
            except OSError as error:
                if patience is None:
                    raise Problem(
                        f"{self.index.path(sample)} can't be read: {error.strerror}",
                        fix="see that the disk works, then start the same command again: it goes on",
                    ) from None
                time.sleep(patience)
        raise AssertionError("unreachable")

    def _pixels(self, raw: bytes, drawn: NDArray[np.float64] | None) -> decode.Pixels:
        if drawn is None:
            return decode.evaluation_pixels(raw, config=self.image)
        return decode.training_pixels(raw, drawn=drawn, config=self.image)
