"""What a probe of a real recipe finds."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from stoker import api, cli
from stoker.plan import asking, probing
from stoker.records import LedgerRow, read_lines
from stoker.runs import Run
from stoker.tasks.classify import Classify

SMALL = {"batch": 4, "epochs": 1, "eval_epochs": 4, "log_steps": 5}
FORECAST = {
    "machine", "machines", "processes", "steps", "step", "parts", "without", "epoch", "total", "eval_seconds",
    "save_seconds", "setup_seconds", "limit", "slowdown", "memory_bytes", "fits", "on_demand_dollars", "spot_dollars",
    "spot_seconds", "notes", "is_retired", "is_whole",
}  # fmt: skip
PROBE = {
    "costs", "atom", "threads", "world", "nodes", "steps", "seconds", "eval_sample_seconds", "save_seconds",
    "memory_bytes", "flops_per_sample", "layers", "sent_bytes", "link", "tried", "version",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that takes no longer than it must."""
    monkeypatch.setattr(asking, "SECONDS", 0.3)
    monkeypatch.setattr(probing, "ALTERNATIVES", {"channels_last off": {"channels_last": False}})


def test_what_a_probe_finds_is_what_a_run_then_takes(quick: dict[str, Any], dial_folder: Path) -> None:
    values = {**quick, **SMALL, "data": str(dial_folder)}
    plan = api.plan(**values, show=False)
    (costs,) = plan.probe.costs
    assert costs.device == "cpu" and costs.compute_threads == 1
    assert costs.sample_seconds > 0 and costs.atom_seconds >= 0 and costs.optimizer_seconds > 0
    assert costs.decode_sample_seconds > 0 and costs.read_sample_seconds > 0 and costs.host_seconds >= 0
    assert plan.probe.eval_sample_seconds > 0 and plan.probe.save_seconds > 0
    assert plan.probe.memory_bytes is None, "a CPU has no memory of its own"
    assert plan.probe.flops_per_sample and plan.probe.layers > 20
    assert plan.probe.tried.keys() == {"channels_last off"}
    assert plan.probe.sent_bytes == costs.gradient_bytes > 1_000_000
    assert plan.steps == plan.forecasts[0].steps == 30

    run = Run(api.train(**values, show=False).folder)
    rows = [row for row in read_lines(run.ledger, LedgerRow) if row.steps][1:]
    parts = ("data_wait", "transfer", "compute", "optimizer", "other")
    taken = sum(row.seconds[part] or 0.0 for row in rows for part in parts) / sum(row.steps for row in rows)
    assert taken / 2 < plan.forecasts[0].step.likely < taken * 2


@pytest.mark.parametrize("batch", [2, 3])
def test_a_batch_is_never_probed_with_one_sample_which_batch_norm_does_not_take(
    quick: dict[str, Any], dial_folder: Path, batch: int
) -> None:
    plan = api.plan(**{**quick, **SMALL, "batch": batch, "data": str(dial_folder)}, show=False)
    assert plan.probe.atom == (batch,)


def test_photos_that_take_longer_to_decode_than_the_network_to_learn_from_limit_the_run(
    quick: dict[str, Any], tmp_path: Path
) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(256, size=(1000, 1000, 3), dtype=np.uint8))
    for place in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / "large" / place).mkdir(parents=True)
        noise.save(tmp_path / "large" / place / "0.jpg", quality=95)
        for number in range(1, 12):
            shutil.copy(tmp_path / "large" / place / "0.jpg", tmp_path / "large" / place / f"{number}.jpg")
    values = {**quick, **SMALL, "batch": 24, "resolution": 16, "epochs": 10_000, "data": str(tmp_path / "large")}
    plan = api.plan(**values, show=False)
    (costs,) = plan.probe.costs
    assert 24 * costs.decode_sample_seconds > costs.atom_seconds + 24 * costs.sample_seconds
    assert plan.forecasts[0].limit == "decode"
    assert plan.forecasts[0].slowdown > 1.2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use")
def test_a_thread_that_comes_late_with_a_gpus_work_is_a_floor_and_not_the_gpus_time(
    quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**quick, **SMALL, "batch": 64, "model": "torchvision/resnet18", "resolution": 64, "device": "cuda"}
    before = api.plan(**values, data=str(dial_folder), show=False).probe.costs[0]
    loss = Classify.loss
    monkeypatch.setattr(Classify, "loss", lambda *given: time.sleep(0.05) or loss(*given))
    after = api.plan(**values, data=str(dial_folder), show=False).probe.costs[0]
    assert 0.001 < before.launch_seconds < 0.04 and 0.05 < after.launch_seconds < 0.1
    works = [costs.atom_seconds + 64 * costs.sample_seconds for costs in (before, after)]
    assert works[1] == pytest.approx(works[0], rel=0.2)


def words(quick: dict[str, Any], data: Path) -> list[str]:
    flags = {name: quick[name] for name in ("model", "resolution", "device", "threads")}
    listed = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return ["plan", "demo", *listed, "--compute-threads", "1", "--batch", "4", "--data", str(data)]


def test_the_answer_has_this_shape(
    quick: dict[str, Any], dial_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--machines", "this, p4d.24xlarge, g5.xlarge", "--gpus", "1", "--target", "8h", "--json"]
    assert cli.main([*words(quick, dial_folder), *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {
        "model", "data", "epochs", "steps", "batch", "forecasts", "unknown", "fastest", "cheapest", "meets", "probe",
        "version",
    }  # fmt: skip
    assert (found["model"], found["epochs"], found["steps"], found["batch"]) == ("timm/test_resnet", 4, 120, 4)
    assert [one["machine"] for one in found["forecasts"]] == ["this", "p4d.24xlarge"]
    assert all(one.keys() == FORECAST for one in found["forecasts"])
    assert found["probe"].keys() == PROBE
    assert "A10G" in found["unknown"]["g5.xlarge"]
    assert found["meets"] == {"this": "surely", "p4d.24xlarge": "surely"}
    assert not Path("runs").exists() and not list(Path().glob("*.json")), "nothing of it stays"


def test_people_get_times_with_bounds_and_a_choice(
    quick: dict[str, Any], dial_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words(quick, dial_folder), "--gpus", "2", "--nodes", "2", "--link", "100mbit"]) == 0
    out = capsys.readouterr().out
    assert "plan     timm/test_resnet on dials: 4 epochs, 120 steps of 4 samples; probed here for" in out
    assert "2 x this, 4 processes" in out and "network" in out
    assert "memory" not in out and "dollars" not in out, "neither is known here"
    assert out.rstrip().endswith("fastest: this")


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--machines", "p4d.25xlarge"], "did you mean p4d.24xlarge"),
        (["--machines", ","], "no machine was named"),
        (["--gpus", "-1"], "-1 GPUs on each of 1 machines"),
        (["--nodes", "0"], "0 GPUs on each of 0 machines"),
        (["--link", "nonsense"], "--link nonsense can't be understood"),
        (["--link", "1.2.3mbit"], "--link 1.2.3mbit can't be understood"),
        (["--target", "nonsense"], "--target nonsense can't be understood"),
        (["--target", "1.2.3h"], "--target 1.2.3h can't be understood"),
        (["--catalogue", "nowhere.csv"], "nowhere.csv can't be read as a catalogue"),
        (["--data", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_can_not_be_answered_is_refused_before_anything_is_measured(
    flags: list[str], what: str, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(probing, "probed", None)
    assert cli.main([*words(quick, dial_folder), *flags]) == 2
    said = capsys.readouterr().err
    assert what in said and "fix:" in said
