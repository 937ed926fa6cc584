"""How long the rest of a run takes: the same for reports and for whoever watches."""

from dataclasses import replace
from pathlib import Path

import pytest

from stoker import settings
from stoker.config import Config
from stoker.machine.evidence import Evidence
from stoker.records import Attempt, LedgerRow, RunRecord
from stoker.report import cost, remainder
from stoker.watch.glance import Facts, glance
from tests.machine.made_up import ledger

# Ten steps of 64 samples an epoch, of half a second each.
RECORD = RunRecord(
    status="running", attempts=(Attempt(started_at=90.0, host="h1", world=1),), data={"train_samples": 640}
)
ROWS = ledger({"compute": 0.4, "optimizer": 0.1}, device="cpu")


def staged(stages: str) -> Config:
    plain = settings.with_values(Config(), {"resolution": 32, "batch": 64, "atoms": 1, "epochs": 10})
    return settings.with_values(plain, {"stages": stages}) if stages else plain


def reported(config: Config, rows: tuple[LedgerRow, ...] = ROWS) -> float | None:
    found = Evidence(folder=Path("a"), state="running", rows={0: rows}, record=RECORD, config=config)
    return cost.of(found, pack_seconds=None, now=200.0).left_seconds


def watched(config: Config, rows: tuple[LedgerRow, ...] = ROWS) -> float | None:
    plan = {"forecast": {"total": {"likely": 7.5}}}
    facts = Facts(
        folder=Path("a"), name="a", state="running", is_held=True, record=RECORD, config=config, ledger=rows, plan=plan
    )
    return glance(facts).left_seconds


def with_pauses(rows: tuple[LedgerRow, ...]) -> tuple[LedgerRow, ...]:
    """Half as much again of the time in steps went into evaluations and checkpoints."""
    totals = {**rows[-1].totals, "eval": 10.0, "checkpoint": 5.0}
    return (*rows[:-1], replace(rows[-1], totals=totals))


@pytest.mark.parametrize(
    "stages", ["32@64 x 10", "32@64 x 6, 32@128 x 4", "32@64 x 6, 32@16 x 4", "32@64 x 3, 32@64 x 7"]
)
def test_report_and_watch_tell_the_same_time_whatever_the_batch(stages: str) -> None:
    assert reported(staged(stages)) == watched(staged(stages)) == pytest.approx(4 * 10 * 0.5)
    paused = with_pauses(ROWS)
    assert reported(staged(stages), paused) == watched(staged(stages), paused) == pytest.approx(1.5 * 4 * 10 * 0.5)


def test_what_was_not_measured_is_not_known() -> None:
    config = staged("32@64 x 6, 64@64 x 2, 32@64 x 2")
    assert reported(config) is None and watched(config) is None, (
        "the plan is of the whole run, and no guess at its rest"
    )
    way = remainder.route(config, RECORD)
    assert way is not None and remainder.unmeasured(way, ROWS) == (64,)


def test_a_resolution_counts_by_its_own_steps() -> None:
    config = staged("32@64 x 3, 64@64 x 5, 32@64 x 2")
    slow = tuple(
        replace(row, seconds={"compute": 2.0 * row.steps}) if row.step > 30 else row for row in ROWS
    )  # two seconds a step from the fourth epoch on
    assert reported(config, slow) == watched(config, slow) == pytest.approx(20 * 2.0 + 20 * 0.5)
    way = remainder.route(config, RECORD)
    assert way is not None and remainder.unmeasured(way, slow) == ()


def test_what_is_left_to_stoker_or_not_opened_has_no_way() -> None:
    assert remainder.route(None, RECORD) is None and remainder.route(staged(""), None) is None
    for data in ({}, {"train_samples": "many"}, {"train_samples": True}, {"train_samples": 0}):
        assert remainder.route(staged(""), replace(RECORD, data=data)) is None
    assert remainder.route(settings.with_values(staged(""), {"batch": "auto"}), RECORD) is None
    assert remainder.left_seconds(remainder.route(staged(""), RECORD), ROWS[:1]) is None
