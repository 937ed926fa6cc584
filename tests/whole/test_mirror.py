"""A run whose machine is gone goes on elsewhere from its mirror."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import api, checkpoint, cli, settings
from stoker.config import Config
from stoker.runs import Run
from stoker.tasks.classify import Classify

from . import traces
from .traces import record


@pytest.fixture(scope="module")
def asked(quick: dict[str, Any], dial_folder: Path) -> Config:
    """Settings of a run of 14 steps with a checkpoint after every 3."""
    return api.configured(**quick, data=str(dial_folder), checkpoint_steps=3)


@pytest.fixture
def words(asked: Config) -> list[str]:
    """The command of such a run with a mirror."""
    Path("volume").mkdir()
    Path("asked.json").write_text(settings.as_json(asked))
    return ["train", "--config", "asked.json", "--name", "run", "--mirror", "volume"]


def test_a_run_goes_on_from_its_mirror_to_the_same_end(
    asked: Config, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = traces.digests(traces.undisturbed(Path("whole"), asked))
    run, there = Run(Path("runs/run")), Run(Path("volume/run"))
    with monkeypatch.context() as patch:
        traces.signalled_at(patch, 15, step_number=9)
        assert cli.main(words) == 75
    assert record(there).status == "stopped" and checkpoint.newest_whole(there) == 10
    shutil.rmtree("runs")  # the machine is gone
    assert cli.main(words) == 0
    assert traces.digests(run) == whole == traces.digests(there)
    assert record(there).status == "done" and len(record(there).attempts) == 2
    assert traces.events(there, "not-mirrored") == []
    shutil.rmtree("runs")
    assert cli.main(words) == 0
    assert record(run).status == "done" and len(record(run).attempts) == 2, "done is done, on any machine"


def is_quiet(run: Run) -> bool:
    """Whether nothing is being written to a folder."""
    return not [*run.folder.glob(".*"), *run.checkpoints.glob(".*")]


def test_a_machine_killed_without_a_word_loses_what_came_after_the_last_checkpoint_alone(
    asked: Config, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = traces.digests(traces.undisturbed(Path("whole"), asked))
    there = Run(Path("volume/run"))

    def gone(gear: Any) -> None:
        if gear.state.at.step == 10:
            while checkpoint.newest_whole(there) != 9 or not is_quiet(there):  # it is copied beside training
                time.sleep(0.01)
            # What is being written at this moment may be gone at the next.
            shutil.copytree("volume", "left", ignore=shutil.ignore_patterns(".*"))
            raise SystemExit

    with monkeypatch.context() as patch:
        traces.at_update(patch, gone)
        with pytest.raises(SystemExit):
            cli.main(words)
    shutil.rmtree("runs")
    shutil.rmtree("volume")
    Path("left").rename("volume")
    assert record(there).status == "running"
    assert cli.main(words) == 0
    assert traces.digests(Run(Path("runs/run"))) == whole == traces.digests(there)
    assert traces.events(there, "not-mirrored") == []


def test_a_run_that_took_smaller_atoms_is_mirrored_on(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    loss, calls = Classify.loss, [0]

    def starved(self: Any, model: Any, inputs: Any) -> Any:
        calls[0] += 1
        if calls[0] > 8 and len(inputs.labels) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(self, model, inputs)

    monkeypatch.setattr(Classify, "loss", starved)
    assert cli.main(words) == 0
    run, there = Run(Path("runs/run")), Run(Path("volume/run"))
    assert traces.events(run, "not-mirrored") == []
    assert record(there).fixed["atoms"] == 2 and record(there).status == "done"
    assert traces.digests(run) == traces.digests(there)


def test_the_mirror_keeps_as_many_checkpoints_as_the_run(words: list[str]) -> None:
    assert cli.main([*words, "--keep-last", "4"]) == 0
    run, there = Run(Path("runs/run")), Run(Path("volume/run"))
    assert len(checkpoint.steps(run)) >= 4 and checkpoint.steps(there) == checkpoint.steps(run)
