"""Ledger lines over longer intervals: what a ledger would hold if fewer lines of it had been written. Pure."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from stoker.records import LedgerRow, Seconds

# Seconds: a bucket whose time was moved into another one may end up so much below what it was.
ROUNDING = 1e-6


def apart(old: LedgerRow, new: LedgerRow) -> bool:
    """Whether the later of two lines is of another start, or training went back between them."""
    return new.attempt != old.attempt or new.step < old.step


def widened(rows: Sequence[LedgerRow]) -> tuple[LedgerRow, ...]:
    """Some lines of a ledger, in their order, as if those between them had not been written.

    Steps and seconds are exact, because a line tells how far the run was and where all its time went up to there.
    Samples and the seconds of reading, decoding and writing are told of a line's own interval alone: they are those of
    the line, as many times as it has steps now. A line after another start, or after training went back, stays as it
    is, and so does one whose totals are less than those before it.
    """
    found = list(rows[:1])
    each = rows[0] if rows else None
    for old, new in itertools.pairwise(rows):
        # The last line of a start has no steps to say what one of them takes.
        each = new if new.steps > 0 or each is None or apart(old, new) else each
        seconds = {bucket: passed(old.totals, new.totals, bucket) for bucket in new.seconds}
        if apart(old, new) or any(one is not None and one < -ROUNDING for one in seconds.values()):
            found.append(new)
            continue
        steps = new.step - old.step
        share = steps / each.steps if each.steps > 0 else 0.0
        found.append(
            replace(
                new,
                steps=steps,
                seconds={bucket: None if one is None else max(one, 0.0) for bucket, one in seconds.items()},
                samples=round(each.samples * share),
                read_seconds=each.read_seconds * share,
                decode_seconds=each.decode_seconds * share,
                write_seconds=each.write_seconds * share,
            )
        )
    return tuple(found)


def passed(old: Seconds, new: Seconds, bucket: str) -> float | None:
    """Seconds of a bucket between two lines; None where one of them does not tell."""
    before, after = old.get(bucket), new.get(bucket)
    return None if before is None or after is None else after - before
