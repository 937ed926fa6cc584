"""A slow process is told from a slow network, by name; and many processes plan together."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker import api, records
from stoker.records import LedgerRow
from stoker.runs import Run
from tests.whole import slowed, traces

# 120 samples: two epochs of 15 steps, two atoms of 4 samples each.
SMALL = {"batch": 8, "atoms": 2, "epochs": 2, "eval_epochs": 2, "log_steps": 5, "threads": 1}
pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def folder(quick: dict[str, Any], dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have trained, of which the second slept in every step, and then planned."""
    folder = tmp_path_factory.mktemp("slowed")
    traces.begun(folder / "run", api.configured(**{**quick, **SMALL, "data": str(dial_folder)}))
    words = [sys.executable, "-m", "tests.whole.slowed", str(folder)]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def seconds(folder: Path, rank: int) -> dict[str, float]:
    """Of all steps but the first few, by bucket."""
    rows = [row for row in records.read_lines(Run(folder / "run").ledger_of(rank), LedgerRow) if row.steps][1:]
    assert sum(row.steps for row in rows) == 25
    return {bucket: sum(row.seconds[bucket] or 0.0 for row in rows) for bucket in rows[0].seconds}


def test_a_sleep_in_one_process_is_its_compute_and_the_others_waiting_for_it(folder: Path) -> None:
    slept = sum(json.loads((folder / "slept.json").read_text())[5:])
    fast, slow = seconds(folder, 0), seconds(folder, slowed.SLOW)
    assert slow["compute"] - fast["compute"] == pytest.approx(slept, rel=0.05)
    assert fast["peer_wait"] - slow["peer_wait"] == pytest.approx(slept, rel=0.05)
    assert fast["comm"] == pytest.approx(slow["comm"], abs=0.05 * slept), "the wire takes both the same time"
    for one in (fast, slow):
        assert one["other"] < 0.02 * sum(one.values())


def test_why_names_the_slow_process(folder: Path) -> None:
    verdict = api.why(folder / "run")
    assert verdict.limit == "stragglers"
    assert verdict.straggler is not None
    assert (verdict.straggler.rank, verdict.straggler.bucket) == (slowed.SLOW, "compute")
    assert verdict.straggler.extra_seconds == pytest.approx(slowed.SLEEP_SECONDS, rel=0.1)


def test_a_plan_of_two_processes_measures_the_link_between_them(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["probe"]["world"] == 2
    assert plan["probe"]["link"]["bytes_per_second"] > 0 and plan["probe"]["link"]["latency_seconds"] >= 0
    (one,) = plan["forecasts"]
    assert (one["processes"], one["machines"]) == (2, 1)
    assert one["parts"]["comm_seconds"] > 0
    assert not any("assumed" in note for note in one["notes"])
