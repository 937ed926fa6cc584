"""What goes wrong in a run and can be mended does not end it: too little memory, divergence, a compiler that fails."""

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stoker import api, checkpoint, cli, settings
from stoker.config import Config
from stoker.errors import Problem
from stoker.runs import Run
from stoker.tasks.classify import Classify
from stoker.train import memory, step

from . import traces
from .doomed import Start
from .traces import record
from .troubled import started

STEPS = 14  # 120 samples: 7 steps of 16 in each of two epochs


@pytest.fixture(scope="module")
def asked(quick: dict[str, Any], dial_folder: Path) -> Config:
    """Settings of a run of 14 steps, with a line after every 2 of an epoch and a checkpoint after every 3."""
    return api.configured(**quick, data=str(dial_folder), checkpoint_steps=3)


@pytest.fixture(scope="module")
def whole(asked: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run when nothing disturbs it."""
    return traces.undisturbed(tmp_path_factory.mktemp("whole") / "run", asked)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.find(run, "latest") / checkpoint.MODEL)


def starve(monkeypatch: pytest.MonkeyPatch, *, most: int, after: int = 0, error: type[Exception] | None = None) -> None:
    """Let memory end for atoms of more samples, from some step on."""
    loss, calls = Classify.loss, [0]

    def starved(self: Any, model: Any, inputs: Any) -> Any:
        calls[0] += 1
        found = loss(self, model, inputs)
        if calls[0] > after and len(inputs.labels) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.") if error is None else error()
        return found

    monkeypatch.setattr(Classify, "loss", starved)


def test_a_step_that_runs_out_of_memory_goes_on_with_smaller_atoms(
    asked: Config, whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    starve(monkeypatch, most=4, after=4)
    visits = traces.seen(monkeypatch)
    run = traces.undisturbed(Path("run"), asked)
    assert record(run).fixed["atoms"] == 4
    assert {len(visit.samples) for visit in visits[-8:]} == {4}
    assert len(traces.by_position(visits)) == 2 * 7 * 16, "the same samples, none twice with another place"
    # Lines of as many samples as ever: nothing is lost, nothing is counted twice.
    assert [(row.step, row.samples) for row in traces.lines(run)] == [
        (row.step, row.samples) for row in traces.lines(whole)
    ]
    assert [row.scores for row in traces.lines(run)[:2]] == [row.scores for row in traces.lines(whole)[:2]]
    told = traces.events(run, "out-of-memory")
    assert len(told) == 2 and "step 4" in told[0] and "2 atoms of 8 in the place of 1" in told[0]
    assert "the batch stays 16" in told[0] and "batch norm sees fewer samples" in told[0]
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values() if tensor.is_floating_point())


def test_smaller_atoms_stay_when_the_run_is_started_again(asked: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    run = traces.begun(Path("run"), asked)
    with monkeypatch.context() as patch:
        starve(patch, most=8)
        traces.signalled_at(patch, 15, step_number=8)
        assert api.work(run.folder, show=False).record.status == "stopped"
    visits = traces.seen(monkeypatch)
    assert api.work(run.folder, show=False).record.status == "done"
    assert {len(visit.samples) for visit in visits} == {8}
    assert record(run).fixed["atoms"] == 2


def test_what_a_run_out_of_memory_has_found_out_counts_from_its_first_step(
    asked: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = traces.begun(Path("run"), asked)
    with monkeypatch.context() as patch:
        starve(patch, most=8)
        traces.signalled_at(patch, 15, step_number=0)
        patch.setattr(checkpoint, "write", refused)
        with pytest.raises(Problem, match="the disk is full"):
            api.work(run.folder, show=False)
    visits = traces.seen(monkeypatch)
    assert api.work(run.folder, show=False).record.status == "done"
    assert {len(visit.samples) for visit in visits} == {8}


def refused(*_: Any) -> Path:
    raise Problem("the disk is full", fix="free some space")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_where_atoms_can_not_be_smaller_the_run_ends_and_says_what_to_do(
    asked: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: type[Exception]
) -> None:
    run = traces.begun(Path("run"), asked)
    starve(monkeypatch, most=1, after=8, error=error)
    assert cli.main(["work", "run"]) == 2
    assert record(run).status == "oom" and record(run).fixed["atoms"] == 8
    printed = capsys.readouterr().err
    assert "smallest atoms" in printed and "--resolution" in printed and "Traceback" not in printed


def test_the_memory_of_the_step_that_failed_is_free_before_the_next(
    asked: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, left = Classify.loss, []

    def watched(self: Any, model: Any, inputs: Any) -> Any:
        activations = torch.zeros(1000)
        assert not [ref for ref in left if ref() is not None], "the step that failed still holds its memory"
        if len(inputs.labels) > 8:
            left.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(self, model, inputs)

    monkeypatch.setattr(Classify, "loss", watched)
    gc.disable()  # whoever relies on chance for it has lost
    try:
        traces.undisturbed(Path("run"), settings.with_values(asked, {"epochs": 1}))
    finally:
        gc.enable()
    assert left


@pytest.mark.parametrize("amp", ["off", "fp16"])
def test_an_update_that_runs_out_of_memory_is_done_again_from_the_checkpoint(
    asked: Config, whole: Run, monkeypatch: pytest.MonkeyPatch, amp: str
) -> None:
    run = traces.begun(Path("run"), settings.with_values(asked, {"amp": amp, "clip": 1.0, "atoms": 2}))
    update, calls = torch.optim.SGD.step, [0]

    def failing(self: Any, *args: Any, **values: Any) -> Any:
        calls[0] += 1
        if calls[0] == 6:
            next(self.param_groups[0]["params"].__iter__()).data.fill_(7.0)  # half of it is done
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return update(self, *args, **values)

    monkeypatch.setattr(torch.optim.SGD, "step", failing)
    assert api.work(run.folder, show=False).record.status == "done"
    assert record(run).fixed["atoms"] == 4 and len(traces.events(run, "out-of-memory")) == 1
    # Steps 4 and 5 are done again, from the checkpoint of step 3, and stand in the metrics once.
    assert [(row.step, row.samples) for row in traces.lines(run)] == [
        (row.step, row.samples) for row in traces.lines(whole)
    ]
    assert (traces.last_ledger(run).totals["lost"] or 0) > 0
    traces.assert_the_ledger_is_the_wall_clock(run)


def test_one_batch_norm_of_all_atoms_is_never_cut_into_more(asked: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    run = traces.begun(Path("run"), settings.with_values(asked, {"sync_bn": True}))
    with monkeypatch.context() as patch:
        starve(patch, most=8, after=8)
        with pytest.raises(Problem, match="out of memory"):
            api.work(run.folder, show=False)
    assert record(run).status == "oom"
    assert api.work(run.folder, show=False).record.status == "done", "with more memory it goes on"


def poison(monkeypatch: pytest.MonkeyPatch, when: Callable[[int, float], bool]) -> list[float]:
    """Let updates make numbers that are none, by the step and its rate. Returns the rates as they come."""
    rates: list[float] = []
    update = step.update

    def poisoned(gear: Any, *, rate: float) -> None:
        rates.append(rate)
        update(gear, rate=rate)
        if when(gear.state.at.step, rate):
            with torch.no_grad():
                next(gear.state.network.parameters()).fill_(torch.nan)

    monkeypatch.setattr(step, "update", poisoned)
    return rates


@pytest.fixture(scope="module")
def steady(asked: Config) -> Config:
    """The same at a constant rate of 0.00625."""
    return settings.with_values(asked, {"schedule": "constant"})


# After step 8 a checkpoint is due, which finds the weights broken; after step 9 a line is due first.
@pytest.mark.parametrize("at_step", [8, 9])
def test_a_run_that_diverges_goes_back_with_half_the_rate_and_gets_to_its_end(
    steady: Config, monkeypatch: pytest.MonkeyPatch, at_step: int
) -> None:
    poison(monkeypatch, lambda step, rate: step == at_step and rate > 0.002)
    run = traces.undisturbed(Path("run"), steady)
    rates = [row.lr for row in traces.lines(run)]
    before = 4 if at_step == 8 else 5
    assert rates == pytest.approx([0.00625] * before + [0.0015625] * (8 - before))
    assert [row.step for row in traces.lines(run)] == [2, 4, 6, 7, 8, 10, 12, 14]
    told = traces.events(run, "rollback")
    assert len(told) == 2 and f"back to step {7 if at_step == 8 else 9}, with 0.5 x the rate" in told[0]
    assert "not finite" in told[0] or "the loss is nan" in told[0]
    assert "1. " in told[0] and "try --" in told[0], "the likely causes are named"
    totals = traces.last_ledger(run).totals
    assert (totals["lost"] or 0) > 0 and (totals["rollback"] or 0) > 0
    traces.assert_the_ledger_is_the_wall_clock(run)
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values() if tensor.is_floating_point())
    assert not checkpoint.is_torn(checkpoint.find(run, "latest")) and checkpoint.find(run, "best").exists()


def test_a_run_that_diverges_again_and_again_ends_and_says_why(
    steady: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    poison(monkeypatch, lambda step, _: step == 8)
    run = traces.begun(Path("run"), steady)
    assert cli.main(["work", "run"]) == 1
    assert record(run).status == "diverged" and "after 3 rollbacks" in (record(run).why or "")
    assert "--clip" in (record(run).why or "") and "diverged" in capsys.readouterr().out
    assert len(traces.events(run, "rollback")) == 3 and len(traces.events(run, "diverged")) == 1
    traces.assert_the_ledger_is_the_wall_clock(run)
    # What is left is whole and sound, and no name stands for nothing.
    names, steps = checkpoint.named(run), set(checkpoint.steps(run))
    assert set(names.values()) <= steps and names["latest"] == max(steps) <= 7
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values() if tensor.is_floating_point())


def test_a_run_that_explodes_from_the_start_leaves_weights_from_before(steady: Config) -> None:
    changes = {"peak_lr": 1e3, "warmup_epochs": 0.0, "checkpoint_steps": 1, "log_steps": 2, "epochs": 4}
    run = traces.begun(Path("run"), settings.with_values(steady, changes))
    assert api.work(run.folder, show=False).record.status == "diverged"
    assert checkpoint.named(run)["latest"] == max(checkpoint.steps(run)) == 0, "nothing after the beginning was well"


def test_a_rate_that_is_far_too_high_is_found_without_help(steady: Config) -> None:
    run = traces.begun(Path("run"), settings.with_values(steady, {"peak_lr": 1e6, "warmup_epochs": 0.0}))
    assert api.work(run.folder, show=False).record.status == "diverged"
    assert (
        "the rate of" in traces.events(run, "rollback")[0] and "x that of the rule" in traces.events(run, "rollback")[0]
    )


def test_a_run_told_to_stop_when_it_diverges_stops_at_once(steady: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = poison(monkeypatch, lambda step, _: step == 8)
    run = traces.begun(Path("run"), settings.with_values(steady, {"on_divergence": "stop"}))
    assert api.work(run.folder, show=False).record.status == "diverged"
    assert len(rates) == 9 and traces.events(run, "rollback") == []
    assert "not finite" in (record(run).why or "") and "rollbacks" not in (record(run).why or "")
    assert checkpoint.steps(run)[0] == 7, "weights that are no numbers are never saved"


class Killed(BaseException):
    """Stands for the end of a process that nobody could prepare for."""


def test_a_run_killed_after_it_went_back_keeps_the_lower_rate(steady: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    run = traces.begun(Path("run"), steady)
    with monkeypatch.context() as patch:
        rates = poison(patch, lambda step, rate: step == 8 and rate > 0.004)

        def killed(_: Any) -> None:
            if len(rates) == 10:
                raise Killed

        traces.at_update(patch, killed)
        with pytest.raises(Killed):
            api.work(run.folder, show=False)
    assert rates[-1] == pytest.approx(0.003125)
    rates = poison(monkeypatch, lambda step, rate: step == 8 and rate > 0.004)
    assert api.work(run.folder, show=False).record.status == "done"
    assert rates == pytest.approx([0.003125] * 7)
    traces.assert_the_ledger_is_the_wall_clock(run)


def test_a_run_that_goes_back_and_diverges_before_its_next_line_goes_back_to_the_same_place(
    steady: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lines after steps 5, 7, 10 and 14, checkpoints after 4, 7, 8, 12 and 14, and no evaluation that keeps one.
    config = settings.with_values(steady, {"log_steps": 5, "checkpoint_steps": 4, "eval_epochs": 2})
    poison(monkeypatch, lambda step, rate: (step, round(rate, 6)) in ((12, 0.00625), (8, 0.003125)))
    run = traces.undisturbed(Path("run"), config)
    assert [what.splitlines()[-1].rpartition("; ")[2] for what in traces.events(run, "rollback")] == [
        "from step 14 back to step 8, with 0.5 x the rate",
        "from step 10 back to step 8, with 0.25 x the rate",
    ]


def test_many_processes_go_on_with_smaller_atoms_when_they_are_started_again(asked: Config, tmp_path: Path) -> None:
    run = traces.begun(tmp_path / "run", asked)
    start = Start(folder=str(run.folder), processes=2)
    # The very first step is where memory mostly ends, and there is nothing saved yet but the beginning.
    codes = started((start, "memory", {"most": 4, "rank": 1}), (start, "memory", {"most": 4, "rank": 1}))
    assert 0 not in codes[0] and codes[1] == [0, 0]
    assert record(run).fixed["atoms"] == 4 and "8 samples an atom" in traces.events(run, "out-of-memory")[0]


def test_many_processes_go_back_together(steady: Config, tmp_path: Path) -> None:
    run = traces.begun(tmp_path / "run", settings.with_values(steady, {"atoms": 2}))
    start = Start(folder=str(run.folder), processes=2)
    assert started((start, "divergence", {"at_step": 8, "above": 0.004})) == [[0, 0]]
    assert [row.lr for row in traces.lines(run)] == pytest.approx([0.00625] * 4 + [0.003125] * 4)
    assert len(traces.events(run, "rollback")) == 1


def test_a_batch_that_fits_is_found_and_kept(asked: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    run = traces.begun(Path("run"), settings.with_values(asked, {"batch": "auto"}))
    with monkeypatch.context() as patch:
        traces.signalled_at(patch, 15, step_number=1)
        assert cli.main(["work", "run"]) == 75
    found = record(run).fixed["batch"]
    assert 2 <= found <= 120
    monkeypatch.setattr(memory, "largest_batch", None)  # nothing is measured again
    assert cli.main(["work", "run"]) == 0
    assert record(run).fixed["batch"] == found and {row.samples % found for row in traces.lines(run)} == {0}


def compiled(run: Run, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Train a run whose network is compiled, with nothing left from an earlier time."""
    own = {"TORCHINDUCTOR_CACHE_DIR": str(Path("inductor").absolute()), **environment}
    words = [sys.executable, "-m", "stoker", "work", str(run.folder)]
    return subprocess.run(words, env={**os.environ, **own}, capture_output=True, text=True, timeout=300)


def test_a_network_that_can_not_be_compiled_is_trained_without(asked: Config, whole: Run) -> None:
    run = traces.begun(Path("run"), settings.with_values(asked, {"compile": True}))
    done = compiled(run, CXX="/bin/false")
    assert done.returncode == 0, done.stderr[-2000:]
    (told,) = traces.events(run, "compile")
    assert "can't be compiled" in told and told in " ".join(done.stderr.split()) and "slower" in told
    assert record(run).fixed["compile"] is False
    assert traces.digests(run) == traces.digests(whole), "without is as if it had never been asked for"
    assert (traces.last_ledger(run).totals["compile"] or 0) > 0


@pytest.mark.long
def test_a_network_that_is_compiled_trains(asked: Config) -> None:
    run = traces.begun(Path("run"), settings.with_values(asked, {"compile": True, "epochs": 1}))
    done = compiled(run)
    assert done.returncode == 0, done.stderr[-2000:]
    assert traces.events(run, "compile") == [] and (traces.last_ledger(run).totals["compile"] or 0) > 0
    assert "compile" not in record(run).fixed and record(run).result["step"] == 7


LITTLE_MEMORY = """
import resource, sys
from stoker import api, cli
from stoker.tasks import classify
from stoker.train import loop
import torch, timm
torch.set_num_threads(1)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + int(sys.argv[2]), -1))
sys.exit(cli.main(["work", sys.argv[1]]))
"""


def test_a_real_lack_of_memory_is_overcome(quick: dict[str, Any], dial_folder: Path) -> None:
    large = {**quick, "data": str(dial_folder), "resolution": 224, "batch": 96, "epochs": 1, "threads": 1}
    run = traces.begun(Path("run"), api.configured(**large))
    words = [sys.executable, "-c", LITTLE_MEMORY, "run", str(700_000_000)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert record(run).fixed["atoms"] > 1 and record(run).result["step"] == 1
    assert "memory" in traces.events(run, "out-of-memory")[0]
