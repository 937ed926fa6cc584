"""Many processes on the whole program: lost ones, stopped ones, compressed gradients, joint batch norm, uneven ends."""

import dataclasses
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from stoker import api, checkpoint, settings
from stoker.config import Config
from stoker.data import dials
from stoker.runs import Run

from . import many, traces
from .doomed import Start, free_port
from .many import Traits

TWO = {"processes": 2}
PYTHON = [sys.executable, "-m"]
# 115 samples: 3 steps of 32 in an epoch.
BASE = {"batch": 32, "epochs": 5, "lr": 0.5, "eval_epochs": 5, "checkpoint_steps": 4, "atoms": 2}
# A small rate, because small differences grow with every step.
KEEP = {"last_step": "keep", "log_steps": 1, "epochs": 2, "lr": 0.02}
UNEVEN = {**KEEP, "atoms": 3, "batch": 30}
LONGER = {"epochs": 12, "eval_epochs": 12, "checkpoint_steps": 5}
STAGED = {"stages": "24@16 x 2, 32@32 x 3", "atoms": 4}
# What each run changes of the settings of all.
CHANGES: dict[str, dict[str, Any]] = {
    "off": {},
    "bf16": {"compress": "bf16"},
    "bf16 killed": {"compress": "bf16"},
    "fp16": {"compress": "fp16"},
    "fp16 killed": {"compress": "fp16"},
    "powersgd": {"compress": "powersgd"},
    "joint": {**KEEP, "sync_bn": True},
    "alone": {**KEEP, "sync_bn": True, "atoms": 1},
    "frozen": {"sync_bn": True, "epochs": 1, "freeze_epochs": 1, "weights": "WEIGHTS"},
    "refused": {"sync_bn": True},
    "uneven": UNEVEN,
    "uneven alone": UNEVEN,
    "stopped": {},
    "longer": LONGER,
    "staged": STAGED,
    "changing": STAGED,
    # Nothing learns, so that only the first evaluation is the best.
    "timed": {
        "batch": 23, "epochs": 3, "eval_epochs": 1, "lr": 1e-9, "freeze_epochs": 3, "weights": "WEIGHTS",
        "checkpoint_minutes": 1e-9, "checkpoint_epochs": 9, "checkpoint_steps": 0, "keep_last": 50,
    },
}  # fmt: skip
STARTS: list[tuple[str, dict[str, Any], Traits]] = [
    ("off", TWO, Traits()),
    ("bf16", TWO, Traits()),
    ("bf16 killed", {**TWO, "moment": "after-gradients", "count": 6, "rank": 1}, Traits()),
    ("bf16 killed", TWO, Traits()),
    ("fp16", TWO, Traits()),
    ("fp16 killed", {**TWO, "moment": "after-gradients", "count": 6}, Traits()),
    ("fp16 killed", TWO, Traits()),
    ("powersgd", TWO, Traits()),
    ("joint", TWO, Traits()),
    ("alone", {}, Traits()),
    ("frozen", TWO, Traits()),
    ("refused", {}, Traits()),
    ("uneven", TWO, Traits()),
    ("uneven alone", {}, Traits()),
    ("stopped", TWO, Traits(stop_at=9, lost_seconds=2.0)),
    ("stopped", TWO, Traits()),
    ("timed", TWO, Traits()),
    ("longer", TWO, Traits()),
    ("staged", TWO, Traits()),
    ("changing", {**TWO, "moment": "after-gradients", "count": 6, "rank": 1}, Traits()),
    ("changing", {"moment": "after-gradients", "count": 12}, Traits()),
    ("changing", TWO, Traits()),
]
SAMPLES, HELD_OUT = 115, 23


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ends:
    """Where the runs are, and the exit codes of each start."""

    folder: Path
    codes: dict[str, list[list[int]]]

    def run(self, name: str) -> Run:
        return Run(self.folder / name)

    def losses(self, name: str, kind: str = "train") -> list[float]:
        return [row.scores["loss"] for row in traces.lines(self.run(name), kind)]

    def ends(self, name: str) -> list[dict[str, Any]]:
        """What each process came to."""
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob(f"{name}.end.*"))]

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        return load_file(checkpoint.find(self.run(name), "latest") / checkpoint.MODEL)


def seen(folder: Path, kind: str) -> Counter[tuple[int, int, int]]:
    """How often each (epoch, position, sample) was seen, over all processes of a run."""
    lines = [line for file in folder.parent.glob(f"{folder.name}.seen.*") for line in file.read_text().splitlines()]
    rows = [row[1:] for row in map(json.loads, lines) if row[0] == kind]
    return Counter((epoch, *pair) for epoch, *lists in rows for pair in zip(*lists, strict=True))


