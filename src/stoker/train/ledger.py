"""Where the time goes: a clock that is always in exactly one bucket, so that the buckets sum to the wall clock.

This module needs no torch. On a CPU times are the training thread's. On a GPU they are the GPU's own: it comes to the
marks between pieces of work when it has done what was asked before, so that a wait counts only if the GPU waited, too.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Protocol

from stoker.records import BUCKETS, INTERVAL_BUCKETS, LedgerRow, Seconds


class Marks(Protocol):
    """Marks in the work of a GPU: a bucket is entered when the GPU comes to its mark, not when it is asked to."""

    pure_seconds: float | None
    """of a step, when the GPU does not wait for its work to come"""

    def enter(self, bucket: str) -> None:
        """Put a mark behind all work so far."""

    def begin_step(self) -> None:
        """Say that the work of a step begins."""

    def end_step(self) -> None:
        """Say that the step ends at the last mark."""

    def forget(self) -> None:
        """Say that steps are of another kind from here on."""

    def passed(self) -> "Iterable[Passed]":
        """What the GPU has gone through since the last call."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The time between two marks."""

    bucket: str
    seconds: float
    ends_step: bool


class Ledger:
    """A stopwatch with one hand and many dials. By itself it is the training thread's; with marks it is a GPU's."""

    def __init__(self, *, unmeasured: Set[str] = frozenset()) -> None:
        """Starts in setup. Buckets in `unmeasured` stay None, and so does what is added to them."""
        self.unmeasured = frozenset(unmeasured)
        self.totals = dict.fromkeys(BUCKETS, 0.0)
        self.exchanges: list[float] = []
        """seconds of the exchange of gradients, step by step, since they were last split"""
        self._interval = dict.fromkeys(INTERVAL_BUCKETS, 0.0)
        self._bucket = "setup"
        self._since = time.perf_counter()
        self._exchange = 0.0
        self._marks: Marks | None = None

    def follow(self, marks: Marks) -> None:
        """Go by the marks of a GPU from here on."""
        self.switch(self._bucket)
        self._marks = marks
        marks.enter(self._bucket)

    def switch(self, bucket: str) -> str:
        """Enter a bucket, and say which was left."""
        left, self._bucket = self._bucket, bucket
        if self._marks is not None:
            self._marks.enter(bucket)
            return left
        now = time.perf_counter()
        self._count(left, now - self._since)
        self._since = now
        return left

    def begin_step(self, *, is_new: bool = False) -> None:
        """Say that the data of a step is there, and whether its steps are of another kind than those before."""
        if self._marks is not None:
            if is_new:
                self._marks.forget()
            self._marks.begin_step()

    def end_step(self) -> None:
        """Say that a step is over, and with it the exchange of its gradients."""
        if self._marks is not None:
            self._marks.end_step()
            return
        self.exchanges.append(self._exchange)
        self._exchange = 0.0

    def _count(self, bucket: str, seconds: float) -> None:
        self.totals[bucket] += seconds
        if bucket in self._interval:
            self._interval[bucket] += seconds
        if bucket == "comm":
            self._exchange += seconds

    def _settle(self) -> None:
        """Count all time up to now."""
        self.switch(self._bucket)
        for one in self._marks.passed() if self._marks is not None else ():
            self._count(one.bucket, one.seconds)
            if one.ends_step:
                self.exchanges.append(self._exchange)
                self._exchange = 0.0

    @contextlib.contextmanager
    def into(self, bucket: str) -> Iterator[None]:
        """Count what happens inside to a bucket, and then go back to the one before."""
        left = self.switch(bucket)
        try:
            yield
        finally:
            self.switch(left)

    @property
    def pure_seconds(self) -> float | None:
        """of a step on a GPU that does not wait for its work to come; None where that was not measured"""
        return self._marks.pure_seconds if self._marks is not None else None

    def steps_over(self) -> list[float]:
        """Seconds of the exchange of gradients in each step since the last call."""
        self._settle()
        found, self.exchanges = self.exchanges, []
        return found

    def waited(self, seconds: float) -> None:
        """Say that so much of the exchange of gradients was waiting for a slower process."""
        self._move(seconds, "comm", "peer_wait")

    def _move(self, seconds: float, source: str, dest: str) -> None:
        seconds = min(max(seconds, 0.0), self._interval[source])
        for dials in (self._interval, self.totals):
            dials[source] -= seconds
            dials[dest] += seconds

    def interval(self, *, steps: int = 0) -> Seconds:
        """Seconds since the last call, by bucket. So many steps were taken in them."""
        self._settle()
        pure = self.pure_seconds
        if pure is not None and steps:
            # What the GPU took longer than it needs, it waited for its work to come.
            worked = self._interval["transfer"] + self._interval["compute"] + self._interval["optimizer"]
            self._move(worked - steps * pure, "compute", "host")
            self.unmeasured -= {"host"}
        seconds = self.known(self._interval)
        if self._marks is not None and pure is None:
            seconds["host"] = None
        self._interval = dict.fromkeys(INTERVAL_BUCKETS, 0.0)
        return seconds

    def known(self, seconds: dict[str, float]) -> Seconds:
        """The same with None where nothing was measured."""
        return {bucket: None if bucket in self.unmeasured else value for bucket, value in seconds.items()}

    def so_far(self) -> Seconds:
        """Seconds of the whole run, by bucket."""
        self._settle()
        return self.known(self.totals)

    def lose(self, *, since: Seconds) -> None:
        """Count all time since an earlier ledger as lost: what was done in it is done again."""
        self._settle()
        for bucket in BUCKETS:
            if bucket not in ("lost", "down", "rollback"):
                gone = max(0.0, self.totals[bucket] - (since.get(bucket) or 0.0))
                self.totals[bucket] -= gone
                self.totals["lost"] += gone

    def go_on(self, before: Seconds) -> None:
        """Add what earlier starts of the run have used."""
        for bucket, seconds in before.items():
            self.totals[bucket] += seconds or 0.0


def carried(
    *,
    kept: Seconds | None,
    kept_at: float,
    kept_step: int,
    last: LedgerRow | None,
    alive_at: float | None,
    started_at: float,
) -> Seconds:
    """What earlier starts of a run have used, when it goes on from a checkpoint.

    `kept` is the checkpoint's ledger at `kept_at` (without a checkpoint: None, and the first start). What was done
    after it is `lost`, up to the last sign of life; from there to this start the run was `down`.
    """
    base = {bucket: (kept or {}).get(bucket) or 0.0 for bucket in BUCKETS}
    seen, seen_at = base, kept_at
    if last is not None and last.at > kept_at:
        seen, seen_at = {bucket: last.totals.get(bucket) or 0.0 for bucket in BUCKETS}, last.at
        if last.step <= kept_step and kept is not None:
            # Nothing was trained after the checkpoint, so nothing of it is done again.
            base = dict(seen)
    gone = sum(seen[bucket] - base[bucket] for bucket in BUCKETS if bucket not in ("lost", "down"))
    alive_at = min(max(alive_at or seen_at, seen_at), started_at)
    base["lost"] = seen["lost"] + gone + alive_at - seen_at
    base["down"] = seen["down"] + max(0.0, started_at - alive_at)
    return dict(base)
