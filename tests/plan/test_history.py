"""Plans are set against what came of them."""

import json
from pathlib import Path

import pytest

from stoker import api, cli, runs
from stoker.plan import history
from stoker.records import BUCKETS, LedgerRow
from stoker.runs import Run


def planned(folder: Path, *, seconds: float, took: float | None) -> Run:
    folder.mkdir(parents=True)
    total = {"low": 10 + seconds / 1.1, "likely": 10 + seconds, "high": 10 + seconds * 1.1}
    plan = {
        "version": 1,
        "forecast": {"total": total, "setup_seconds": 10.0, "limit": "decode", "steps": 1},
        "actual": None,
    }
    run = Run(folder)
    run.plan.write_text(json.dumps(plan))
    if took is not None:
        totals = {**dict.fromkeys(BUCKETS, 0.0), "compute": took, "setup": 50.0, "lost": 7.0, "host": None}
        row = LedgerRow(
            at=1.0, rank=0, world=1, attempt=1, step=1, steps=1, samples=1, seconds={}, totals=totals,
            read_seconds=0.0, decode_seconds=0.0, device="cpu",
        )  # fmt: skip
        runs.append_line(run.ledger, row)
        history.finished(run)
    return run


def test_a_finished_run_says_what_it_took_without_the_setup_and_what_was_lost(tmp_path: Path) -> None:
    past = history.past(planned(tmp_path / "a", seconds=100.0, took=105.0))
    assert past is not None
    assert (past.planned_seconds, past.actual_seconds) == (pytest.approx(100.0), pytest.approx(105.0))
    assert past.error == pytest.approx(0.05)
    assert past.held


def test_a_run_outside_of_its_bounds_did_not_hold(tmp_path: Path) -> None:
    past = history.past(planned(tmp_path / "a", seconds=100.0, took=150.0))
    assert past is not None and not past.held


def test_runs_without_a_plan_or_not_finished_are_left_out(tmp_path: Path) -> None:
    planned(tmp_path / "a", seconds=100.0, took=None)
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "plan.json").write_text("{ torn")
    found = history.over(sorted(tmp_path.iterdir()))
    assert found.runs == ()
    assert found.median_error is None


def test_the_record_shows_errors_over_all_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for name, took in (("a", 100.0), ("b", 104.0), ("c", 80.0)):
        planned(Path("runs") / name, seconds=100.0, took=took)
    found = api.plans()
    assert found.median_error == pytest.approx(0.04)
    assert found.worst_error == pytest.approx(0.2)
    assert found.held_share == pytest.approx(2 / 3)
    assert cli.main(["plan", "--record"]) == 0
    out = capsys.readouterr().out
    assert "-20.0%" in out and "median error 4.0%" in out
    assert cli.main(["plan", "--record", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
