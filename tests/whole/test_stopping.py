"""A run that is asked to stop saves, ends with 75, and goes on later as if nothing had happened."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from stoker import api, checkpoint, cli, settings
from stoker.config import Config
from stoker.data.loader import Loader
from stoker.machine import spot
from stoker.runs import Run
from stoker.tasks.classify import Classify
from stoker.train import keeper

from ..machine import metadata
from . import traces
from .doomed import Start
from .traces import record
from .troubled import started

STEPS = 14  # 120 samples: 7 steps of 16 in each of two epochs


@pytest.fixture(scope="module")
def asked(quick: dict[str, Any], dial_folder: Path) -> Config:
    """Settings of a run of 14 steps with a checkpoint at the end of an epoch."""
    return api.configured(**quick, data=str(dial_folder))


@pytest.fixture(scope="module")
def whole(asked: Config, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the run comes to when nothing disturbs it."""
    return traces.digests(traces.undisturbed(tmp_path_factory.mktemp("whole") / "run", asked))


def assert_stopped(run: Run, *, at_step: int, by: str) -> None:
    """The run has ended with a whole checkpoint of the step that its record names."""
    found = record(run)
    assert found.status == "stopped" and found.attempts[-1].status == "stopped"
    assert f"{by} at step {at_step} of {STEPS}" in (found.why or "")
    assert found.result["step"] == checkpoint.newest_whole(run) == at_step
    assert not list(run.checkpoints.glob(".*")), "nothing half-written is left"


