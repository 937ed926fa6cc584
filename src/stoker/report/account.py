"""All that a run's folder tells, read once, whatever state it is in: reports and pages are made of it."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker import checkpoint, lines, records
from stoker.errors import Problem
from stoker.machine import evidence, verdict
from stoker.machine.evidence import Evidence
from stoker.machine.verdict import Verdict
from stoker.plan import history
from stoker.plan.history import Past
from stoker.records import Event, Exhibit, MetricRow
from stoker.report import cost, remainder
from stoker.report.cost import Cost
from stoker.runs import Run

# What lines of an evaluation hold, and no others.
EVALUATION = b'"kind":"eval"'


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint."""

    step: int
    at: float
    """when it was written, in seconds since 1970"""
    parts: dict[str, int]
    """bytes by file; empty where its manifest can't be read"""
    names: tuple[str, ...] = ()
    """latest, best, epoch_N"""
    torn: str | None = None
    """what is wrong with it"""


@dataclass(frozen=True, kw_only=True)
class Account:
    """A run, as its files tell it."""

    name: str
    at: float
    """when it was gathered, in seconds since 1970"""
    evidence: Evidence
    """ledger, gauges, record, settings, machine and plan; long ledgers thinned"""
    verdict: Verdict
    cost: Cost
    training: tuple[MetricRow, ...] = ()
    """scores while training; thinned where they are many"""
    evaluations: tuple[MetricRow, ...] = ()
    events: tuple[Event, ...] = ()
    """the last ones; all of them, unless there are thousands"""
    event_count: int = 0
    """lines of events.jsonl"""
    checkpoints: tuple[Saved, ...] = ()
    """the oldest first"""
    exhibits: tuple[Exhibit, ...] = ()
    past: Past | None = None
    """what was planned and what it took, where it is done and had a plan"""
    code: dict[str, Any] = field(default_factory=dict)
    """version, commit, local changes and packages of the last start"""
    steps: int | None = None
    """of the whole run, as its settings and data make them; None where these are not known"""
    missing: tuple[str, ...] = ()
    """what could not be read, and what to do about it"""

    @property
    def folder(self) -> Path:
        """where the run is"""
        return self.evidence.folder


def gather(run: Run) -> Account:
    """Everything that a run's files tell. What is not there or can't be read is listed as missing."""
    found, now = verdict.sensible(evidence.gather(run)), time.time()
    missing = list(found.missing)
    scores = lines.sampled(run.metrics, MetricRow, evidence.MOST_ROWS)
    # They are few among many, and each of them counts.
    held_out = lines.holding(run.metrics, MetricRow, EVALUATION) if scores.is_thinned else scores
    events = lines.last(run.events, Event, evidence.MOST_ROWS)
    missing += [*scores.told, *events.told]
    way = remainder.route(found.config, found.record)
    checkpoints, exhibits, planned = saved(run, missing), shown(run, missing), past(run, missing)
    code = evidence.read_json(run.code, missing)
    return Account(
        name=run.folder.resolve().name,
        at=now,
        evidence=found,
        verdict=verdict.judge(found),
        cost=cost.of(found, pack_seconds=pack_seconds(found), now=now),
        training=tuple(measured(row) for row in scores.rows if row.kind == "train"),
        evaluations=tuple(measured(row) for row in held_out.rows if row.kind == "eval"),
        events=events.rows,
        event_count=events.count,
        checkpoints=checkpoints,
        exhibits=exhibits,
        past=planned,
        code=code,
        steps=way.steps if way is not None else None,
        missing=tuple(missing),
    )


def pack_seconds(found: Evidence) -> float | None:
    """Seconds in which the data was packed; None where it is no pack, or this was not written down."""
    if found.config is None or found.packed is None:
        return None
    seconds: Any = evidence.read_json(Path(found.config.data.data) / "time.json").get("seconds")
    return float(seconds) if records.fits(seconds, float) else None


def past(run: Run, missing: list[str]) -> Past | None:
    """What was planned and what it took; None where one of them is not known."""
    try:
        return history.past(run)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError):
        missing.append(f"the plan: {run.plan} holds something else")
        return None


def measured(row: MetricRow) -> MetricRow:
    """The same scores without those that were no number, as after a divergence: a line holds null in their place."""
    return replace(row, scores={name: score for name, score in row.scores.items() if score is not None})


def saved(run: Run, missing: list[str]) -> tuple[Saved, ...]:
    """The checkpoints that are there, whole or not."""
    names = {name: step for name, step in checkpoint.named(run).items() if name != "sound"}
    found = []
    for step in sorted(checkpoint.steps(run)):
        folder = checkpoint.folder(run, step)
        parts, torn = {}, None
        try:
            parts = {name: entry["bytes"] for name, entry in checkpoint.manifest_of(folder).items()}
            checkpoint.verify(folder, hashes=False)
            at = (folder / checkpoint.MANIFEST).stat().st_mtime
        except (checkpoint.Torn, OSError) as error:
            torn = str(error)
            if not folder.exists():
                continue  # it has just given way to a newer one
            at = folder.stat().st_mtime
        mine = tuple(name for name, named in names.items() if named == step)
        found.append(Saved(step=step, at=at, parts=parts, names=mine, torn=torn))
    there = {one.step for one in found}
    missing += [f"the checkpoint of step {step} that {name} names" for name, step in names.items() if step not in there]
    missing += [f"a whole checkpoint of step {one.step}, because {one.torn}" for one in found if one.torn is not None]
    return tuple(found)


def shown(run: Run, missing: list[str]) -> tuple[Exhibit, ...]:
    """What the task shows, by the names of the files."""
    found = []
    for path in sorted(run.exhibits.glob("*.json")):
        try:
            found.append(records.read_exhibit(path))
        except (OSError, Problem) as error:
            missing.append(f"an exhibit, because {evidence.reason(error)}")
    return tuple(found)
