"""What a run has cost, and what it will have cost when it is done. Pure."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from stoker.errors import Problem
from stoker.machine.evidence import Evidence
from stoker.report import remainder

# Work that was done for nothing; and what later starts did again, which the first one needs anyway.
GONE, AGAIN = ("lost", "rollback"), ("restore", "setup", "compile")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of a run's life and their price. What is not known is None, never 0."""

    run_seconds: float | None
    """in which the machine was held: from each start to its end, without the time in which the run was down"""
    down_seconds: float | None
    """between its starts"""
    lost_seconds: float | None
    """of run_seconds, lost work: done for nothing, or by later starts only to be able to go on"""
    left_seconds: float | None
    """until it is done, at its pace so far; 0 where it is done, None where that is not known or it has no future"""
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


def of(found: Evidence, *, pack_seconds: float | None, now: float) -> Cost:
    """What a run has cost by now."""
    times = list(held(found, now=now))
    cost = Cost(
        run_seconds=sum(one.end - one.begin for one in times) if times else None,
        down_seconds=sum(max(b.begin - a.end, 0.0) for a, b in itertools.pairwise(times)) if times else None,
        lost_seconds=lost_seconds(found),
        left_seconds=left_seconds(found),
        pack_seconds=pack_seconds,
    )
    return priced(cost, found.config.save.dollars_per_hour if found.config is not None else None)


def priced(cost: Cost, dollars_per_hour: float | None) -> Cost:
    """The same times at another price. Packing is left out of the sums where its time is not known."""
    if dollars_per_hour is not None and not 0 <= dollars_per_hour < math.inf:
        raise Problem(f"an hour costs {dollars_per_hour:g} dollars", fix="give 0 or more")

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


def offered(cost: Cost, dollars_per_hour: float | None) -> Cost:
    """The same times at the price that whoever asks gives, where the settings do not say."""
    asked = priced(cost, dollars_per_hour)
    return asked if cost.dollars_per_hour is None else cost


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


def setbacks(found: Evidence) -> dict[str, float]:
    """Seconds of lost work by bucket; what was not measured is not there, and nothing is where there is no ledger."""
    rows = found.rows[min(found.rows)] if found.rows else ()
    ends = {row.attempt: row.totals for row in rows}
    if not ends:
        return {}
    first, last = ends[min(ends)], ends[max(ends)]
    gone = {bucket: seconds for bucket in GONE if (seconds := last.get(bucket)) is not None}
    again = {
        bucket: max(seconds - (first.get(bucket) or 0.0), 0.0)
        for bucket in AGAIN
        if len(ends) > 1 and (seconds := last.get(bucket)) is not None
    }
    return gone | again


def lost_seconds(found: Evidence) -> float | None:
    """Seconds of lost work; None where the ledger does not tell."""
    known = setbacks(found)
    return sum(known.values()) if known else None


def left_seconds(found: Evidence) -> float | None:
    """Seconds until a run is done, with its checkpoints and evaluations; None where it does not go on as it is."""
    if found.record is None or found.is_done:
        return 0.0 if found.is_done else None
    if found.record.status not in remainder.HOPEFUL:
        return None
    rows = found.rows[min(found.rows)] if found.rows else ()
    return remainder.left_seconds(remainder.route(found.config, found.record), rows)