def assert_goes_on(run: Run, whole: dict[str, str]) -> None:
    """The same command again brings the run to the same end."""
    assert cli.main(["work", str(run.folder)]) == 0
    assert traces.digests(run) == whole


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_a_signal_in_a_step_stops_the_run_after_it(
    asked: Config, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = traces.begun(Path("run"), asked)
    with monkeypatch.context() as patch:
        traces.signalled_at(patch, signal.Signals[name], step_number=9)
        assert cli.main(["work", "run"]) == 75
    assert_stopped(run, at_step=10, by=name)
    assert_goes_on(run, whole)


def test_the_notice_of_a_spot_machine_stops_the_run(
    asked: Config, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = traces.begun(Path("run"), asked)
    monkeypatch.setattr(spot, "POLL_SECONDS", 0.02)

    def noticed(gear: Any) -> None:
        if gear.state.at.step == 4:
            service.notice("terminate", seconds=120)
            while gear.site.stop.by is None:
                threading.Event().wait(0.01)
            assert 100 < gear.site.stop.seconds_left() <= 120

    with metadata.served() as service, monkeypatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.address)
        traces.at_update(patch, noticed)
        assert cli.main(["work", "run"]) == 75
        assert any(line.startswith("PUT") for line in service.asked), "it speaks the second version"
    assert_stopped(run, at_step=5, by="spot notice (terminate)")
    assert_goes_on(run, whole)


def test_a_signal_stops_a_run_in_the_middle_of_an_evaluation(
    asked: Config, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = traces.begun(Path("run"), asked)
    score, calls = Classify.score, []

    def slow(self: Any, model: Any, inputs: Any) -> Any:
        calls.append(1)
        assert len(calls) == 1, "the evaluation went on"
        os.kill(os.getpid(), signal.SIGTERM)
        return score(self, model, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(Classify, "score", slow)
        assert cli.main(["work", "run"]) == 75
    assert_stopped(run, at_step=7, by="SIGTERM")
    assert traces.lines(run, "eval") == []
    assert_goes_on(run, whole)


@pytest.mark.parametrize("where", ["training", "evaluation"])
def test_a_signal_stops_a_run_that_waits_for_data_that_never_comes(
    asked: Config, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run = traces.begun(Path("run"), asked)
    ready, waits = Loader.ready, []

    def never(self: Loader, seconds: float) -> bool:
        if self.is_training != (where == "training") or (self.is_training and self._taken < 5):
            self._taken = getattr(self, "_taken", 0) + 1
            return ready(self, seconds)
        waits.append(seconds)
        if len(waits) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        assert len(waits) < 4, "it waits on"
        return False

    with monkeypatch.context() as patch:
        patch.setattr(Loader, "_taken", 0, raising=False)
        patch.setattr(Loader, "ready", never)
        assert cli.main(["work", "run"]) == 75
    assert max(waits) <= 1.0, "it looks up at least once a second"
    assert_stopped(run, at_step=5 if where == "training" else 7, by="SIGTERM")
    assert_goes_on(run, whole)


def test_a_signal_to_one_of_two_processes_stops_both_at_the_same_step(asked: Config, tmp_path: Path) -> None:
    two = settings.with_values(asked, {"atoms": 2})
    run = traces.begun(tmp_path / "run", two)
    other = traces.begun(tmp_path / "whole", two)
    start, end = Start(folder=str(run.folder), processes=2), Start(folder=str(other.folder), processes=2)
    codes = started(
        (end, "", {}),
        (start, "signal", {"at_step": 3, "rank": 1}),
        (start, "signal", {"at_step": 8, "rank": 0, "number": signal.SIGUSR1}),
        (start, "", {}),
    )
    assert codes == [[0, 0], [75, 75], [75, 75], [0, 0]]
    assert [attempt.status for attempt in record(run).attempts] == ["stopped", "stopped", "done"]
    assert traces.digests(run) == traces.digests(other)


def test_the_second_signal_ends_a_run_at_once(asked: Config, whole: dict[str, str], tmp_path: Path) -> None:
    run = traces.begun(tmp_path / "run", asked)
    start = Start(folder=str(run.folder))
    codes = started((start, "two signals", {"at_step": 9}), (start, "", {}))
    assert codes == [[-signal.SIGTERM], [0]]
    assert traces.digests(run) == whole


def test_a_machine_that_goes_away_too_early_costs_only_the_last_checkpoint(
    asked: Config, whole: dict[str, str], tmp_path: Path
) -> None:
    run = traces.begun(tmp_path / "run", asked)
    start = Start(folder=str(run.folder))
    codes = started((start, "no time", {"at_step": 9}), (start, "", {}))
    assert codes[0] != [0] and codes[1] == [0]
    assert [attempt.status for attempt in record(run).attempts] == ["stopped", "done"]
    assert traces.digests(run) == whole


def test_checkpoints_are_made_after_so_many_minutes(asked: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    run = traces.begun(Path("run"), settings.with_values(asked, {"checkpoint_minutes": 1e-9}))
    traces.signalled_at(monkeypatch, signal.SIGTERM, step_number=4)
    written = noted_steps(monkeypatch)
    assert cli.main(["work", "run"]) == 75
    assert written == [0, 1, 2, 3, 4, 5], "every step is late"
    assert checkpoint.steps(run) == [5, 4] or set(checkpoint.steps(run)) == {3, 4, 5}


def test_checkpoints_are_made_by_what_they_cost(asked: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    traces.begun(Path("often"), settings.with_values(asked, {"mtbf_hours": 1e-12}))
    traces.begun(Path("seldom"), settings.with_values(asked, {"mtbf_hours": 1e6}))
    monkeypatch.setattr(keeper, "LEAST_SECONDS", 0.0)
    written = noted_steps(monkeypatch)
    assert cli.main(["work", "often"]) == 0
    assert len(written) > 5, "a machine that fails all the time"
    written.clear()
    assert cli.main(["work", "seldom"]) == 0
    assert written == [0, 7, 14], "a machine that never fails"


def noted_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the step of every checkpoint that is written."""
    write, steps = checkpoint.write, []

    def noted(run: Run, step: int, files: Any) -> Path:
        steps.append(step)
        return write(run, step, files)

    monkeypatch.setattr(checkpoint, "write", noted)
    return steps


def test_the_newest_checkpoints_stay_and_those_of_every_few_epochs(asked: Config) -> None:
    config = settings.with_values(asked, {"epochs": 4, "keep_last": 3, "keep_epochs": 2, "checkpoint_steps": 2})
    run = traces.undisturbed(Path("run"), config)
    names = checkpoint.named(run)
    assert (names["epoch_2"], names["epoch_4"], names["latest"]) == (14, 28, 28)
    newest = {28, 26, 24}
    assert set(checkpoint.steps(run)) == newest | set(names.values())
