"""What is left of a run: its way through the data, and how long the rest of it takes. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.config import Config
from stoker.machine import evidence
from stoker.machine.evidence import STEP_BUCKETS
from stoker.records import LedgerRow, RunRecord

if TYPE_CHECKING:
    from stoker.data.order import Route

# What comes now and then, beside steps.
PAUSES = ("eval", "checkpoint")
# A run that was killed is still called running in its record. Any other end has no future that its pace would tell of.
HOPEFUL = ("running", "stopped")


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The steps of a stage."""

    begin: int
    """the step after which it begins"""
    end: int
    """the step with which it ends"""
    resolution: int
    batch: int


def route(config: Config | None, record: RunRecord | None) -> "Route | None":
    """The way through a run; None where its settings or its data are not known."""
    from stoker.data.order import Route

    count = record.data.get("train_samples") if record is not None else None
    if config is None or type(count) is not int or config.train.batch == "auto" or config.image.resolution <= 0:
        return None  # what is left to Stoker is fixed when a run begins
    atoms = max(config.train.atoms, 1)
    way = Route(count=count, stages=config.stages, atoms=atoms, last_step=config.train.last_step)
    return way if way.steps > 0 else None


def stretches(way: "Route") -> Iterator[Stretch]:
    """The stages of a run in steps."""
    first, begin = 0, 0
    for last, stage, pace in zip(way.ends, way.stages, way.paces):
        end = begin + (last - first) * pace.steps
        yield Stretch(begin=begin, end=end, resolution=stage.resolution, batch=stage.batch)
        first, begin = last, end


def measured(way: "Route", rows: Sequence[LedgerRow], resolution: int) -> list[LedgerRow]:
    """The lines of a ledger whose steps had samples of a resolution."""
    mine = [one for one in stretches(way) if one.resolution == resolution]
    return [row for row in rows if row.steps > 0 and any(one.begin < row.step <= one.end for one in mine)]


def unmeasured(way: "Route | None", rows: Sequence[LedgerRow]) -> tuple[int, ...]:
    """The resolutions still to come of which no step was measured: nothing tells how long these take."""
    if way is None or not rows:
        return ()
    coming = {one.resolution for one in stretches(way) if one.end > rows[-1].step}
    return tuple(sorted(one for one in coming if not measured(way, rows, one)))


def left_seconds(way: "Route | None", rows: Sequence[LedgerRow]) -> float | None:
    """Seconds to a run's end at the rate of its last steps, with what evaluations and checkpoints took up to now.

    A step of another batch takes as long as its samples; None where a resolution is to come that was not measured.
    """
    if way is None or not any(row.steps > 0 for row in rows):
        return None
    totals, step, seconds = rows[-1].totals, rows[-1].step, 0.0
    for one in stretches(way):
        samples = max(one.end - max(one.begin, step), 0) * one.batch
        if not samples:
            continue
        pace = evidence.pace(measured(way, rows, one.resolution) or ())
        if pace is None or not pace.batch:
            return None
        # What writing checkpoints takes from steps, it takes from those to come as well.
        seconds += samples / pace.batch * (pace.step_seconds + pace.crowd_seconds)
    stepping = sum(totals.get(bucket) or 0.0 for bucket in STEP_BUCKETS)
    pauses = sum(totals.get(bucket) or 0.0 for bucket in PAUSES)
    return seconds * (1 + pauses / stepping if stepping else 1)
