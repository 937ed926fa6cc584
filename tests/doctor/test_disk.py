import os
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.doctor import disk
from stoker.doctor.profile import DiskSpeed
from stoker.machine import gauges

SECONDS = 0.02


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "place"
    found.mkdir()
    return found


def run_through(steps: Generator[str, None, DiskSpeed]) -> tuple[list[str], DiskSpeed]:
    names = []
    while True:
        try:
            names.append(next(steps))
        except StopIteration as end:
            return names, end.value


def looked_at(place: Path, *, data: Path | None = None) -> tuple[DiskSpeed, dict[str, str]]:
    missing: dict[str, str] = {}
    names, speed = run_through(disk.measured(missing, folder=place, data=data, seconds=SECONDS))
    assert len(names) == disk.STEPS
    return speed, missing


def told(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Say something else of the disk than the system does."""
    real = gauges.disk
    monkeypatch.setattr(gauges, "disk", lambda path: replace(real(path), **changed))


def test_a_disk_gives_every_figure_and_keeps_nothing(place: Path) -> None:
    speed, missing = looked_at(place)
    assert missing == {} and list(place.iterdir()) == []
    for rate in (
        speed.sequential_bytes_per_second, speed.random_reads_per_second, speed.write_bytes_per_second,
        speed.list_files_per_second,
    ):  # fmt: skip
        assert rate is not None and rate > 0
    assert (speed.folder, speed.listed, speed.dataset_files) == (str(place), "made for it", None)
    assert speed.files_listed is not None and speed.files_listed > 0


def test_a_folder_that_is_not_there_yet_is_measured_above_it(place: Path) -> None:
    assert looked_at(place / "runs" / "one")[0].folder == str(place)


@pytest.mark.parametrize(
    "name", ["written_bytes_per_second", "read_bytes_per_second", "reads_per_second", "own_listed"]
)
def test_an_interrupted_measurement_leaves_nothing_behind(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> float:
        assert any(place.iterdir()), "there is something to leave behind"
        raise KeyboardInterrupt

    monkeypatch.setattr(disk, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        looked_at(place)
    assert list(place.iterdir()) == []


def test_a_measurement_that_nobody_finishes_leaves_nothing_behind(place: Path) -> None:
    steps = disk.measured({}, folder=place, data=None, seconds=SECONDS)
    assert [next(steps) for _ in range(3)] and any(place.iterdir())
    steps.close()
    assert list(place.iterdir()) == []


def test_a_disk_that_is_not_writable_is_read_where_files_are(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "small").write_bytes(b"x")
    (place / "large").write_bytes(os.urandom(2**20))
    told(monkeypatch, writable=False)
    speed, missing = looked_at(place)
    assert missing["disk: writes"] == f"{place} is not writable" and speed.write_bytes_per_second is None
    assert (speed.sequential_bytes_per_second or 0) > 0 and (speed.random_reads_per_second or 0) > 0
    assert {path.name for path in place.iterdir()} == {"small", "large"}
    assert "fewer than" in missing["disk: list of files"]


def test_an_empty_disk_that_is_not_writable_says_why_nothing_was_measured(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, writable=False)
    speed, missing = looked_at(place)
    assert speed.sequential_bytes_per_second is None and "no file" in missing["disk: reads"]
    assert speed.is_cold is False and speed.bypassed_by is None


def test_a_full_disk_is_not_written_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, free_bytes=2**29)
    _, missing = looked_at(place)
    assert missing["disk: writes"].startswith("only 512.0 MiB are free")


def test_a_disk_that_fills_up_fails_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    (place / "old").write_bytes(os.urandom(2**20))
    monkeypatch.setattr(disk.os, "fsync", full)
    speed, missing = looked_at(place)
    assert "No space left" in missing["disk: writes"] and speed.write_bytes_per_second is None
    assert (speed.sequential_bytes_per_second or 0) > 0 and [path.name for path in place.iterdir()] == ["old"]


def plainly(path: Path) -> tuple[int, bool]:
    return os.open(path, os.O_RDONLY), False


def test_without_direct_reads_our_own_file_is_dropped_from_the_cache(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice: list[int] = []
    monkeypatch.setattr(disk, "open_directly", plainly)
    monkeypatch.setattr(disk, "file_system", lambda place: "ext4")
    monkeypatch.setattr(disk.os, "posix_fadvise", lambda handle, start, length, what: advice.append(what))
    speed, missing = looked_at(place)
    assert (speed.is_cold, speed.bypassed_by, missing) == (True, "posix_fadvise", {})
    assert advice[0] == os.POSIX_FADV_DONTNEED


def test_other_peoples_files_stay_in_the_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "large").write_bytes(os.urandom(2**20))
    told(monkeypatch, writable=False)
    monkeypatch.setattr(disk, "open_directly", plainly)
    monkeypatch.setattr(disk.os, "posix_fadvise", lambda *_: pytest.fail("somebody wants it there"))
    speed, _ = looked_at(place)
    assert (speed.is_cold, speed.bypassed_by) == (False, None) and (speed.sequential_bytes_per_second or 0) > 0


def test_a_file_system_that_refuses_direct_reads_is_read_as_usual(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "one").write_bytes(b"x" * disk.BLOCK_BYTES)

    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(disk.os, "preadv", refuse)
        handle, is_direct = disk.open_directly(place / "one")
    assert not is_direct and os.pread(handle, 1, 0) == b"x"
    os.close(handle)


def test_memory_that_is_called_a_disk_is_not_called_cold(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "file_system", lambda place: "tmpfs")
    speed, _ = looked_at(place)
    assert (speed.file_system, speed.is_cold) == ("tmpfs", False)


def test_a_large_dataset_is_listed_itself(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "ENOUGH_FILES", 20)
    for number in range(30):
        (place / f"{number}.jpg").write_bytes(b"x")
    speed, _ = looked_at(place, data=place)
    assert (speed.listed, speed.files_listed, speed.dataset_files) == ("of the folder", 30, 30)
    assert speed.dataset_list_seconds == pytest.approx(30 / (speed.list_files_per_second or 0))
    assert (speed.data, speed.is_extrapolated) == (str(place), False)


def test_a_small_dataset_is_listed_at_the_rate_of_files_made_for_it(place: Path) -> None:
    (place / "1.jpg").write_bytes(b"x")
    speed, _ = looked_at(place, data=place)
    assert (speed.listed, speed.dataset_files) == ("made for it", 1)


def test_a_folder_of_other_files_is_no_dataset(place: Path) -> None:
    (place / "1.txt").write_bytes(b"x")
    speed, _ = looked_at(place, data=place)
    assert (speed.data, speed.dataset_files, speed.dataset_list_seconds) == (str(place), None, None)


def test_a_slow_disk_is_given_no_more_than_it_can_take(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 0.9])
    monkeypatch.setattr(disk.time, "perf_counter", lambda: next(ticks))
    assert disk.written_bytes_per_second(place / "file", seconds=1.0) == pytest.approx(disk.PIECE_BYTES / 0.9)
    assert (place / "file").stat().st_size == disk.PIECE_BYTES


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"/": "ext4", "/data": "nfs4"}
    mounts = [SimpleNamespace(mountpoint=point, fstype=kind) for point, kind in kinds.items()]
    monkeypatch.setattr(disk.psutil, "disk_partitions", lambda **_: mounts)
    assert disk.file_system(Path("/data/photos")) == "nfs4" and disk.file_system(Path("/datas")) == "ext4"


def test_an_unknown_file_system_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: bool) -> list[object]:
        raise OSError("no /proc")

    monkeypatch.setattr(disk.psutil, "disk_partitions", fail)
    assert disk.file_system(Path("/")) is None


def test_a_folder_of_many_other_files_is_listed_only_where_nothing_can_be_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "ENOUGH_FILES", 20)
    for number in range(30):
        (place / f"{number}.txt").write_bytes(b"x")
    assert looked_at(place, data=place)[0].listed == looked_at(place)[0].listed == "made for it"
    told(monkeypatch, writable=False)
    speed, missing = looked_at(place)
    assert (speed.listed, speed.files_listed, speed.dataset_files) == ("of the folder", 30, None)
    assert "disk: list of files" not in missing
