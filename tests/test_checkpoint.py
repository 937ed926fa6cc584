"""A checkpoint is whole or not there, and the last good one stays."""

import json
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from stoker import checkpoint, runs
from stoker.checkpoint import Torn
from stoker.config import Config
from stoker.errors import Problem
from stoker.runs import Run

FILES = {"a.bin": bytes(range(256)) * 40, "b.json": b"{}"}
DAMAGES = ["truncated", "flipped", "half a folder", "no manifest", "manifest flipped", "manifest of another kind"]
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def run() -> Run:
    return runs.create(Path("run"), Config(), resumed_from=None)


def damage(dest: Path, how: str) -> None:
    """Do to a checkpoint what disks and kills do."""
    file, manifest = dest / "a.bin", dest / checkpoint.MANIFEST
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    {
        "truncated": lambda: file.write_bytes(raw[:100]),
        "flipped": lambda: file.write_bytes(raw),
        "half a folder": file.unlink,
        "no manifest": manifest.unlink,
        "manifest flipped": lambda: manifest.write_text(manifest.read_text().replace("sha256", "sha257", 1)),
        "manifest of another kind": lambda: manifest.write_text("[1, 2]"),
    }[how]()


def saved(run: Run, *steps: int) -> None:
    for step in steps:
        checkpoint.write(run, step, FILES)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_is_torn_and_no_crash(run: Run, how: str) -> None:
    saved(run, 3)
    dest = checkpoint.folder(run, 3)
    assert checkpoint.read(dest) == FILES
    checkpoint.verify(dest)
    damage(dest, how)
    for look in (checkpoint.read, checkpoint.verify):
        with pytest.raises(Torn, match="00000003"):
            look(dest)


@pytest.mark.parametrize("how", DAMAGES)
def test_torn_newest_checkpoints_do_not_make_the_last_good_one_deletable(run: Run, how: str) -> None:
    saved(run, 1, 2, 3, 4)
    for step in (3, 4):
        damage(checkpoint.folder(run, step), how)
    checkpoint.point(run, "latest", 4)
    checkpoint.prune(run, keep=2)
    assert checkpoint.steps(run) == [4, 3, 2]
    assert checkpoint.newest_whole(run) == 2


def test_where_none_is_whole_nothing_is_removed(run: Run) -> None:
    saved(run, 1, 2, 3)
    for step in (1, 2, 3):
        damage(checkpoint.folder(run, step), "flipped")
    checkpoint.prune(run, keep=2)
    assert checkpoint.steps(run) == [3, 2, 1]
    assert checkpoint.spare(run) == []


def test_the_newest_and_the_named_stay_and_a_stray_file_is_no_name(run: Run) -> None:
    saved(run, 1, 2, 3, 4, 5, 6)
    for name, step in (("latest", 6), ("best", 1), ("epoch_1", 2)):
        checkpoint.point(run, name, step)
    (run.folder / "epoch_notes").write_text("it went well")
    checkpoint.prune(run, keep=2)
    assert checkpoint.steps(run) == [6, 5, 2, 1]
    assert checkpoint.named(run) == {"latest": 6, "best": 1, "epoch_1": 2}
    assert not list(run.checkpoints.glob(".*"))


def test_trusted_checkpoints_are_not_read_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(run, 1, 2, 3)
    read: list[str] = []
    digest = checkpoint.hashlib.file_digest
    monkeypatch.setattr(checkpoint.hashlib, "file_digest", lambda f, k: read.append(f.name) or digest(f, k))
    checkpoint.prune(run, keep=2, trusted={3})
    assert checkpoint.steps(run) == [3, 2] and read == []
    saved(run, 4)
    checkpoint.prune(run, keep=2)
    assert read, "an untrusted one is looked at"


def test_a_trusted_checkpoint_that_was_cut_is_still_noticed(run: Run) -> None:
    saved(run, 1, 2)
    damage(checkpoint.folder(run, 2), "truncated")
    checkpoint.prune(run, keep=1, trusted={2})
    assert checkpoint.steps(run) == [2, 1]


