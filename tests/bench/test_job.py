from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.bench import job as jobs
from stoker.bench import thread_peers
from stoker.bench.job import Photos
from stoker.config import DataConfig, ImageConfig
from stoker.data import index, sources

IMAGE = ImageConfig(resolution=32)


@pytest.fixture
def photos(dial_folder: Path, tmp_path: Path) -> Photos:
    found = sources.open_source(DataConfig(data=str(dial_folder)), seed=0, show=False)
    return jobs.photos(found.train, found.held_out, folder=tmp_path / "files")


def job_of(photos: Photos, folder: Path, *, epoch: int = 1) -> jobs.Job:
    return jobs.made(photos, count=160, epoch=epoch, image=IMAGE, workers=1, processes=0, folder=folder)


def test_every_row_has_a_box_inside_its_picture_and_comes_once(photos: Photos, tmp_path: Path) -> None:
    job = job_of(photos, tmp_path)
    assert len(photos.files) == 144 and sorted(job.rows.tolist()) == list(range(160))
    assert job.file(150) == photos.files[6]
    assert (job.boxes[:, :2] >= 0).all() and (job.boxes[:, 2:] > 0).all()
    assert (job.boxes[:, :2] + job.boxes[:, 2:] <= 40).all()
    assert 0 < job.flips.sum() < 160


def test_the_boxes_are_those_that_stokers_own_loader_takes(photos: Photos, tmp_path: Path) -> None:
    job = job_of(photos, tmp_path)
    for rows, pixels in thread_peers.stoker(job):
        for row, picture in zip(rows.tolist(), pixels, strict=True):
            reference = thread_peers.pillow_pixels(job, row)
            assert np.abs(picture.astype(np.int16) - reference).mean() < 0.5
    assert not np.array_equal(job.boxes, job_of(photos, tmp_path, epoch=2).boxes)


def test_samples_inside_other_files_are_copied_out_and_what_is_no_colour_jpeg_is_left_out(tmp_path: Path) -> None:
    for number, mode in enumerate(("RGB", "L", "RGB")):
        Image.new(mode, (20, 10)).save(tmp_path / f"{number}.jpg")
    raw = [(tmp_path / f"{number}.jpg").read_bytes() for number in range(3)]
    (tmp_path / "all").write_bytes(b"".join([*raw, b"no picture"]))
    lengths = [len(part) for part in raw] + [10]
    columns = {
        "file": np.zeros(4),
        "offset": np.cumsum([0, *lengths[:-1]]),
        "length": np.array(lengths),
        "label": np.zeros(4),
    }
    found = jobs.photos(index.made(tmp_path, ["all"], columns), folder=tmp_path / "copies")
    assert [Path(file).read_bytes() for file in found.files] == [raw[0], raw[2]]
    assert found.sizes == ((20, 10), (20, 10))
