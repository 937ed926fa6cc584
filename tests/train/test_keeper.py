"""Checkpoints are written beside training, in order, and what goes wrong costs none that is whole."""

import errno
import gc
import math
import shutil
import subprocess
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoker import checkpoint, records, runs
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import Event
from stoker.runs import Run
from stoker.train import keeper
from stoker.train import state as states
from stoker.train.keeper import Keeper
from tests.test_checkpoint import FILES, damage

PATIENCE_SECONDS = 60


@dataclass(eq=False)
class Taken:
    """Stands in for a snapshot."""

    data: bytes = FILES["a.bin"]


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "files_of", lambda taken: {**FILES, "a.bin": taken.data})


@pytest.fixture
def run() -> Run:
    return runs.create(Path("run"), Config(), resumed_from=None)


@pytest.fixture
def kept(run: Run) -> Iterator[Keeper]:
    with Keeper(run, keep_last=2, mirror=None) as made:
        yield made


@dataclass
class SlowDisk:
    """A disk that writes only when it is let."""

    let: threading.Semaphore
    reached: threading.Semaphore

    def allow(self, writes: int) -> None:
        for _ in range(writes):
            self.let.release()

    def await_write(self) -> None:
        assert self.reached.acquire(timeout=PATIENCE_SECONDS)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk(threading.Semaphore(0), threading.Semaphore(0))
    write = checkpoint.write

    def slowly(*args: Any) -> Path:
        disk.reached.release()
        assert disk.let.acquire(timeout=PATIENCE_SECONDS)
        return write(*args)

    monkeypatch.setattr(checkpoint, "write", slowly)
    return disk


def event_kinds(run: Run) -> list[str]:
    return [event.kind for event in records.read_lines(run.events, Event)]


def fail_writes(monkeypatch: pytest.MonkeyPatch, number: int, *, times: int = 10**9) -> list[Path]:
    """Let the next files of checkpoints fail with an error of the system."""
    failed: list[Path] = []
    write_file = checkpoint.write_file

    def broken(path: Path, data: bytes) -> None:
        if len(failed) < times:
            failed.append(path)
            path.write_bytes(data[:10])
            raise OSError(number, "no")
        write_file(path, data)

    monkeypatch.setattr(checkpoint, "write_file", broken)
    return failed


def test_a_saved_snapshot_is_on_disk_after_waiting_with_its_names(run: Run, kept: Keeper) -> None:
    assert kept.write_seconds is kept.job_seconds is None
    kept.save(Taken(), 3, ("best", "epoch_1"))
    kept.wait()
    assert checkpoint.read(checkpoint.folder(run, 3)) == FILES
    assert checkpoint.named(run) == {"latest": 3, "best": 3, "epoch_1": 3}
    assert kept.write_seconds is not None and kept.job_seconds is not None
    assert kept.problems() == []


