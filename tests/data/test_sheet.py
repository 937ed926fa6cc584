import shutil
from pathlib import Path

import numpy as np
import pytest

from stoker.config import DataConfig
from stoker.data import sheet, sources
from stoker.data.dataset import Dataset


@pytest.fixture
def own(dial_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dial_folder, tmp_path / "own"))


def opened(folder: Path) -> Dataset:
    return sources.open_source(DataConfig(data=str(folder)), seed=0, show=False)


def tile_of(picture: np.ndarray, row: int, column: int) -> np.ndarray:
    top = sheet.HEAD + row * (sheet.TILE + sheet.GAP)
    left = sheet.LABEL + sheet.BAR + column * (sheet.TILE + sheet.GAP)
    return picture[top : top + sheet.TILE, left : left + sheet.TILE]


def test_a_sheet_has_a_row_for_each_class_and_pictures_in_it(own: Path):
    data = opened(own)
    picture = np.asarray(sheet.contact_sheet(data))
    assert picture.shape[0] == sheet.HEAD + len(data.classes) * (sheet.TILE + sheet.GAP) + sheet.GAP
    assert all(tile_of(picture, row, 0).std() > 5 for row in range(len(data.classes)))


def test_an_unreadable_sample_is_drawn_as_an_empty_frame(own: Path):
    data = opened(own)
    first = int(np.flatnonzero(data.train.label == 0)[0])
    before = tile_of(np.asarray(sheet.contact_sheet(data)), 0, 0)
    data.train.path(first).write_bytes(b"nothing")
    after = tile_of(np.asarray(sheet.contact_sheet(data)), 0, 0)
    assert before.std() > 5 and np.median(after) == sheet.PAPER[0]


def test_the_bar_of_a_class_is_as_long_as_its_share_of_the_largest(own: Path):
    data = opened(own)
    for sample in np.flatnonzero(data.train.label == 0)[1:]:
        data.train.path(int(sample)).unlink()
    fewer = opened(own)
    picture = np.asarray(sheet.contact_sheet(fewer))
    bars = [
        int((picture[sheet.HEAD + row * (sheet.TILE + sheet.GAP) + sheet.TILE // 2] == sheet.FILL).all(1).sum())
        for row in range(len(data.classes))
    ]
    counts = [int((fewer.train.label == n).sum() + (fewer.held_out.label == n).sum()) for n in range(len(data.classes))]
    assert bars[0] < max(bars)
    assert np.allclose(np.array(bars) / max(bars), np.array(counts) / max(counts), atol=0.03)
