"""Two processes are one: the same samples in the same steps, and the same weights but for the order of additions."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stoker import api, checkpoint, records, runs, settings
from stoker.config import Config
from stoker.records import LedgerRow, MetricRow
from stoker.runs import Run

from . import many
from .doomed import Start
from .many import Traits

THREE = {"atoms": 3, "epochs": 1, "checkpoint_steps": 3}
# What each run changes of the settings of all: two atoms a step.
CHANGES: dict[str, dict[str, Any]] = {
    "one": {}, "two": {}, "two, then one": {}, "three": THREE, "three, killed": THREE, "too many": {},
}  # fmt: skip
STARTS: list[tuple[str, dict[str, Any]]] = [
    ("one", {}),
    ("two", {"processes": 2}),
    ("two, then one", {"processes": 2, "moment": "after-update", "count": 6, "rank": 1}),
    ("two, then one", {}),
    ("three", {"processes": 3}),
    ("three, killed", {"processes": 3, "moment": "after-update", "count": 4, "rank": 2}),
    ("three, killed", {"processes": 3}),
    ("too many", {"processes": 3}),
]


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Where the runs are, and the exit codes of each start."""

    folder: Path
    codes: dict[str, list[list[int]]]

    def run(self, name: str) -> Run:
        return Run(self.folder / name)


@pytest.fixture(scope="module")
def ends(dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """All runs of these tests that need no launcher, one after another: libraries are loaded once."""
    folder = tmp_path_factory.mktemp("processes")
    for name, changes in CHANGES.items():
        runs.create(folder / name, settings.with_values(config(dial_folder), changes), resumed_from=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = many.started(*((Start(folder=str(folder / name), **how), Traits()) for name, how in STARTS))
    codes: dict[str, list[list[int]]] = {}
    for (name, _), one in zip(STARTS, found, strict=True):
        codes.setdefault(name, []).append(one)
    return Ends(folder=folder, codes=codes)


def config(data: Path) -> Config:
    return api.configured(
        model="timm/test_resnet", resolution=32, batch=16, epochs=2, log_steps=2, crop_scale=(0.6, 1.0), lr=0.05,
        report=False,
        device="cpu", compute_threads=1, threads=1, data=str(data), atoms=2, checkpoint_steps=4, last_step="keep",
    )  # fmt: skip


def seen(run: Run) -> dict[tuple[int, int], set[int]]:
    """The samples at each (epoch, position), over all processes; a step redone after a kill must be the same."""
    found: dict[tuple[int, int], set[int]] = {}
    for file in run.folder.parent.glob(f"{run.folder.name}.seen.*"):
        for kind, epoch, positions, samples in map(json.loads, file.read_text().splitlines()):
            for position, sample in zip(positions, samples, strict=True) if kind == "train" else ():
                found.setdefault((epoch, position), set()).add(sample)
    return found


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.find(run, "latest") / checkpoint.MODEL)


def scores(run: Run) -> list[dict[str, Any]]:
    return [row.scores for row in records.read_lines(run.metrics, MetricRow)]


def assert_alike(a: Run, b: Run) -> None:
    assert seen(a) == seen(b)
    assert all(len(samples) == 1 for samples in seen(a).values())
    mine, other = weights(a), weights(b)
    assert mine.keys() == other.keys()
    assert any("running_var" in name for name in mine), "the network has no batch norm, so this test shows less"
    for name in mine:
        torch.testing.assert_close(mine[name], other[name], rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
    for left, right in zip(scores(a), scores(b), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-3)


def test_two_processes_train_as_one_does(ends: Ends) -> None:
    assert ends.codes["one"] == [[0]] and ends.codes["two"] == [[0, 0]]
    assert_alike(ends.run("one"), ends.run("two"))
    assert len({position for _, position in seen(ends.run("two"))}) == 120, "a kept last step shows every sample"
    rows = records.read_lines(ends.run("two").ledger_of(1), LedgerRow)
    assert rows[-1].rank == 1 and rows[-1].totals["host"] is None, "what is not measured is null"
    assert (rows[-1].totals["comm"] or 0) > 0 and (rows[-1].totals["peer_wait"] or 0) > 0


def test_a_run_stopped_as_two_and_resumed_as_one_ends_the_same(ends: Ends) -> None:
    killed, resumed = ends.codes["two, then one"]
    assert killed[1] == -signal.SIGKILL and resumed == [0]
    assert [attempt.world for attempt in records.read_record(ends.run("two, then one").record).attempts] == [2, 1]
    assert_alike(ends.run("one"), ends.run("two, then one"))


def test_three_processes_killed_and_resumed_end_with_the_same_bits(ends: Ends) -> None:
    killed, resumed = ends.codes["three, killed"]
    assert killed[2] == -signal.SIGKILL and resumed == ends.codes["three"][0] == [0, 0, 0]
    for name in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        files = [checkpoint.find(ends.run(one), "latest") / name for one in ("three", "three, killed")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_more_processes_than_atoms_are_refused(ends: Ends) -> None:
    assert 0 not in ends.codes["too many"][0]
    assert "3 processes for 2 atoms" in (ends.folder / "said").read_text()


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
