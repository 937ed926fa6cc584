"""A run at a glance: what it is doing, how far it is and how well it does. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.config import Config
from stoker.machine import evidence
from stoker.records import LedgerRow, MetricRow, RunRecord
from stoker.report import remainder, summary

if TYPE_CHECKING:
    from stoker.data.order import Route

# States in which something goes on.
LIVE = ("running", "starting")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was read of a run. Of long files, only the end."""

    folder: Path
    name: str
    state: str
    """what the run is doing, in words"""
    is_held: bool
    """whether a process trains it now"""
    record: RunRecord | None = None
    config: Config | None = None
    """the settings, with those that were left to Stoker"""
    plan: dict[str, Any] | None = None
    ledger: tuple[LedgerRow, ...] = ()
    scores: tuple[MetricRow, ...] = ()
    missing: tuple[str, ...] = ()
    """what could not be read, in words"""

    @property
    def training(self) -> tuple[MetricRow, ...]:
        """scores while training"""
        return tuple(row for row in self.scores if row.kind == "train")

    @property
    def evaluations(self) -> tuple[MetricRow, ...]:
        """scores on held-out samples"""
        return tuple(row for row in self.scores if row.kind == "eval")


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A run as a line of a list. What is not known is None."""

    name: str
    state: str
    """one word: running, starting, done, stopped, killed, diverged, oom, timeout, failed, unreadable"""
    said: str
    """the same in words"""
    step: int
    steps: int | None
    epoch: int | None
    """that it is in, counted from 0"""
    epochs: int | None
    left_seconds: float | None
    is_planned: bool
    """whether the time left comes from the plan, as nothing is measured yet"""
    loss: float | None
    """of training, at its last line"""
    scores: dict[str, float]
    """of training, at its last line"""
    held_out: dict[str, float]
    """of the last evaluation"""
    best: dict[str, float]
    """of the best evaluation that is known"""
    samples_per_second: float | None
    """of its last steps, without evaluations and checkpoints"""
    wait_share: float | None
    """of its last steps, that went by waiting for data"""
    step_seconds: float | None
    began_at: float | None
    heard_at: float | None
    """when it last wrote a line, in seconds since 1970"""
    model: str | None
    data: str | None
    device: str | None
    host: str | None
    processes: int | None
    starts: int


def glance(facts: Facts) -> Glance:
    """What is to be seen of a run at once."""
    record, rows = facts.record, facts.ledger
    last = rows[-1] if rows else None
    training, evaluations, way = facts.training, facts.evaluations, route(facts)
    step = last.step if last is not None else 0
    pace = evidence.pace(rows) if rows else None
    state, attempts = word(facts), record.attempts if record is not None else ()
    left = remainder.left_seconds(way, rows) if state in LIVE else None
    # What the plan says is of the whole run: that of one which has taken steps is less.
    planned = planned_seconds(facts) if state in LIVE and pace is None else None
    config, step_seconds = facts.config, pace.step_seconds if pace is not None else None
    return Glance(
        name=facts.name,
        state=state,
        said=facts.state,
        step=step,
        steps=way.steps if way is not None else None,
        epoch=place(way, step),
        epochs=way.epochs if way is not None else None,
        left_seconds=left if left is not None else planned,
        is_planned=left is None and planned is not None,
        loss=training[-1].scores.get("loss") if training else None,
        scores=training[-1].scores if training else {},
        held_out=evaluations[-1].scores if evaluations else {},
        best=summary.numbers(summary.best_of(record, evaluations)),
        samples_per_second=pace.batch / step_seconds if pace is not None and step_seconds else None,
        wait_share=pace.seconds.get("data_wait", 0.0) / step_seconds if pace is not None and step_seconds else None,
        step_seconds=step_seconds,
        began_at=attempts[0].started_at if attempts else None,
        heard_at=last.at if last is not None else None,
        model=config.model.model if config is not None else None,
        data=config.data.data if config is not None else None,
        device=last.device if last is not None else None,
        host=(last.host if last is not None else None) or (attempts[-1].host if attempts else None),
        processes=attempts[-1].world if attempts else None,
        starts=len(attempts),
    )


def word(facts: Facts) -> str:
    """What a run is doing, in one word."""
    record = facts.record
    if record is None:
        return "unreadable"
    if record.status != "running":
        return record.status if record.attempts else "new"
    if not facts.is_held:
        return "killed"
    has_lines = bool(facts.ledger) and facts.ledger[-1].attempt >= len(record.attempts)
    return "running" if has_lines else "starting"


def route(facts: Facts) -> "Route | None":
    """The way through a run; None where its settings or its data are not known."""
    return remainder.route(facts.config, facts.record)


def place(way: "Route | None", step: int) -> int | None:
    """The epoch of a step; the end of a run belongs to its last."""
    if way is None:
        return None
    begin, before = 0, 0
    for end, pace in zip(way.ends, way.paces):
        steps = (end - begin) * pace.steps
        if step < before + steps:
            return begin + (step - before) // pace.steps
        begin, before = end, before + steps
    return way.epochs - 1


def planned_seconds(facts: Facts) -> float | None:
    """What the plan of a run says it takes."""
    try:
        return float((facts.plan or {})["forecast"]["total"]["likely"])
    except (KeyError, TypeError, ValueError):
        return None
