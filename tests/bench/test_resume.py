import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as tensors_of

from stoker import api, checkpoint, cli, locks
from stoker.bench import restarts, resume, step
from stoker.bench.ground import Ground, Load
from stoker.bench.restarts import Restarts
from stoker.bench.spread import spread
from stoker.errors import Problem
from stoker.runs import Run
from stoker.train import state as states

LOAD = Load(model="timm/test_resnet", resolution=32, batch=4, device="cpu")
WORDS = ["bench", "resume", "--model", "timm/test_resnet", "--resolution", "32", "--batch", "4", "--device", "cpu"]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with Ground(LOAD, tmp_path / "ground", most_steps=10).opened() as opened:
        opened.seconds(2)
        yield opened


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that were started and stopped in no time, and short rounds."""
    one = spread([1.0])
    monkeypatch.setattr(resume, "ROUND_SECONDS", 0.01)
    monkeypatch.setattr(restarts, "measured", lambda *_, **__: Restarts(saved=one, ended=one, resumed=one))


@pytest.mark.usefixtures("no_children")
def test_the_answer_has_this_shape_and_nothing_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*WORDS, "--rounds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {
        "model", "device", "amp", "resolution", "batch", "state_bytes", "rows", "write_bytes_per_second",
        "blocked_share", "slowed_share",
    }  # fmt: skip
    assert [row["what"] for row in found["rows"]] == [
        "training held up by a save", "of it the snapshot", "of it the snapshot",
        "a checkpoint on disk, beside training", "a step while one is written", "from SIGTERM to a whole checkpoint",
        "from SIGTERM to the end of the process", "from its start to the first step it goes on with",
    ]  # fmt: skip
    for row in found["rows"][:5]:
        assert row["ratio"]["count"] == row["seconds"]["count"] == row["peer"]["count"] == 2
        assert 0 < row["ratio"]["least"] <= row["ratio"]["middle"] <= row["ratio"]["most"]
    assert found["state_bytes"] > 1e6 and found["rows"][7]["peer"] is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_children")
def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*WORDS, "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert "torch.save and fsync" in out and "from SIGTERM to a whole checkpoint" in out
    assert "with one every minute, saving takes " in out and " MB/s" in out


def test_every_way_of_saving_saves_the_same_state(ground: Ground, tmp_path: Path) -> None:
    path = tmp_path / "peer.pt"
    found = resume.saved(ground, path)
    assert min(vars(found).values()) > 0 and found.snapshot < found.blocked
    theirs, (saved,) = torch.load(path), checkpoint.steps(ground.site.run)
    assert saved == ground.state.at.step == 3
    before = {**ground.state.network.state_dict(), **states.optimizer_tensors(ground.state)}
    assert any(name.endswith("/momentum_buffer") for name in before)
    torch.testing.assert_close(theirs, {name: tensor.detach() for name, tensor in before.items()}, rtol=0, atol=0)
    ours = tensors_of(checkpoint.read(checkpoint.folder(ground.site.run, saved))[checkpoint.MODEL])
    torch.testing.assert_close(ours, {name: theirs[name] for name in ours}, rtol=0, atol=0)


def test_checkpoints_are_written_while_it_is_asked_for_and_not_after(ground: Ground) -> None:
    written = []
    real = checkpoint.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write", lambda run, step, files: written.append(step) or real(run, step, files))
        with resume.writing(ground):
            ground.seconds(5)
        count = len(written)
        ground.seconds(2)
    assert count == len(written) >= 1 and written == list(range(1, count + 1))
    assert not checkpoint.is_torn(checkpoint.folder(ground.site.run, count))


def test_a_writer_that_fails_is_not_silent(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise Problem("the disk is full", fix="buy another")

    monkeypatch.setattr(checkpoint, "write", full)
    with pytest.raises(Problem, match="the disk is full"), resume.writing(ground):
        pass


def test_steps_beside_a_writer_and_without_one_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Counted:
        def seconds(self, steps: int) -> float:
            log.append("step")
            return 1.0

    @contextlib.contextmanager
    def writing(_: object) -> Iterator[None]:
        log.append("begin")
        yield
        log.append("end")

    monkeypatch.setattr(resume, "writing", writing)
    pairs = list(resume.steps_taken(Counted(), rounds=2))  # type: ignore[arg-type]
    assert pairs == [(1.0, 1.0)] * 2
    assert log[1:] == ["begin", "step", "end", "step", "step", "begin", "step", "end"]


def test_pictures_and_batches_suit_the_device_unless_they_are_said() -> None:
    unsaid = Load(model="m", resolution=0, batch=0, device="cpu")
    assert unsaid.suited(resume.SUITED) == Load(model="m", resolution=64, batch=8, device="cpu")
    assert unsaid.suited(step.SUITED) == Load(model="m", resolution=224, batch=8, device="cpu")
    assert LOAD.suited(resume.SUITED) == LOAD
    with pytest.raises(Problem, match="rounds is 0"):
        api.bench_resume(rounds=0)


def test_a_process_is_stopped_and_goes_on_from_a_whole_checkpoint(tmp_path: Path) -> None:
    found = restarts.measured(LOAD, tmp_path, rounds=1, show=False)
    assert found.resumed.count == 1 and 0 < found.saved.middle <= found.ended.middle
    run = Run(tmp_path / "run")
    record = json.loads(run.record.read_text())
    assert [attempt["status"] for attempt in record["attempts"]] == ["stopped", "stopped"]
    assert not locks.is_held(run.lock)


@pytest.mark.parametrize(
    ("code", "said"),
    [("raise SystemExit('boom')", "ended and said:\nboom"), ("import time; time.sleep(60)", "took no")],
)
def test_a_process_that_never_trains_is_ended_and_its_words_are_told(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def popen(_: list[str], **how: object) -> "subprocess.Popen[bytes]":
        started.append(real([sys.executable, "-c", code], **how))  # type: ignore[call-overload]
        return started[0]

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(restarts, "MOST_SECONDS", 1.0)
    with pytest.raises(Problem, match=said):
        restarts.measured(LOAD, tmp_path, rounds=1, show=False)
    assert started[0].poll() is not None
