"""Order + index + decode + threads -> batches, made ahead. Its whole state is the position that its plans began at.

Files are read, not mapped: a mapped file that shrinks or a disk that fails would end the process, reading could not be
told from decoding, and resident memory would grow with the data (docs/decisions/0003).
"""

import collections
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.config import AugmentConfig, ImageConfig
from stoker.data import augment, decode, mix, native
from stoker.data.index import OTHER, Index
from stoker.data.mix import Mix
from stoker.data.order import Plan
from stoker.errors import Problem

# Samples a Pillow thread takes at a time: few enough to share a batch evenly, many enough to hide the cost of a task.
CHUNK = 4
# Pillow's threads share the interpreter's lock: more than these are slower, not faster (docs/log.md, 2026-11-15).
MOST_PILLOW_THREADS = 4
# A run of so many unreadable neighbours is no accident.
SUBSTITUTES = 100
# What a decode thread holds beside the batch and a sample's bytes: tables, some lines, libjpeg's own.
THREAD_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Pictures as bytes (count x height x width x 3) and their labels, on the host."""

    plan: Plan
    pixels: torch.Tensor
    labels: torch.Tensor
    mix: Mix | None = None
    """what is to be done to the pictures on the device"""


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """How pictures become pixels of one size, for Pillow and for C++."""

    image: ImageConfig
    look: native.Look


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a Pillow thread did on a part of a batch."""

    read_seconds: float
    decode_seconds: float
    bad: dict[int, str]
    """unreadable samples, by their place in the index, with the reason"""
    missing: tuple[int, ...]
    """rows of the batch that have no picture"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pending:
    """A batch in the making: most of it by native threads, the rest by Pillow's."""

    plan: Plan
    pixels: torch.Tensor
    labels: torch.Tensor
    mix: Mix | None
    ticket: native.Ticket | None
    """what native threads do; None without them, and once they are done"""
    parts: list[Future[Work]]


