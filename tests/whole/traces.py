"""What tests read from a run folder, and how they meddle with a run while it goes."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoker import api, checkpoint, records, runs
from stoker.config import Config
from stoker.records import Event, LedgerRow, MetricRow, RunRecord
from stoker.runs import Run
from stoker.tasks.classify import Classify
from stoker.train import step


@dataclass(frozen=True, kw_only=True)
class Visit:
    """The samples that went through the network together, in training."""

    epoch: int
    positions: tuple[int, ...]
    samples: tuple[int, ...]


def begun(folder: Path, config: Config) -> Run:
    return runs.create(folder, config, resumed_from=None)


def undisturbed(folder: Path, config: Config) -> Run:
    run = begun(folder, config)
    assert api.work(folder, show=False).record.status == "done"
    return run


def digests(run: Run) -> dict[str, str]:
    """What must be the same, bit for bit: weights, optimiser state, metrics, and what is best."""
    last = checkpoint.find(run, "latest")
    files = [
        last / checkpoint.MODEL,
        last / checkpoint.OPTIMIZER,
        run.metrics,
        run.pointer("best"),
        run.pointer("latest"),
    ]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def content(folder: Path) -> dict[str, str]:
    """The hash of every file in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def record(run: Run) -> RunRecord:
    return records.read_record(run.record)


def events(run: Run, kind: str) -> list[str]:
    return [event.what for event in records.read_lines(run.events, Event) if event.kind == kind]


def lines(run: Run, kind: str = "train") -> list[MetricRow]:
    return [row for row in records.read_lines(run.metrics, MetricRow) if row.kind == kind]


def last_ledger(run: Run) -> LedgerRow:
    return records.read_lines(run.ledger, LedgerRow)[-1]


def assert_the_ledger_is_the_wall_clock(run: Run) -> None:
    """Over all starts, the buckets sum to the time from the first start to the last line."""
    last = last_ledger(run)
    wall = last.at - record(run).attempts[0].started_at
    assert sum(value or 0.0 for value in last.totals.values()) == pytest.approx(wall, rel=0.01)
    assert all(value is None or value >= 0 for value in last.totals.values())


def at_update(monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], None]) -> None:
    """Do something with the gear before each update of the weights."""
    update = step.update

    def acted(gear: Any, **values: Any) -> None:
        act(gear)
        update(gear, **values)

    monkeypatch.setattr(step, "update", acted)


def signalled_at(monkeypatch: pytest.MonkeyPatch, number: int, *, step_number: int) -> None:
    """Send this process a signal while it takes a step."""

    def act(gear: Any) -> None:
        if gear.state.at.step == step_number:
            os.kill(os.getpid(), number)

    at_update(monkeypatch, act)


def seen(monkeypatch: pytest.MonkeyPatch) -> list[Visit]:
    """A list that grows by every atom that goes through the network in training."""
    visits: list[Visit] = []
    moved = Classify.moved

    def noted(self: Any, batch: Any, device: Any) -> Any:
        if batch.plan.resolution:
            plan = batch.plan
            row = Visit(
                epoch=plan.epoch, positions=tuple(plan.positions.tolist()), samples=tuple(plan.samples.tolist())
            )
            visits.append(row)
        return moved(self, batch, device)

    monkeypatch.setattr(Classify, "moved", noted)
    return visits


def by_position(visits: list[Visit]) -> dict[tuple[int, int], int]:
    """The sample at each place of the run; one that comes twice must be the same."""
    found: dict[tuple[int, int], int] = {}
    for visit in visits:
        for position, sample in zip(visit.positions, visit.samples, strict=True):
            assert found.setdefault((visit.epoch, position), sample) == sample
    return found


def diverging(monkeypatch: pytest.MonkeyPatch, *, from_step: int) -> None:
    """Let every update from a step on make numbers that are none."""

    def act(gear: Any) -> None:
        if gear.state.at.step >= from_step:
            for parameter in gear.state.network.parameters():
                parameter.grad.fill_(float("nan"))

    at_update(monkeypatch, act)