@pytest.fixture(scope="module")
def asked(quick: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Settings of a run of 15 steps of two atoms, on data of which nothing is a number of whole batches."""
    data = tmp_path_factory.mktemp("data") / "dials"
    list(dials.make(data, count=SAMPLES, size=40, seed=0, processes=1))
    return api.configured(**{**quick, **BASE}, data=str(data))


@pytest.fixture(scope="module")
def ends(asked: Config, tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """All runs of these tests that need no launcher, one after another: libraries are loaded once."""
    folder = tmp_path_factory.mktemp("many")
    weights = many.pretrained(folder / "pretrained.safetensors")
    for name, changes in CHANGES.items():
        values = {key: str(weights) if value == "WEIGHTS" else value for key, value in changes.items()}
        traces.begun(folder / name, settings.with_values(asked, values))
    starts = [(Start(folder=str(folder / name), **how), traits) for name, how, traits in STARTS]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = many.started(*starts)
    codes: dict[str, list[list[int]]] = {}
    for (name, _, _), one in zip(STARTS, found, strict=True):
        codes.setdefault(name, []).append(one)
    return Ends(folder=folder, codes=codes)


def test_all_processes_end_with_the_same_weights(ends: Ends) -> None:
    for name in set(CHANGES) - {"refused", "alone", "uneven alone"}:
        assert ends.codes[name][-1] == [0, 0], name
        first, second = ends.ends(name)
        assert first["weights"] == second["weights"], name


@pytest.mark.parametrize("compress", ["bf16", "fp16"])
def test_sixteen_bits_are_half_as_much_to_send_and_train_as_well(ends: Ends, compress: str) -> None:
    whole, half = ends.ends("off")[0], ends.ends(compress)[0]
    assert half["gradient_bytes"] * 2 == whole["gradient_bytes"]
    for one in (whole, half):
        assert one["step_bytes"] == one["gradient_bytes"] + one["statistics_bytes"], "as much as it says is sent"
    assert ends.losses(compress) != ends.losses("off")
    assert ends.losses(compress) == pytest.approx(ends.losses("off"), rel=0.05)


@pytest.mark.parametrize("compress", ["bf16", "fp16"])
def test_compressed_gradients_give_the_same_bits_after_a_kill(ends: Ends, compress: str) -> None:
    assert -signal.SIGKILL in ends.codes[f"{compress} killed"][0]
    assert traces.digests(ends.run(f"{compress} killed")) == traces.digests(ends.run(compress))
    assert len(traces.record(ends.run(f"{compress} killed")).attempts) == 2


def test_powersgd_sends_little_and_learns(ends: Ends) -> None:
    found, losses = ends.ends("powersgd")[0], ends.losses("powersgd")
    assert found["step_bytes"] == found["gradient_bytes"] + found["statistics_bytes"]
    assert found["gradient_bytes"] * 10 < ends.ends("off")[0]["gradient_bytes"]
    assert losses[:6] == ends.losses("off")[:6], "the first steps are plain"
    assert losses[-1] != ends.losses("off")[-1] and losses[-1] < losses[0] - 0.1


def test_joint_batch_norm_of_two_processes_is_that_of_one_with_all_samples(ends: Ends) -> None:
    assert ends.losses("joint") == pytest.approx(ends.losses("alone"), rel=1e-4)
    assert ends.losses("joint", "eval") == pytest.approx(ends.losses("alone", "eval"), rel=1e-3)
    assert ends.losses("joint")[0] != pytest.approx(ends.losses("off")[0], rel=1e-4), "two batch norms are another one"
    joint, alone = ends.weights("joint"), ends.weights("alone")
    assert joint.keys() == alone.keys()
    for name in (name for name in joint if "running" in name):
        torch.testing.assert_close(joint[name], alone[name], rtol=2e-3, atol=2e-3, msg=lambda m, n=name: f"{n}: {m}")


def test_joint_batch_norm_keeps_its_statistics_where_it_is_frozen(ends: Ends) -> None:
    found, before = ends.weights("frozen"), load_file(ends.folder / "pretrained.safetensors")
    statistics = [name for name in before if "running" in name]
    assert statistics and all(torch.equal(found[name], before[name]) for name in statistics)


def test_joint_batch_norm_takes_a_process_for_each_atom(ends: Ends) -> None:
    assert ends.codes["refused"] == [[1]]
    assert "sync_bn is one batch norm of all 2 atoms, which takes 2 processes, and here are 1" in (
        traces.record(ends.run("refused")).why or ""
    )


def test_a_partial_step_of_three_atoms_on_two_processes_is_that_of_one(ends: Ends) -> None:
    trained = seen(ends.folder / "uneven", "train")
    assert trained == seen(ends.folder / "uneven alone", "train")
    assert set(trained.values()) == {1} and len(trained) == 2 * SAMPLES, "every sample once an epoch"
    assert ends.losses("uneven") == pytest.approx(ends.losses("uneven alone"), rel=1e-4)


def test_two_processes_then_one_then_two_see_the_same_samples_in_each_step(ends: Ends) -> None:
    first, second, third = ends.codes["changing"]
    assert first[1] == second[0] == -signal.SIGKILL and third == [0, 0]
    assert [attempt.world for attempt in traces.record(ends.run("changing")).attempts] == [2, 1, 2]
    trained = seen(ends.folder / "changing", "train")
    assert trained.keys() == seen(ends.folder / "staged", "train").keys()
    assert set(trained.values()) == {1, 2}, "some are done again"
    assert len(ends.losses("changing")) == len(ends.losses("staged"))
    # One process adds up in another order, and small differences grow.
    assert ends.losses("changing")[:3] == pytest.approx(ends.losses("staged")[:3], rel=1e-4)


def test_every_held_out_sample_is_counted_once(ends: Ends) -> None:
    for name in ("uneven", "uneven alone"):
        shown = seen(ends.folder / name, "eval")
        assert len(shown) == HELD_OUT and set(shown.values()) == {1}
        (row,) = traces.lines(ends.run(name), "eval")
        assert row.samples == HELD_OUT
    assert ends.losses("uneven", "eval") == pytest.approx(ends.losses("uneven alone", "eval"), rel=1e-3)


def test_a_process_that_hangs_ends_the_other_which_names_it_and_the_run_goes_on(ends: Ends) -> None:
    assert ends.codes["stopped"] == [[75, -signal.SIGKILL], [0, 0]]
    (what,) = traces.events(ends.run("stopped"), "peer_lost")
    assert re.match(r"process 1 on \S+ has given no sign of life for \d+ s \(last: step \d, \w+\); this process", what)
    assert traces.digests(ends.run("stopped")) == traces.digests(ends.run("off"))


def test_a_checkpoint_that_is_due_by_time_is_not_forgotten_over_an_evaluation(ends: Ends) -> None:
    steps = sorted(checkpoint.steps(ends.run("timed")))
    assert steps[-1] == 15
    assert max(later - sooner for sooner, later in itertools.pairwise(steps)) <= 4, steps


def workers(launcher: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The processes that a launcher has started, by rank."""
    return {int(child.environ()["RANK"]): child for child in psutil.Process(launcher.pid).children()}


def test_a_run_under_torchrun_outlives_a_killed_process_and_answers_in_json(
    asked: Config, ends: Ends, tmp_path: Path
) -> None:
    run = traces.begun(tmp_path / "run", settings.with_values(asked, LONGER))
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2", "-m", "stoker"]
    launcher = subprocess.Popen(
        [*PYTHON, *words, "work", str(run.folder), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while launcher.poll() is None and not (run.metrics.exists() and len(traces.lines(run)) > 5):
        time.sleep(0.01)
    workers(launcher)[1].kill()
    said, errors = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, errors[-3000:]
    assert json.loads(said)["record"]["status"] == "done", "nothing but the answer is on standard output"
    attempts = traces.record(run).attempts
    assert [attempt.world for attempt in attempts] == [2, 2] and attempts[-1].status == "done"
    assert traces.digests(run) == traces.digests(ends.run("longer"))


def test_the_loss_of_a_machine_leaves_the_other_to_go_on_alone(asked: Config, ends: Ends, tmp_path: Path) -> None:
    run = traces.begun(tmp_path / "run", settings.with_values(asked, STAGED))
    words = [
        "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id",
        "many", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1", "--max-restarts", "3",
    ]  # fmt: skip
    timing = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=2"
    machines = []
    for name, is_host, last_step in (("stays", 1, 0), ("goes", 0, 12)):
        how = ["--rdzv-conf", f"is_host={is_host},{timing}", "-m", "tests.whole.many"]
        with open(name, "w") as said:
            machines.append(
                subprocess.Popen(
                    [*PYTHON, *words, *how, "under a launcher", str(run.folder), str(last_step)],
                    cwd=Path(__file__).parents[2], stdout=said, stderr=said,
                    # Otherwise the store in which processes meet may go with the machine.
                    env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
                )
            )  # fmt: skip
    assert machines[0].wait(timeout=200) == 0, Path("stays").read_text()[-3000:]
    assert machines[1].wait(timeout=10) == -signal.SIGKILL
    assert [attempt.world for attempt in traces.record(run).attempts] == [2, 1]
    assert traces.record(run).status == "done"
    trained = seen(run.folder, "train")
    assert trained.keys() == seen(ends.folder / "staged", "train").keys()
    assert max(trained.values()) == 2, "some are done again"