class Loader:
    """Batches in the order of their plans. The same pixels come out for any number of threads.

    In training an unreadable sample is replaced by the next one of the index that can be read; in evaluation it is left
    out, so that every readable sample counts once. A plan's resolution is the size of its pictures, so that batches of
    another size follow without a gap; where a plan has none, it is that of the settings.
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
        augment: AugmentConfig | None = None,
    ) -> None:
        assert image.resolution > 0, "the settings do not say yet how large pictures are"
        self.index, self.plans, self.image, self.seed, self.pin = index, plans, image, seed, pin
        self.augment = augment
        self.read_seconds = 0.0
        self.decode_seconds = 0.0
        self.bad: dict[int, str] = {}
        self.threads, self._ahead = threads, ahead
        self._views: dict[int, View] = {}
        self._engine = native.Engine(index, threads=threads) if native.library() is not None else None
        self._pool = ThreadPoolExecutor(min(threads, MOST_PILLOW_THREADS), thread_name_prefix="decode")
        self._pending: collections.deque[Pending] = collections.deque()

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Batch:
        self._begin()
        if not self._pending:
            raise StopIteration
        return self._finished(self._handed_on(self._pending.popleft()))

    def ready(self, seconds: float) -> bool:
        """Whether the next batch is there, or the end, waiting at most so long: who waits can look up in between."""
        until = time.monotonic() + seconds
        self._begin()
        if not self._pending:
            return True
        pending = self._pending[0]
        if self._engine is not None and pending.ticket is not None:
            if not self._engine.poll(pending.ticket, seconds=seconds):
                return False
            self._pending[0] = pending = self._handed_on(pending)
        return not futures.wait(pending.parts, timeout=max(until - time.monotonic(), 0)).not_done

    def close(self) -> None:
        """End the threads; what was made ahead is dropped."""
        if self._engine is not None:
            self._engine.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()

    @property
    def is_training(self) -> bool:
        """whether samples are cropped and flipped at random"""
        return self.seed is not None

    def most_bytes(self, pixels: int) -> int:
        """Memory that batches of so many pixels take at most, those made ahead and the one in use included.

        A thread has a sample's bytes twice: as they are read, and without stuffing. Progressive JPEGs take more: all
        their coefficients are kept.
        """
        largest = int(self.index.length.max(initial=0))
        return (self._ahead + 2) * pixels * 3 + self.threads * (2 * largest + THREAD_BYTES)

    def _view(self, plan: Plan) -> View:
        own = self.image.resolution if self.is_training else self.image.eval_resolution or self.image.resolution
        side = plan.resolution or own
        if side not in self._views:
            image = replace(self.image, resolution=side, eval_resolution=side)
            self._views[side] = View(image=image, look=native.look(image, is_random=self.is_training))
        return self._views[side]

    def _begin(self) -> None:
        """Begin as many batches as are made ahead."""
        while len(self._pending) <= self._ahead and (plan := next(self.plans, None)) is not None:
            self._pending.append(self._begun(plan))

    def _begun(self, plan: Plan) -> Pending:
        view, count = self._view(plan), len(plan.samples)
        side = view.image.resolution
        # Pinned memory lets the copy to a GPU run beside its work; torch reuses it once the copy is over.
        pixels = torch.empty((count, side, side, 3), dtype=torch.uint8, pin_memory=self.pin)
        labels = torch.empty(count, dtype=torch.int64, pin_memory=self.pin)
        labels.numpy()[:] = self.index.label[plan.samples]
        drawn = None
        if self.augment is not None and self.seed is not None:
            drawn = mix.drawn(self.augment, seed=self.seed, epoch=plan.epoch, positions=plan.positions, resolution=side)
        if self._engine is None:
            return Pending(plan=plan, pixels=pixels, labels=labels, mix=drawn, ticket=None,
                           parts=self._by_pillow(plan, np.arange(count), pixels, labels))  # fmt: skip
        for first, last in plan.coming:
            self._engine.will_need(first, last)
        ticket = self._engine.submit(plan, pixels.numpy(), seed=self.seed or 0, look=view.look)
        others = np.flatnonzero(self.index.codec[plan.samples] == OTHER)
        parts = self._by_pillow(plan, others, pixels, labels)
        return Pending(plan=plan, pixels=pixels, labels=labels, mix=drawn, ticket=ticket, parts=parts)

    def _by_pillow(
        self, plan: Plan, rows: NDArray[np.int64], pixels: torch.Tensor, labels: torch.Tensor
    ) -> list[Future[Work]]:
        """Begin some rows of a batch."""
        chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        return [self._pool.submit(self._work, plan, chunk, pixels.numpy(), labels.numpy()) for chunk in chunks]

    def _handed_on(self, pending: Pending) -> Pending:
        """A batch once native threads are done. Pillow has the last word on what they refuse."""
        if self._engine is None or pending.ticket is None:
            return pending
        spent = self._engine.wait(pending.ticket)
        self.read_seconds += spent.read_seconds
        self.decode_seconds += spent.decode_seconds
        refused = (pending.ticket.status != 0) & (self.index.codec[pending.plan.samples] != OTHER)
        more = self._by_pillow(pending.plan, np.flatnonzero(refused), pending.pixels, pending.labels)
        return replace(pending, ticket=None, parts=pending.parts + more)

    def _finished(self, pending: Pending) -> Batch:
        pixels, labels = pending.pixels, pending.labels
        missing: set[int] = set()
        for part in pending.parts:
            work = part.result()
            self.read_seconds += work.read_seconds
            self.decode_seconds += work.decode_seconds
            self.bad.update(work.bad)
            missing.update(work.missing)
        if missing:
            kept = torch.tensor([row for row in range(len(labels)) if row not in missing], dtype=torch.int64)
            pixels, labels = pixels[kept], labels[kept]
        return Batch(plan=pending.plan, pixels=pixels, labels=labels, mix=pending.mix)

    def _work(self, plan: Plan, rows: NDArray[np.int64], pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Work:
        """Fill some rows of a batch. Runs in a Pillow thread."""
        reading = decoding = 0.0
        bad: dict[int, str] = {}
        missing: list[int] = []
        drawn, image = None, self._view(plan).image
        if self.seed is not None:
            drawn = augment.draws(self.seed, epoch=plan.epoch, positions=plan.positions[rows])
        for number, row in enumerate(rows.tolist()):
            sample = int(plan.samples[row])
            for _ in range(SUBSTITUTES if drawn is not None else 1):
                began = time.perf_counter()
                between = began
                try:
                    raw = self._read(sample)
                    between = time.perf_counter()
                    picture = decode.opened_sample(self.index, sample, raw)
                    if drawn is None:
                        pixels[row] = decode.evaluation_pixels(picture, config=image)
                    else:
                        pixels[row] = decode.training_pixels(picture, drawn=drawn[number], config=image)
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
                f"{SUBSTITUTES} samples in a row can't be read, the last: {self.index.place(sample - 1)}",
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
                        f"{self.index.place(sample)} can't be read: {error.strerror}",
                        fix="see that the disk works, then start the same command again: it goes on",
                    ) from None
                time.sleep(patience)
        raise AssertionError("unreachable")
