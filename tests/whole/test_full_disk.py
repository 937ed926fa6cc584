"""A disk that fills up while a checkpoint is written costs that checkpoint, never the one before."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker import api, checkpoint, records, runs, settings
from stoker.errors import Problem
from stoker.runs import Run
from stoker.train import step

from .test_resume import digests, undisturbed

# A checkpoint of the test network takes 2.9 MiB.
SIZE = "size=32m"
LEFT_BYTES = 500_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system that is soon full."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", SIZE, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_costs_no_work_that_was_saved(
    small_disk: Path, tmp_path: Path, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = api.configured(**{**quick, "data": str(dial_folder), "checkpoint_steps": 3})
    whole = undisturbed(tmp_path / "whole", config)
    run, others = Run(small_disk / "run"), small_disk / "what others put there"
    runs.create(run.folder, settings.with_values(config, {"device": "cpu"}), resumed_from=None)
    write = checkpoint.write

    def filled_after_step_3(run: Run, step: int, files: Any) -> Path:
        dest = write(run, step, files)
        if step == 3:
            others.write_bytes(bytes(shutil.disk_usage(small_disk).free - LEFT_BYTES))
        return dest

    monkeypatch.setattr(checkpoint, "write", filled_after_step_3)
    with pytest.raises(Problem, match="the disk is full"):
        api.work(run.folder, show=False)

    assert checkpoint.steps(run)[0] == checkpoint.newest_whole(run) == 3
    assert not list(run.checkpoints.glob(".*")), "nothing half-written is left"
    kinds = [event.kind for event in records.read_lines(run.events, records.Event)]
    assert kinds.count("not-saved") > 1, "training went on after the first failure"
    assert records.read_record(run.record).status == "failed"

    others.unlink()
    assert api.work(run.folder, show=False).record.status == "done"
    assert digests(run) == whole


def test_a_disk_without_a_byte_left_does_not_end_a_run_and_its_lines_are_written_later(
    small_disk: Path, tmp_path: Path, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = api.configured(**{**quick, "data": str(dial_folder), "checkpoint_epochs": 2})
    whole = undisturbed(tmp_path / "whole", config)
    run, others = Run(small_disk / "run"), small_disk / "what others put there"
    runs.create(run.folder, config, resumed_from=None)
    update = step.update

    def filled_for_a_while(gear: Any, **kwargs: Any) -> None:
        update(gear, **kwargs)
        if gear.state.at.step == 1:
            with contextlib.suppress(OSError), open(others, "wb") as file:
                while True:
                    file.write(bytes(4096))
        if gear.state.at.step == 8:
            others.unlink()

    monkeypatch.setattr(step, "update", filled_for_a_while)
    assert api.work(run.folder, show=False).record.status == "done"
    assert digests(run) == whole
