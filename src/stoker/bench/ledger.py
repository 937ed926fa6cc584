"""What the ledger and the gauges cost: Stoker's own steps with and without them, in turn, in one process."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from stoker import progress, units
from stoker.bench.ground import Ground, Load
from stoker.bench.spread import Spread, spread
from stoker.bench.step import MOST_STEPS, ROUND_SECONDS, SUITED
from stoker.errors import Problem
from stoker.machine.sampler import Sampler
from stoker.records import BUCKETS, INTERVAL_BUCKETS, Seconds
from stoker.train.ledger import Ledger

__all__ = ["LedgerBench", "Load", "measure"]
# A run reads its gauges every five seconds; a round is shorter, and must hold a reading or two.
GAUGE_SECONDS = 1.0
START_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class LedgerBench:
    """What was found, and on what."""

    model: str
    device: str
    amp: str
    resolution: int
    batch: int
    steps: int
    """of each in a round"""
    with_seconds: Spread
    """of a step, over the rounds"""
    without_seconds: Spread
    ratio: Spread
    """with by without, of neighbouring rounds: 1.01 is 1 % slower"""


class Still:
    """A ledger that keeps no time."""

    pure_seconds: float | None = None

    def switch(self, bucket: str) -> str:
        """Nothing."""
        return bucket

    def into(self, bucket: str) -> contextlib.AbstractContextManager[None]:
        """Nothing."""
        del bucket
        return contextlib.nullcontext()

    def begin_step(self, *, is_new: bool = False) -> None:
        """Nothing."""

    def end_step(self) -> None:
        """Nothing."""

    def steps_over(self) -> list[float]:
        """No exchanges."""
        return []

    def interval(self, *, steps: int = 0) -> Seconds:
        """No time."""
        del steps
        return dict.fromkeys(INTERVAL_BUCKETS, 0.0)

    def so_far(self) -> Seconds:
        """No time."""
        return dict.fromkeys(BUCKETS, 0.0)


@contextlib.contextmanager
def kept(ground: Ground, clock: Any) -> Iterator[None]:
    """Let a run's steps be timed by another clock."""
    before = ground.site
    ground.site = ground.fed.site = ground.book.site = ground.saves.site = replace(before, clock=cast(Ledger, clock))
    try:
        yield
    finally:
        ground.site = ground.fed.site = ground.book.site = ground.saves.site = before


def measure(load: Load, *, rounds: int, show: bool) -> LedgerBench:
    """Take steps with and without the ledger and the gauges in turn, and set their times side by side."""
    if rounds < 1:
        raise Problem(f"rounds is {rounds}", fix="give 1 round or more")
    load = load.suited(SUITED)
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        ground = Ground(load, Path(folder), most_steps=MOST_STEPS)
        with ground.opened():
            ground.seconds(2)
            count = min(max(round(ROUND_SECONDS / ground.seconds(2)), 1), MOST_STEPS)
            ground.seconds(count)
            pairs = []
            for number in range(rounds):
                progress.say(f"round {number + 1} of {rounds}: {units.count_text(count, 'step')} of each", show=show)
                # Another one first each time.
                if number % 2:
                    on, off = with_all(ground, count), without(ground, count)
                else:
                    off, on = without(ground, count), with_all(ground, count)
                pairs.append((on, off))
    return LedgerBench(
        model=ground.config.model.model, device=str(ground.device), amp=load.amp,
        resolution=ground.config.image.resolution, batch=load.batch, steps=count,
        with_seconds=spread(on for on, _ in pairs), without_seconds=spread(off for _, off in pairs),
        ratio=spread(on / off for on, off in pairs),
    )  # fmt: skip


def with_all(ground: Ground, steps: int) -> float:
    """Seconds of a step as any run takes it."""
    path = ground.site.run.gauges_of(0)
    with Sampler(path, rank=0, interval_seconds=GAUGE_SECONDS, gpu_index=None):
        # A run starts its gauges once.
        time.sleep(START_SECONDS)
        return ground.seconds(steps)


def without(ground: Ground, steps: int) -> float:
    """Seconds of a step that nobody times but this."""
    with kept(ground, Still()):
        return ground.seconds(steps)
