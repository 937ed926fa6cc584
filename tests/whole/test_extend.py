"""A run can begin with the settings and the state of another, which stays as it is; what changes is said."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from stoker import api, checkpoint, cli
from stoker.errors import Problem
from stoker.runs import Run

from . import traces
from .traces import record


@pytest.fixture(scope="module")
def finished(quick: dict[str, Any], dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 2 epochs of 7 steps."""
    config = api.configured(**quick, data=str(dial_folder))
    return traces.undisturbed(tmp_path_factory.mktemp("finished") / "first", config).folder


@pytest.fixture
def first(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "first")


def test_a_run_goes_on_as_another_with_more_epochs_and_another_batch(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = traces.content(first)
    trained = api.train(extend=first, epochs=4, batch=24)
    assert traces.content(first) == before, "the old run is as it was"
    said = capsys.readouterr().err
    assert "extend   epochs: 2 -> 4\n" in said and "extend   batch: 16 -> 24\n" in said and said.count("extend ") == 2
    assert f"begins with the weights of {first / 'checkpoints' / '00000014'}, step 14" in said
    assert trained.record.status == "done" and trained.folder.parent == Path("runs")
    assert trained.folder.name.startswith("first-") and trained.record.resumed_from.endswith("00000014")
    run = Run(trained.folder)
    # 5 steps of 24 in each of two more epochs; the rates are those of a run of 4 epochs with that batch.
    assert [row.step for row in traces.lines(run)] == [16, 18, 19, 20, 22, 24] and trained.record.result["epoch"] == 4
    assert [(row.epoch, row.step) for row in traces.lines(run, "eval")] == [(2, 14), (3, 19), (4, 24)]
    rates = [row.lr or 0.0 for row in traces.lines(run)]
    assert rates[0] < 0.1 * 24 / 256 / 2 * 1.01 and rates == sorted(rates, reverse=True)
    assert traces.lines(run, "eval")[0].scores == pytest.approx(traces.lines(Run(first), "eval")[-1].scores)
    traces.assert_the_ledger_is_the_wall_clock(run)


def test_the_optimiser_goes_on_too(first: Path, tmp_path: Path, quick: dict[str, Any], dial_folder: Path) -> None:
    # With a constant rate nothing of a longer run differs from the beginning on but its length.
    same = {**quick, "data": str(dial_folder), "schedule": "constant"}
    traces.undisturbed(tmp_path / "short", api.configured(**same))
    long = traces.undisturbed(tmp_path / "long", api.configured(**{**same, "epochs": 3}))
    trained = api.train(extend=tmp_path / "short", epochs=3, show=False)
    mine, other = traces.digests(Run(trained.folder)), traces.digests(long)
    assert {name: mine[name] for name in ("model.safetensors", "optimizer.safetensors", "latest")} == {
        name: other[name] for name in ("model.safetensors", "optimizer.safetensors", "latest")
    }


def test_the_same_command_again_goes_on(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "--extend", str(first), "--epochs", "4", "--name", "second"]
    with monkeypatch.context() as patch:
        traces.signalled_at(patch, 15, step_number=17)
        assert cli.main(words) == 75
    assert cli.main(words) == 0
    run = Run(Path("runs/second"))
    assert len(record(run).attempts) == 2 and record(run).result["step"] == 28
    assert cli.main(["train", "--extend", str(first), "--epochs", "4", "--name", "whole"]) == 0
    assert traces.digests(run) == traces.digests(Run(Path("runs/whole")))
    assert cli.main(words) == 0 and len(record(run).attempts) == 2, "done is done"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing is changed"),
        (["--log-steps", "5"], "nothing is changed"),
        (["--epochs", "1"], "2 epochs behind it"),
        (["--epochs", "3", "--model", "timm/test_vit"], "not the network of this run"),
        (["--epochs", "3", "--optimizer", "adamw"], "optimizer sgd"),
        (["--epochs", "3", "--amp", "bf16"], "amp off"),
        (["--epochs", "3", "--seed", "1"], "another seed"),
        (["--epochs", "3", "--resume", "latest"], "its own settings and state"),
        (["--epochs", "3", "--config", "some.toml"], "both bring settings"),
    ],
)
def test_what_can_not_be_gone_on_with_is_refused(
    first: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    before = traces.content(first)
    assert cli.main(["train", "--extend", str(first), *words]) == 2
    printed = capsys.readouterr().err
    assert said in " ".join(printed.split()) and "Traceback" not in printed
    assert traces.content(first) == before and not list(Path().glob("runs/*")), "nothing is left behind"


def test_an_extension_has_no_recipe_and_needs_a_run_with_a_checkpoint(first: Path) -> None:
    with pytest.raises(Problem, match="its own settings and state"):
        api.train("demo", extend=first, epochs=3, show=False)
    with pytest.raises(Problem, match="is no run"):
        api.train(extend="nothing", epochs=3, show=False)
    shutil.rmtree(first / "checkpoints")
    (first / "latest").unlink()
    with pytest.raises(Problem, match="no checkpoint to go on from"):
        api.train(extend=first, epochs=3, show=False)


def test_a_run_that_was_given_up_can_be_extended_at_the_rate_of_its_settings(
    quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = traces.begun(Path("run"), api.configured(**quick, data=str(dial_folder), schedule="constant"))
    with monkeypatch.context() as patch:
        traces.diverging(patch, from_step=8)
        assert api.work(run.folder, show=False).record.status == "diverged"
    assert checkpoint.pointed_step(run.pointer("latest")) == 7
    trained = api.train(extend=run.folder, peak_lr=0.001, show=False)
    assert trained.record.status == "done"
    assert {row.lr for row in traces.lines(Run(trained.folder))} == {0.001}