def test_a_step_saved_again_is_never_gone_between_two_renames(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(run, 3)
    rename = os.rename

    def broken_second(source: Path, dest: Path) -> None:
        if source.name.endswith(".tmp"):
            raise OSError(5, "the cable was pulled")
        rename(source, dest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", broken_second)
        with pytest.raises(OSError, match="cable"):
            checkpoint.write(run, 3, {"a.bin": b"new"})
    assert checkpoint.read(checkpoint.folder(run, 3)) == FILES
    # A kill at the same place leaves it aside, and the next start brings it back.
    os.rename(checkpoint.folder(run, 3), run.checkpoints / ".00000003.old")
    checkpoint.mend(run)
    assert checkpoint.read(checkpoint.folder(run, 3)) == FILES


def test_a_copy_is_whole_or_not_made(run: Run) -> None:
    other = runs.create(Path("other"), Config(), resumed_from=None)
    saved(run, 1, 2)
    assert checkpoint.read(checkpoint.copy(checkpoint.folder(run, 1), other, 1)) == FILES
    damage(checkpoint.folder(run, 2), "flipped")
    with pytest.raises(Torn):
        checkpoint.copy(checkpoint.folder(run, 2), other, 2)
    assert [p.name for p in other.checkpoints.iterdir()] == ["00000001"]


def test_going_back_removes_later_checkpoints_and_their_names(run: Run) -> None:
    saved(run, 1, 2, 3, 4)
    for name, step in (("latest", 4), ("best", 3), ("epoch_1", 1)):
        checkpoint.point(run, name, step)
    checkpoint.remove_after(run, 2)
    assert checkpoint.steps(run) == [2, 1]
    assert checkpoint.named(run) == {"latest": 2, "epoch_1": 1}


def test_going_back_to_where_nothing_is_whole_removes_nothing(run: Run) -> None:
    saved(run, 1, 3)
    damage(checkpoint.folder(run, 1), "flipped")
    checkpoint.remove_after(run, 2)
    assert checkpoint.steps(run) == [3, 1]


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The space that the disk says is free."""
    bytes_free = [0]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, bytes_free[0]))
    return bytes_free


def test_older_checkpoints_give_way_as_far_as_needed_and_the_good_one_stays(run: Run, free: list[int]) -> None:
    saved(run, 1, 2, 3, 4, 5)
    checkpoint.point(run, "best", 1)
    damage(checkpoint.folder(run, 5), "flipped")
    size = checkpoint.folder_bytes(checkpoint.folder(run, 2))
    assert checkpoint.spare(run) == [2, 3, 5]
    checkpoint.make_room(run, size, trusted=())
    assert checkpoint.steps(run) == [5, 4, 3, 1], "the oldest goes, and no more than is needed"
    with pytest.raises(Problem, match=r"the disk is full.* needs .* KiB, and 0 B are free"):
        checkpoint.make_room(run, 10 * size)
    assert checkpoint.steps(run) == [5, 4, 3, 1], "nothing goes where it would not be enough"
    free[0] = 10 * size
    checkpoint.make_room(run, 10 * size)
    assert checkpoint.steps(run) == [5, 4, 3, 1]


def test_a_disk_too_small_for_the_checkpoints_of_a_run_is_refused_with_figures(run: Run, free: list[int]) -> None:
    mega = 2**20
    free[0] = 30 * mega
    checkpoint.check_space(run, 9 * mega, copies=3)
    with pytest.raises(Problem, match=r"3 checkpoints of 10.0 MiB each need 31.0 MiB more, and 30.0 MiB are free"):
        checkpoint.check_space(run, 10 * mega, copies=3)


def test_what_gives_way_counts_as_space_of_a_run_that_goes_on(run: Run, free: list[int]) -> None:
    mega = 2**20
    for step in (1, 2):
        checkpoint.write(run, step, {"a.bin": bytes(10 * mega)})
    free[0] = 21 * mega
    checkpoint.check_space(run, 10 * mega, copies=3)
    with pytest.raises(Problem, match="too small"):
        checkpoint.check_space(run, 10 * mega, copies=4)


def test_the_manifest_tells_sizes_and_hashes(run: Run) -> None:
    dest = checkpoint.write(run, 7, {"a.bin": memoryview(b"abc")})
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert json.loads((dest / checkpoint.MANIFEST).read_text()) == {"a.bin": {"bytes": 3, "sha256": sha}}


def test_a_manifest_nested_too_deep_is_torn(run: Run) -> None:
    folder = checkpoint.folder(run, 1)
    folder.mkdir(parents=True)
    (folder / checkpoint.MANIFEST).write_text("[" * 200_000)
    with pytest.raises(checkpoint.Torn):
        checkpoint.manifest_of(folder)
