"""Two processes are one: the same samples in the same steps, and the same weights but for the order of additions."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stoker import api, checkpoint, records, runs, settings
from stoker.config import Config
from stoker.records import LedgerRow, MetricRow
from stoker.runs import Run

from . import visits

BATCH = 16


@pytest.fixture(scope="module")
def one(dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process with two atoms a step."""
    folder = tmp_path_factory.mktemp("one") / "run"
    runs.create(folder, config(dial_folder), resumed_from=None)
    train(folder, processes=1)
    return folder


def config(data: Path) -> Config:
    return api.configured(
        model="timm/test_resnet", resolution=32, batch=BATCH, epochs=2, log_steps=2, crop_scale=(0.6, 1.0), lr=0.05,
        report=False,
        device="cpu", compute_threads=1, threads=1, data=str(data), atoms=2, checkpoint_steps=4, last_step="keep",
    )  # fmt: skip


def train(folder: Path, *, processes: int, kill_after: int | None = None) -> int:
    script = [visits.__file__, str(folder), str(folder.parent / "visits")]
    words = [*script, str(kill_after)] if kill_after else script
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    )
    done = subprocess.run([sys.executable, *launcher, *words], capture_output=True, text=True)
    assert kill_after or done.returncode == 0, done.stderr[-3000:]
    return done.returncode


def seen(folder: Path) -> dict[tuple[int, int], list[int]]:
    """The samples at each (epoch, position), over all processes; a step redone after a kill must be the same."""
    found: dict[tuple[int, int], list[int]] = {}
    for file in folder.parent.glob("visits.*"):
        for row in map(json.loads, file.read_text().splitlines()):
            for position, sample in zip(row["positions"], row["samples"], strict=True):
                place = found.setdefault((row["epoch"], position), [])
                if sample not in place:
                    place.append(sample)
    return found


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.find(Run(folder), "latest") / checkpoint.MODEL)


def scores(folder: Path) -> list[dict[str, Any]]:
    return [row.scores for row in records.read_lines(Run(folder).metrics, MetricRow)]


def assert_alike(a: Path, b: Path) -> None:
    assert seen(a) == seen(b)
    assert all(len(samples) == 1 for samples in seen(a).values())
    mine, other = weights(a), weights(b)
    assert mine.keys() == other.keys()
    assert any("running_var" in name for name in mine), "the network has no batch norm, so this test shows less"
    for name in mine:
        torch.testing.assert_close(mine[name], other[name], rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
    for left, right in zip(scores(a), scores(b), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-3)


def test_two_processes_train_as_one_does(one: Path, dial_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "two"
    runs.create(folder, config(dial_folder), resumed_from=None)
    train(folder, processes=2)
    assert_alike(one, folder)
    assert len({position for _, position in seen(folder)}) == 120, "a kept last step shows every sample"
    rows = records.read_lines(Run(folder).ledger_of(1), LedgerRow)
    assert rows[-1].rank == 1 and rows[-1].totals["host"] is None, "what is not measured is null"
    assert (rows[-1].totals["comm"] or 0) > 0 and (rows[-1].totals["peer_wait"] or 0) > 0


def test_a_run_stopped_as_two_and_resumed_as_one_ends_the_same(one: Path, dial_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "two-one"
    runs.create(folder, config(dial_folder), resumed_from=None)
    assert train(folder, processes=2, kill_after=6) != 0
    assert checkpoint.steps(Run(folder))[0] == 4
    train(folder, processes=1)
    assert_alike(one, folder)


def test_three_processes_killed_and_resumed_end_with_the_same_bits(dial_folder: Path, tmp_path: Path) -> None:
    three = settings.with_values(config(dial_folder), {"atoms": 3, "epochs": 1, "checkpoint_steps": 3})
    found = []
    for name, kill_after in (("whole", None), ("killed", 4)):
        folder = tmp_path / name / "run"
        runs.create(folder, three, resumed_from=None)
        if kill_after:
            assert train(folder, processes=3, kill_after=kill_after) != 0
            assert checkpoint.steps(Run(folder))[0] == 3
        train(folder, processes=3)
        last = checkpoint.find(Run(folder), "latest")
        found.append([(last / checkpoint.MODEL).read_bytes(), (last / checkpoint.OPTIMIZER).read_bytes()])
    assert found[0] == found[1]


def test_more_processes_than_atoms_are_refused(dial_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "three"
    runs.create(folder, config(dial_folder), resumed_from=None)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m", "stoker"]
    done = subprocess.run([*launcher, "work", str(folder)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "3 processes for 2 atoms" in done.stderr


def test_a_new_run_starts_on_two_processes_with_one_command(dial_folder: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "stoker"]
    words = [
        "train",
        "--model",
        "timm/test_resnet",
        "--resolution",
        "32",
        "--batch",
        "16",
        "--epochs",
        "1",
        "--name",
        "new",
    ]
    done = subprocess.run(
        [*launcher, *words, "--data", str(dial_folder), "--device", "cpu", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = json.loads(done.stdout)
    assert printed["record"]["status"] == "done" and printed["record"]["fixed"]["atoms"] == 2
    assert done.stderr.count("data     dials") == 1, "only the first process talks"
