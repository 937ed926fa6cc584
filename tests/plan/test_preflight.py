"""What a run says about itself before it starts, and when it does not start at all."""

import json
import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import api, cli, runs
from stoker.config import Config
from stoker.plan import preflight, probing
from stoker.runs import Run
from tests.flags import flags
from tests.whole import traces

# 120 samples: 4 epochs of 30 steps, the fewest that a plan is made for.
LONG = {"batch": 4, "epochs": 4, "eval_epochs": 4, "log_steps": 30}


@pytest.fixture
def long_enough(quick: dict[str, Any], dial_folder: Path) -> dict[str, Any]:
    return {**quick, **LONG, "data": str(dial_folder)}


def words(values: dict[str, Any], *more: str) -> list[str]:
    """Settings as flags of a command."""
    return ["train", "--name", "run", *flags(values), *more]


def slow_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a thread seem to need a second for each sample."""
    input_costs = probing.Meter.input_costs

    def slow(self: Any, *args: Any, **values: Any) -> tuple[float, float]:
        decode, read = input_costs(self, *args, **values)
        return decode + 1.0, read

    monkeypatch.setattr(probing.Meter, "input_costs", slow)


def stopped_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ask the run, and not a trial of it, to stop at a step."""

    def act(gear: Any) -> None:
        if gear.site.run.folder.name == "run" and gear.state.at.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    traces.at_update(monkeypatch, act)


def test_a_run_that_launches_slow_down_begins_and_is_told_what_helps(
    long_enough: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probing.Meter, "launched", lambda _, costs, *__: replace(costs, launch_seconds=1.0))
    monkeypatch.setattr(preflight, "SECONDS", 0.3)
    assert cli.main(words({**long_enough, "target_accuracy": 1})) == 0
    said = capsys.readouterr().err
    assert "limited by launches (" in said and "times slower than without): give a larger --batch, or --compile" in said


def test_a_probe_leaves_no_trace_and_is_set_against_what_came_of_it(
    long_enough: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    with_plan = Run(api.train(**long_enough, name="with").folder)
    said = capsys.readouterr().err
    assert list((tmp_path / "temp").glob("stoker*")) == [], "nothing is left of the trial"
    without = Run(api.train(**long_enough, name="without", plan=False, show=False).folder)
    assert traces.digests(with_plan) == traces.digests(without)
    assert not without.plan.exists()

    plan = json.loads(with_plan.plan.read_text())
    assert plan.keys() == {"version", "at", "forecast", "probe", "tried", "flops_per_sample", "actual"}
    assert plan["forecast"]["steps"] == 120
    taken = sum(value or 0.0 for value in traces.last_ledger(with_plan).totals.values())
    assert 0 < plan["actual"]["seconds"] < taken, "without the setup, of which the probe is a part"
    assert said.count("plan     trying the recipe") == 1 and " a step, limited by " in said
    assert cli.main(["plan", "--record"]) == 0
    out = capsys.readouterr().out
    assert "of 1 within their bounds" in out and out.splitlines()[1].startswith("with ")


def test_a_short_run_has_no_plan_and_says_nothing_of_one(
    quick: dict[str, Any], dial_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(api.train(**quick, data=str(dial_folder)).folder)
    assert not run.plan.exists()
    assert "plan " not in capsys.readouterr().err


def test_a_run_that_decoding_slows_down_is_refused_and_goes_on_anyway(
    long_enough: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow_decoding(monkeypatch)
    stopped_at(monkeypatch, 2)
    assert cli.main(words(long_enough)) == 2
    said = capsys.readouterr().err
    assert "decode makes this run" in said and "times slower than this hardware could do" in said
    assert "stoker pack" in said and "--anyway" in said
    assert not Path("runs/run").exists(), "nothing of it stays"
    assert cli.main(words(long_enough, "--anyway")) == 75, "it began, and was stopped at its second step"
    assert json.loads(Path("runs/run/plan.json").read_text())["forecast"]["limit"] == "decode"


def test_a_run_that_has_begun_is_never_refused(
    long_enough: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        stopped_at(patch, 2)
        assert cli.main(words(long_enough, "--no-plan")) == 75
    assert "plan " not in capsys.readouterr().err
    slow_decoding(monkeypatch)
    stopped_at(monkeypatch, 4)
    assert cli.main(words(long_enough)) == 75
    assert "plan " not in capsys.readouterr().err
    assert not Path("runs/run/plan.json").exists(), "a part of a run is not what is planned"


def test_a_probe_that_runs_out_of_memory_does_not_end_the_run(
    long_enough: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: Any, **values: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(probing.Meter, "costs", full)
    stopped_at(monkeypatch, 2)
    assert cli.main(words(long_enough)) == 75
    assert "not made: the probe ran out of memory" in capsys.readouterr().err
    assert not Path("runs/run/plan.json").exists()


def test_another_error_of_a_probe_is_not_hidden(long_enough: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **values: Any) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(probing.Meter, "costs", broken)
    with pytest.raises(ValueError, match="a fault of ours"):
        api.train(**long_enough, show=False)


def test_every_limit_but_compute_has_a_cure() -> None:
    limits = {"network", "decode", "disk", "copies", "launches", "checkpoints", "evaluation"}
    assert preflight.CURES.keys() == limits


def test_plan_and_anyway_do_not_change_what_a_run_is() -> None:
    config = api.configured("demo")
    changed = api.configured("demo", plan=False, anyway=True)
    assert isinstance(config, Config) and runs.settings.address(config) == runs.settings.address(changed)
