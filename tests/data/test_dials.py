import io
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.data.dial_parts import SWEEP, scene
from stoker.data.dials import CLASSES, draw, label, make
from stoker.errors import Problem


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.jpg")}


def test_the_same_arguments_give_the_same_bytes():
    assert draw(7, seed=1, size=48) == draw(7, seed=1, size=48)


def test_another_seed_or_number_gives_other_bytes():
    pictures = {draw(number, seed=seed, size=48) for number in (7, 17, 27) for seed in (1, 2)}
    assert len(pictures) == 6


def test_a_picture_does_not_depend_on_the_process_that_draws_it():
    code = "import sys; from stoker.data.dials import draw; sys.stdout.buffer.write(draw(3, seed=5, size=64))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    assert drawn.stdout == draw(3, seed=5, size=64)


@pytest.mark.parametrize("size", [16, 33, 96])
def test_a_picture_is_an_rgb_jpeg_of_the_size_asked_for(size: int):
    with Image.open(io.BytesIO(draw(4, seed=0, size=size))) as picture:
        picture.load()
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (size, size))


def test_many_pictures_can_be_drawn_whatever_the_dice_say():
    assert all(draw(number, seed=11, size=16) for number in range(100))


def test_the_needle_keeps_to_the_middle_of_its_tenth():
    for number in range(50):
        rolls = iter(np.random.default_rng(number).random(50).tolist())
        tenths = (scene(number, rolls, 64).angle / SWEEP + 0.5) * 10
        assert label(number) + 0.1 <= tenths <= label(number) + 0.9


def test_every_class_has_its_share_of_both_splits(tmp_path: Path):
    progress = list(make(tmp_path / "dials", count=100, size=16, seed=0, processes=1))
    files = contents(tmp_path / "dials")
    shares = Counter(str(Path(name).parent) for name in files)
    assert progress[-1] == len(files) == 120
    assert shares == {f"{split}/{name}": n for split, n in (("train", 10), ("val", 2)) for name in CLASSES}


def test_a_file_holds_the_picture_of_its_number(tmp_path: Path):
    list(make(tmp_path / "dials", count=10, size=16, seed=9, processes=1))
    files = contents(tmp_path / "dials")
    assert files["train/bar-3/0000003.jpg"] == draw(3, seed=9, size=16)
    assert files["val/bar-1/0000011.jpg"] == draw(11, seed=9, size=16)


def test_one_process_and_two_give_the_same_bytes(tmp_path: Path):
    for processes in (1, 2):
        list(make(tmp_path / str(processes), count=60, size=16, seed=0, processes=processes))
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.parametrize("processes", [1, 2])
def test_work_abandoned_half_way_leaves_nothing_and_can_be_done_again(tmp_path: Path, processes: int):
    work = make(tmp_path / "dials", count=120, size=16, seed=0, processes=processes)
    assert next(work) < 144
    assert not (tmp_path / "dials").exists()
    del work
    assert list(tmp_path.iterdir()) == []
    list(make(tmp_path / "dials", count=10, size=16, seed=0, processes=1))
    assert [place.name for place in tmp_path.iterdir()] == ["dials"]


def test_what_a_killed_attempt_left_is_removed_and_what_is_being_made_is_not(tmp_path: Path):
    left = tmp_path / ".dials-unfinished-killed"
    (left / "dials" / "train").mkdir(parents=True)
    (left / "lock").touch()
    other = make(tmp_path / "dials", count=100, size=16, seed=0, processes=1)
    next(other)
    assert not left.exists()
    list(make(tmp_path / "dials", count=10, size=16, seed=0, processes=1))
    assert len(contents(tmp_path / "dials")) == 12
    assert len(list(tmp_path.iterdir())) == 2
    list(other)
    assert [place.name for place in tmp_path.iterdir()] == ["dials"]
    assert len(contents(tmp_path / "dials")) == 12


def test_a_dataset_that_is_there_is_left_alone(tmp_path: Path):
    (tmp_path / "dials").mkdir()
    assert list(make(tmp_path / "dials", count=10, size=16, seed=0, processes=1)) == []
    assert list((tmp_path / "dials").iterdir()) == []


@pytest.mark.parametrize(("count", "size"), [(9, 64), (100, 15)])
def test_a_request_that_makes_no_sense_says_what_to_ask_for(tmp_path: Path, count: int, size: int):
    with pytest.raises(Problem, match="10 or more, of 16 pixels or more"):
        list(make(tmp_path / "dials", count=count, size=size, seed=0, processes=1))
