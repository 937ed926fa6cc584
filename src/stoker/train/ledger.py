"""Where the time goes: a clock that is always in exactly one bucket, so that the buckets sum to the wall clock.

This module needs no torch. Times are the training thread's: on a GPU, work that is still queued is counted where the
thread waits for it.
"""

import contextlib
import time
from collections.abc import Iterator, Set

from stoker.records import BUCKETS, INTERVAL_BUCKETS, LedgerRow, Seconds


class Ledger:
    """A stopwatch with one hand and many dials."""

    def __init__(self, *, unmeasured: Set[str] = frozenset()) -> None:
        """Starts in setup. Buckets in `unmeasured` stay None, and so does what is added to them."""
        self.unmeasured = frozenset(unmeasured)
        self.totals = dict.fromkeys(BUCKETS, 0.0)
        self._interval = dict.fromkeys(INTERVAL_BUCKETS, 0.0)
        self._bucket = "setup"
        self._since = time.perf_counter()

    def switch(self, bucket: str) -> str:
        """Enter a bucket, and say which was left."""
        now = time.perf_counter()
        left = self._bucket
        self.totals[left] += now - self._since
        if left in self._interval:
            self._interval[left] += now - self._since
        self._bucket, self._since = bucket, now
        return left

    @contextlib.contextmanager
    def into(self, bucket: str) -> Iterator[None]:
        """Count what happens inside to a bucket, and then go back to the one before."""
        left = self.switch(bucket)
        try:
            yield
        finally:
            self.switch(left)

    def interval(self) -> Seconds:
        """Seconds since the last call, by bucket."""
        self.switch(self._bucket)
        seconds = self.known(self._interval)
        self._interval = dict.fromkeys(INTERVAL_BUCKETS, 0.0)
        return seconds

    def known(self, seconds: dict[str, float]) -> Seconds:
        """The same with None where nothing was measured."""
        return {bucket: None if bucket in self.unmeasured else value for bucket, value in seconds.items()}

    def so_far(self) -> Seconds:
        """Seconds of the whole run, by bucket."""
        self.switch(self._bucket)
        return self.known(self.totals)

    def lose(self, *, since: Seconds) -> None:
        """Count all time since an earlier ledger as lost: what was done in it is done again."""
        self.switch(self._bucket)
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
