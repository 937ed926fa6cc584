import itertools
import os
from pathlib import Path

import pytest

from stoker.doctor import listing


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Ten class folders of ten pictures each."""
    root = tmp_path / "classes"
    for label, number in itertools.product(range(10), range(10)):
        (root / f"class-{label}").mkdir(parents=True, exist_ok=True)
        (root / f"class-{label}" / f"{number}.JPG").write_bytes(b"x" * (number + 1))
    return root


def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is a second later each time one looks at it."""
    ticks = itertools.count()
    monkeypatch.setattr(listing.time, "perf_counter", lambda: float(next(ticks)))


def test_all_files_are_found_with_their_sizes(classes: Path) -> None:
    (classes / "class-0" / "notes.txt").write_text("no picture")
    walk = listing.walked(classes, most_seconds=60)
    assert (walk.files, walk.all_files, walk.is_whole, walk.picture_files) == (101, 101, True, 100)
    assert len(walk.pictures) == 100 and dict(walk.pictures)[os.path.join("class-3", "4.JPG")] == 5
    assert walk.files_per_second > 0


def test_a_dataset_that_takes_too_long_is_extrapolated(classes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_clock(monkeypatch)
    walk = listing.walked(classes, most_seconds=4.5)
    assert (walk.files, walk.is_whole, walk.all_files) == (40, False, 100)


def test_a_huge_folder_is_left_before_its_end_and_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(listing.STRIDE + 10):
        (tmp_path / f"{number}.png").touch()
    slow_clock(monkeypatch)
    walk = listing.walked(tmp_path, most_seconds=0.5)
    assert (walk.files, walk.is_whole, walk.all_files) == (listing.STRIDE, False, None)


def test_what_is_no_class_and_what_leads_back_up_is_passed_over(classes: Path) -> None:
    (classes / ".hidden").mkdir()
    (classes / ".hidden" / "1.jpg").touch()
    (classes / "class-0" / "up").symlink_to(classes)
    walk = listing.walked(classes, most_seconds=60)
    assert walk.files == 101, "the link is a file, and not followed"


def test_a_folder_that_may_not_be_read_is_passed_over(classes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(path: Path) -> object:
        if Path(path).name == "class-5":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(listing.os, "scandir", scandir)
    assert listing.walked(classes, most_seconds=60).files == 90


def test_no_more_pictures_are_kept_than_are_decoded(tmp_path: Path) -> None:
    for number in range(listing.MOST_PICTURES + 5):
        (tmp_path / f"{number}.jpg").write_bytes(b"x")
    assert len(listing.walked(tmp_path, most_seconds=60).pictures) == listing.MOST_PICTURES