def test_leaving_finishes_what_was_handed_in_also_after_an_error(run: Run, slow: SlowDisk) -> None:
    def train() -> None:
        with Keeper(run, keep_last=2, mirror=None) as made:
            made.save(Taken(), 1)
            made.save(Taken(), 2)
            slow.allow(2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert checkpoint.steps(run) == [2, 1]


def test_a_slow_disk_does_not_hold_up_two_snapshots_and_the_third_waits(run: Run, slow: SlowDisk, kept: Keeper) -> None:
    kept.save(Taken(), 1)
    slow.await_write()
    kept.save(Taken(), 2)
    assert checkpoint.steps(run) == [], "both calls came back before anything was written"
    handed_in = threading.Event()
    third = threading.Thread(target=lambda: (kept.save(Taken(), 3), handed_in.set()))
    third.start()
    assert not handed_in.wait(0.2), "no more than two are held in memory"
    slow.allow(1)
    assert handed_in.wait(PATIENCE_SECONDS)
    slow.allow(2)
    third.join()
    kept.wait()
    assert checkpoint.steps(run) == [3, 2]


def test_a_snapshot_is_let_go_of_when_it_is_written(kept: Keeper) -> None:
    taken = Taken()
    alive = weakref.ref(taken)
    kept.save(taken, 1)
    del taken
    kept.wait()
    gc.collect()
    assert alive() is None


def test_room_for_a_snapshot_is_given_back_after_failures(kept: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_writes(monkeypatch, errno.ENOSPC)
    for step in range(5):
        kept.save(Taken(), step)  # would wait for ever
    with pytest.raises(Problem):
        kept.wait()


def test_jobs_are_done_in_order(run: Run, slow: SlowDisk, kept: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    point, write_file = checkpoint.point, checkpoint.write_file
    monkeypatch.setattr(checkpoint, "point", lambda *a: (done.append(f"{a[1]} {a[2]}"), point(*a)))
    monkeypatch.setattr(checkpoint, "write_file", lambda *a: (done.append(a[0].parent.name), write_file(*a)))
    monkeypatch.setattr(runs, "sync", lambda path, sync=runs.sync: (done.append(path.name), sync(path)))
    kept.save(Taken(), 1, ("epoch_1",))
    kept.name(1, "best")
    kept.save(Taken(), 2)
    kept.name(2, "best")
    slow.allow(2)
    kept.wait()
    told = [what for what in done if what not in ("run", "checkpoints")]
    first = ["metrics.jsonl", *[".00000001.tmp"] * 4, "latest 1", "epoch_1 1", "best 1"]
    assert told == [*first, "metrics.jsonl", *[".00000002.tmp"] * 4, "latest 2", "best 2"]
    assert checkpoint.named(run) == {"latest": 2, "best": 2, "epoch_1": 1}


def test_only_the_newest_and_the_named_stay(run: Run, kept: Keeper) -> None:
    for step in range(1, 7):
        kept.save(Taken(), step, ("best",) if step == 2 else ())
    kept.wait()
    assert checkpoint.steps(run) == [6, 5, 2]


def test_a_full_disk_is_reported_and_survived_and_the_good_one_stays(
    run: Run, kept: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.save(Taken(), 1)
    kept.wait()
    with monkeypatch.context() as patch:
        fail_writes(patch, errno.ENOSPC)
        kept.save(Taken(), 2, ("best",))
        kept.name(2, "epoch_1")
        with pytest.raises(Problem, match="the disk is full"):
            kept.wait()
    (told,) = kept.problems()
    assert told.startswith("step 2 is not saved: the disk is full") and kept.problems() == []
    assert event_kinds(run) == ["not-saved"]
    assert checkpoint.named(run) == {"latest": 1}, "a checkpoint that is not there gets no name"
    assert checkpoint.read(checkpoint.folder(run, 1)) == FILES
    assert not list(run.checkpoints.glob(".*"))
    kept.save(Taken(), 3)
    kept.wait()
    assert checkpoint.steps(run) == [3, 1]


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EACCES])
def test_any_other_fault_of_a_disk_is_survived_too(
    run: Run, kept: Keeper, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as patch:
        fail_writes(patch, number)
        kept.save(Taken(), 1)
        with pytest.raises(Problem, match="can't be written"):
            kept.wait()
    kept.save(Taken(), 2)
    kept.wait()
    assert checkpoint.steps(run) == [2]


def test_a_quota_that_no_figure_shows_makes_older_checkpoints_give_way(
    run: Run, kept: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2, 3):
        kept.save(Taken(), step, ("best",) if step == 1 else ())
    kept.wait()
    fail_writes(monkeypatch, errno.EDQUOT, times=1)
    kept.save(Taken(), 4)
    kept.wait()
    assert checkpoint.steps(run) == [4, 3, 1] and kept.problems() == []


def test_space_is_checked_before_anything_is_written(run: Run, kept: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.save(Taken(), 1)
    kept.wait()
    written = fail_writes(monkeypatch, errno.ENOSPC)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))  # type: ignore[attr-defined]
    kept.save(Taken(), 2)
    with pytest.raises(Problem, match=r"needs 986.6 KiB, and 976.6 KiB are free"):
        kept.wait()
    assert written == [] and checkpoint.steps(run) == [1]


@pytest.mark.parametrize("how", ["truncated", "flipped", "half a folder"])
def test_checkpoints_torn_before_this_start_do_not_cost_the_good_one(
    run: Run, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2, 3):
        checkpoint.write(run, step, FILES)
    for step in (2, 3):
        damage(checkpoint.folder(run, step), how)
    fail_writes(monkeypatch, errno.ENOSPC)
    with Keeper(run, keep_last=2, mirror=None) as made:
        made.save(Taken(), 4)
        with pytest.raises(Problem):
            made.wait()
    assert checkpoint.newest_whole(run) == 1


def test_a_bug_in_the_thread_is_not_lost(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Taken) -> dict[str, bytes]:
        raise KeyError("a bug")

    monkeypatch.setattr(states, "files_of", broken)
    made = Keeper(run, keep_last=2, mirror=None)
    made.save(Taken(), 1)
    for again in (made.wait, lambda: made.save(Taken(), 2), lambda: made.__exit__(None, None, None)):
        with pytest.raises(KeyError, match="a bug"):
            again()


def test_waiting_ends_when_time_is_up(run: Run, slow: SlowDisk, kept: Keeper) -> None:
    kept.save(Taken(), 1)
    with pytest.raises(Problem, match="not written within 10 ms"):
        kept.wait(0.01)
    slow.allow(1)
    kept.wait()


def test_going_back_removes_what_came_after_here_and_in_the_mirror(run: Run) -> None:
    mirror = Path("mirror")
    mirror.mkdir()
    with Keeper(run, keep_last=3, mirror=mirror) as made:
        for step in (1, 2, 3):
            made.save(Taken(), step)
        made.remove_after(2)
        assert checkpoint.steps(run) == checkpoint.steps(Run(mirror / "run")) == [2, 1]
        made.save(Taken(b"another"), 3)
    assert checkpoint.read(checkpoint.folder(Run(mirror / "run"), 3))["a.bin"] == b"another"


def test_a_mirror_that_goes_away_is_reported_and_caught_up_with(run: Run) -> None:
    mirror, away = Path("mirror"), Path("away")
    mirror.mkdir()
    with Keeper(run, keep_last=2, mirror=mirror) as made:
        made.save(Taken(), 1)
        made.wait()
        mirror.rename(away)
        made.save(Taken(), 2, ("best",))
        made.wait()
        (told,) = made.problems()
        assert "step 2 not mirrored: the mirror mirror is not there" in told
        assert event_kinds(run) == ["not-mirrored"] and not mirror.exists()
        away.rename(mirror)
        made.save(Taken(), 3)
        made.wait()
        assert made.problems() == []
    there = Run(mirror / "run")
    assert checkpoint.steps(there) == [3, 2]
    assert checkpoint.named(there) == {"latest": 3, "best": 2}


@pytest.mark.parametrize("hours", [0.5, 24.0])
def test_the_interval_is_that_of_young_within_bounds(hours: float) -> None:
    best = keeper.interval_seconds(save_seconds=0.05, mtbf_hours=hours)
    assert best == pytest.approx(math.sqrt(2 * hours * 3600 * 0.05))

    def share(interval: float) -> float:
        """Time that goes: saving, and half an interval redone at every interruption."""
        return 0.05 / interval + interval / 2 / (hours * 3600)

    assert share(best) < min(share(best * 0.9), share(best * 1.1))


def test_the_interval_has_bounds_and_leaves_time_to_write() -> None:
    assert keeper.interval_seconds(save_seconds=0.0, mtbf_hours=24) == 10
    assert keeper.interval_seconds(save_seconds=3600, mtbf_hours=1000) == 3600
    assert keeper.interval_seconds(save_seconds=0.001, mtbf_hours=0.1, write_seconds=60) == 120
    assert keeper.interval_seconds(save_seconds=0.001, mtbf_hours=0.1, write_seconds=None) == 10


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A real file system of 8 MB."""
    folder = Path("small").absolute()
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_real_disk_that_fills_up_costs_no_good_checkpoint(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    if not is_told:  # the space is gone between looking and writing
        monkeypatch.setattr(checkpoint, "make_room", lambda *a, **k: None)
    run = runs.create(small_disk / "run", Config(), resumed_from=None)
    with Keeper(run, keep_last=2, mirror=None) as made:
        for step in (1, 2, 3):  # two of them fit, so that the older one must give way
            made.save(Taken(bytes(3_000_000)), step)
            made.wait()
        assert checkpoint.steps(run) == [3, 2] if is_told else checkpoint.newest_whole(run) == 3
        made.save(Taken(bytes(9_000_000)), 4)
        with pytest.raises(Problem, match="the disk is full"):
            made.wait()
        assert checkpoint.newest_whole(run) == 3 and not list(run.checkpoints.glob(".*"))
        made.save(Taken(bytes(3_000_000)), 5)
        made.wait()
        assert checkpoint.newest_whole(run) == 5
    (told,) = made.problems()
    assert told.startswith("step 4 is not saved")


def test_a_full_mirror_is_reported_and_the_run_goes_on(small_disk: Path) -> None:
    run = runs.create(Path("run"), Config(), resumed_from=None)
    with Keeper(run, keep_last=2, mirror=small_disk) as made:
        made.save(Taken(bytes(3_000_000)), 1)
        made.save(Taken(bytes(9_000_000)), 2)
        made.wait()
    assert checkpoint.steps(run) == [2, 1]
    (told,) = made.problems()
    assert told.startswith("step 2 not mirrored: the disk is full")
    assert checkpoint.newest_whole(Run(small_disk / "run")) == 1
