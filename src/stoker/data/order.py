"""Which samples when: pure arithmetic. The order of an epoch is a keyed permutation, so it is neither stored nor drawn.

A step takes the next `batch` positions of the epoch and cuts them into atoms. What an atom holds does not depend on how
many processes there are, nor on where a run was interrupted.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stoker.config.stages import Stage
from stoker.data import random

# Eight rounds of a Feistel network; four already mix well (Luby and Rackoff), and rounds are cheap.
ROUNDS = 8
# Samples that a windowed order keeps together: some ten megabytes of packed pictures, read in one go.
STRETCH = 256
# Positions are permuted this many at a time: numpy's cost a call is then shared by many samples.
BLOCK = 4096


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How an epoch is cut into steps, and a step into atoms."""

    count: int
    batch: int
    atoms: int
    last_step: Literal["drop", "keep"]

    @functools.cached_property
    def steps(self) -> int:
        """steps in an epoch"""
        whole = self.count // self.batch
        return whole + (self.samples(whole * self.batch) > 0)

    def samples(self, position: int) -> int:
        """samples of the step that begins at a position; 0 where the epoch is over"""
        rest = self.count - position
        if rest >= self.batch:
            return self.batch
        # Batch norm cannot work with one sample, so a kept last step gives every atom two at least.
        return rest if self.last_step == "keep" and rest >= 2 * self.atoms else 0

    def route(self, *, epochs: int, resolution: int) -> "Route":
        """A run of so many epochs at this pace."""
        stage = Stage(resolution=resolution, batch=self.batch, epochs=epochs)
        return Route(count=self.count, stages=(stage,), atoms=self.atoms, last_step=self.last_step)


