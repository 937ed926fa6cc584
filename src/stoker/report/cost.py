"""What a run has cost, and what it will have cost when it is done. Pure."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from stoker.machine import evidence
from stoker.machine.evidence import Evidence

# Work done twice, or to be able to go on with it.
TWICE = ("lost", "rollback", "restore")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of a run's life and their price. What is not known is None, never 0."""

    run_seconds: float | None
    """in which the machine was held: from each start to its end, without the time in which the run was down"""
    down_seconds: float | None
    """between its starts"""
    lost_seconds: float | None
    """of run_seconds, work done twice: lost, rolled back, restored"""
    left_seconds: float | None
    """until it is done, at its pace so far; None where there is none, 0 where it is done"""
    pack_seconds: float | None
    """in which the data was packed; None where it is no pack, or this was not written down"""
    dollars_per_hour: float | None = None
    """as the settings say, or whoever asks"""
    so_far_dollars: float | None = None
    """of run_seconds and pack_seconds (where these are known)"""
    in_all_dollars: float | None = None
    """... and of left_seconds"""
    lost_dollars: float | None = None
    pack_dollars: float | None = None


@dataclass(frozen=True, kw_only=True)
class Held:
    """A start of a run: when a machine was taken, and when it was given back."""

    begin: float
    end: float


def of(found: Evidence, *, steps: int | None, pack_seconds: float | None, now: float) -> Cost:
    """What a run has cost by now. `steps` are those of the whole run."""
    times = list(held(found, now=now))
    cost = Cost(
        run_seconds=sum(one.end - one.begin for one in times) if times else None,
        down_seconds=sum(max(b.begin - a.end, 0.0) for a, b in itertools.pairwise(times)) if times else None,
        lost_seconds=lost_seconds(found),
        left_seconds=left_seconds(found, steps=steps),
        pack_seconds=pack_seconds,
    )
    return priced(cost, found.config.save.dollars_per_hour if found.config is not None else None)


def priced(cost: Cost, dollars_per_hour: float | None) -> Cost:
    """The same times at another price. Packing is left out of the sums where its time is not known."""

    def dollars(*seconds: float | None) -> float | None:
        known = [one for one in seconds if one is not None]
        is_known = dollars_per_hour is not None and len(known) == len(seconds)
        return sum(known) / 3600 * dollars_per_hour if is_known and dollars_per_hour is not None else None

    packing = cost.pack_seconds or 0.0
    return replace(
        cost,
        dollars_per_hour=dollars_per_hour,
        so_far_dollars=dollars(cost.run_seconds, packing),
        in_all_dollars=dollars(cost.run_seconds, packing, cost.left_seconds),
        lost_dollars=dollars(cost.lost_seconds),
        pack_dollars=dollars(cost.pack_seconds),
    )


def held(found: Evidence, *, now: float) -> Iterator[Held]:
    """The starts of a run. One that was killed ends with the last line that tells of it."""
    attempts = found.record.attempts if found.record is not None else ()
    for number, attempt in enumerate(attempts):
        begin, is_last = attempt.started_at, number == len(attempts) - 1
        until = now if is_last else attempts[number + 1].started_at
        end = attempt.ended_at
        if end is None and is_last and found.state == "running":
            end = now
        if end is None:
            signs = [row.at for rows in found.rows.values() for row in rows] + [row.at for row in found.gauges]
            end = max((at for at in signs if begin <= at <= until), default=begin)
        yield Held(begin=begin, end=max(begin, end))


def lost_seconds(found: Evidence) -> float | None:
    """Seconds of work done twice; None where the ledger does not tell."""
    known = [seconds for bucket in TWICE if (seconds := found.totals.get(bucket)) is not None]
    return sum(known) if known else None


def left_seconds(found: Evidence, *, steps: int | None) -> float | None:
    """Seconds until a run is done, with its checkpoints and evaluations, at its pace so far."""
    if found.is_done:
        return 0.0
    rows = found.rows[min(found.rows)] if found.rows else ()
    pace = evidence.pace(rows) if rows else None
    if pace is None or steps is None:
        return None
    return max(steps - rows[-1].step, 0) * pace.whole_seconds