@dataclass(frozen=True, kw_only=True)
class Route:
    """The way through a run: its stages, each cutting its epochs into steps at a pace of its own."""

    count: int
    stages: tuple[Stage, ...]
    atoms: int
    last_step: Literal["drop", "keep"]

    @functools.cached_property
    def ends(self) -> tuple[int, ...]:
        """the epoch at which each stage ends"""
        return tuple(itertools.accumulate(stage.epochs for stage in self.stages))

    @property
    def epochs(self) -> int:
        """epochs of the run"""
        return self.ends[-1]

    def number(self, epoch: int) -> int:
        """which stage an epoch belongs to; the end of the run belongs to the last"""
        return min(bisect.bisect_right(self.ends, epoch), len(self.stages) - 1)

    def stage(self, epoch: int) -> Stage:
        """The stage of an epoch."""
        return self.stages[self.number(epoch)]

    @functools.cached_property
    def paces(self) -> tuple[Pace, ...]:
        """how each stage cuts its epochs"""
        return tuple(
            Pace(count=self.count, batch=stage.batch, atoms=self.atoms, last_step=self.last_step)
            for stage in self.stages
        )

    def pace(self, epoch: int) -> Pace:
        """How an epoch is cut."""
        return self.paces[self.number(epoch)]

    def atom(self, epoch: int) -> int:
        """samples of an atom at most"""
        return -(-self.stage(epoch).batch // self.atoms)

    def step(self, epoch: int, position: int) -> int:
        """steps from the beginning of the run to a position, at these paces"""
        number, begin, before = self.number(epoch), 0, 0
        for end, pace in zip(self.ends[:number], self.paces):
            before += (end - begin) * pace.steps
            begin = end
        return before + (epoch - begin) * self.paces[number].steps + position // self.paces[number].batch

    @property
    def steps(self) -> int:
        """steps of the whole run"""
        return self.step(self.epochs, 0)

    def tick(self, epoch: int, position: int) -> float:
        """how far a run is, in steps of its first stage: the time that a schedule goes by, equal for equal epochs"""
        pace = self.pace(epoch)
        return epoch * self.paces[0].steps + position // pace.batch * (self.paces[0].steps / max(1, pace.steps))


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The samples of one atom, or of one batch of an evaluation."""

    epoch: int
    positions: NDArray[np.int64]
    """places in the epoch; every random draw of a sample is keyed by its place"""
    samples: NDArray[np.int64]
    """places in the index"""
    share: float = 1.0
    """of the step's samples"""
    coming: tuple[tuple[int, int], ...] = ()
    """first and last samples of stretches of the index that will be read soon"""
    resolution: int = 0
    """pixels a side; 0 is what the settings of evaluation say"""


def permuted(positions: NDArray[np.int64], *, count: int, seed: int, epoch: int, window: int = 0) -> NDArray[np.int64]:
    """The samples at some positions of an epoch's order: a permutation of range(count) keyed by (seed, epoch, window).

    A Feistel network over rows x columns >= count with addition modulo (Black and Rogaway, "Ciphers with arbitrary
    finite domains", 2002); what falls outside of count walks on until it falls inside.
    """
    rows = math.isqrt(max(count - 1, 0)) + 1
    columns = -(-count // rows)
    keys = random.words(seed, epoch=epoch, positions=np.array([window]), purpose=random.ORDER, count=ROUNDS)[0]
    placed = scrambled(positions.astype(np.uint64), rows=rows, columns=columns, keys=keys)
    while (outside := placed >= count).any():
        placed[outside] = scrambled(placed[outside], rows=rows, columns=columns, keys=keys)
    return placed.astype(np.int64)


def scrambled(places: NDArray[np.uint64], *, rows: int, columns: int, keys: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """One pass of the Feistel network over row and column."""
    row, column = np.divmod(places, np.uint64(columns))
    for number, key in enumerate(keys):
        if number % 2 == 0:
            row = (row + mixed(column, key)) % np.uint64(rows)
        else:
            column = (column + mixed(row, key)) % np.uint64(columns)
    return row * np.uint64(columns) + column


def mixed(values: NDArray[np.uint64], key: np.uint32) -> NDArray[np.uint64]:
    """A well-mixed 32-bit function of each value (constants: Ellis, "lowbias32", 2018)."""
    x = values.astype(np.uint32) ^ key
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return (x ^ (x >> np.uint32(16))).astype(np.uint64)


def cut(start: int, size: int, parts: int) -> list[tuple[int, int]]:
    """The (start, stop) of each part when `size` positions are cut as evenly as can be."""
    return [(start + size * k // parts, start + size * (k + 1) // parts) for k in range(parts)]


def training_plans(
    route: Route, *, seed: int, epoch: int, position: int, rank: int, world: int, window: int = 0
) -> Iterator[Plan]:
    """The atoms that process `rank` of `world` works on, from a position to the end of the run.

    With a window the order is shuffled within windows of so many samples, which are made of whole stretches of the
    index: for data that is larger than memory, on disks that are slow at reading here and there.
    """
    for current in range(epoch, route.epochs):
        pace, resolution = route.pace(current), route.stage(current).resolution
        drawn: Drawn | Windowed = Drawn(count=pace.count, seed=seed, epoch=current)
        if 0 < window < pace.count:
            drawn = Windowed(count=pace.count, seed=seed, epoch=current, window=window)
        while size := pace.samples(position):
            for start, stop in cut(position, size, pace.atoms)[rank::world]:
                yield Plan(
                    epoch=current,
                    positions=np.arange(start, stop),
                    samples=drawn.at(start, stop),
                    share=(stop - start) / size,
                    coming=drawn.coming(start, stop),
                    resolution=resolution,
                )
            position += size
        position = 0


def evaluation_plans(count: int, *, batch: int, rank: int, world: int) -> Iterator[Plan]:
    """Every sample once, over all processes together, in the order of the index."""
    for number in range(rank, -(-count // batch), world):
        places = np.arange(number * batch, min((number + 1) * batch, count))
        yield Plan(epoch=0, positions=places, samples=places)


class Drawn:
    """An epoch's order, a block at a time. Remembers one block; holds no state that matters."""

    def __init__(self, *, count: int, seed: int, epoch: int) -> None:
        self.count, self.seed, self.epoch = count, seed, epoch
        self.start = 0
        self.block = np.empty(0, np.int64)

    def at(self, start: int, stop: int) -> NDArray[np.int64]:
        """The samples at the positions from start to stop."""
        if start < self.start or stop > self.start + len(self.block):
            last = min(max(start + BLOCK, stop), self.count)
            self.start = start
            self.block = permuted(np.arange(start, last), count=self.count, seed=self.seed, epoch=self.epoch)
        return self.block[start - self.start : stop - self.start]

    def coming(self, start: int, stop: int) -> tuple[tuple[int, int], ...]:
        """Nothing: samples lie anywhere, and each is asked for by itself."""
        del start, stop
        return ()


class Windowed:
    """An epoch's order in windows: stretches of the index in a keyed order, and shuffled within a window of them."""

    def __init__(self, *, count: int, seed: int, epoch: int, window: int) -> None:
        self.seed, self.epoch = seed, epoch
        stretches = -(-count // STRETCH)
        # Keyed by a window that never is one.
        self.order = permuted(np.arange(stretches), count=stretches, seed=seed, epoch=epoch, window=2**62)
        sizes = np.minimum(count - self.order * STRETCH, STRETCH)
        self.ends = np.cumsum(sizes)
        """where each stretch ends, in positions of the epoch"""
        self.per_window = max(1, window // STRETCH)
        self.window_ends = np.append(self.ends[self.per_window - 1 : -1 : self.per_window], count)
        self.told = -1
        self.number = -1
        self.block = np.empty(0, np.int64)

    def at(self, start: int, stop: int) -> NDArray[np.int64]:
        """The samples at the positions from start to stop."""
        first, last = np.searchsorted(self.window_ends, [start, stop - 1], side="right")
        found = []
        for number in range(int(first), int(last) + 1):
            begin = int(self.window_ends[number - 1]) if number else 0
            if number != self.number:
                self.number, self.block = number, self._window(number, begin)
            found.append(self.block[max(start - begin, 0) : stop - begin])
        return np.concatenate(found)

    def _window(self, number: int, begin: int) -> NDArray[np.int64]:
        """The samples of a window, in their order."""
        count = int(self.window_ends[number]) - begin
        places = begin + permuted(np.arange(count), count=count, seed=self.seed, epoch=self.epoch, window=number + 1)
        stretch = np.searchsorted(self.ends, places, side="right")
        within = places - np.where(stretch > 0, self.ends[stretch - 1], 0)
        return self.order[stretch] * STRETCH + within

    def coming(self, start: int, stop: int) -> tuple[tuple[int, int], ...]:
        """The stretches of these windows and the next, said once, when a window's first samples are asked for."""
        begin, end = np.searchsorted(self.window_ends, [start, stop - 1], side="right")
        first = max(int(begin), self.told + 1)
        last = min(int(end) + 1, len(self.window_ends) - 1)
        self.told = max(self.told, last)
        stretches = range(first * self.per_window, min((last + 1) * self.per_window, len(self.order)))
        count = int(self.ends[-1])
        return tuple(
            (int(self.order[k]) * STRETCH, min((int(self.order[k]) + 1) * STRETCH, count) - 1) for k in stretches
        )
