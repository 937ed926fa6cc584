import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker import api
from stoker.config import ImageConfig
from stoker.data import augment, native
from stoker.doctor import cpu, pictures
from stoker.doctor.profile import CpuSpeed
from stoker.errors import Problem
from stoker.machine import gauges
from stoker.machine.gauges import Cores

SECONDS = 0.01


def decoded(data: str | None) -> tuple[CpuSpeed | None, dict[str, str]]:
    missing: dict[str, str] = {}
    steps = cpu.measured(missing, data=data, seconds=SECONDS)
    names = []
    while True:
        try:
            names.append(next(steps))
        except StopIteration as end:
            assert len(names) == cpu.STEPS
            return end.value, missing


def test_drawn_pictures_are_decoded_by_one_thread_and_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "cores_allotted", lambda: Cores(allotted=2, present=64, limited_by="affinity"))
    speed, missing = decoded(None)
    assert speed is not None and missing == {}
    assert (speed.cores, speed.threads, speed.data) == (2, 2, None)
    assert speed.decode_one_per_second > 0 and speed.decode_all_per_second > 0
    assert speed.picture_pixels == 500 * 375 and "drawn" in speed.picture
    assert speed.decoder == (native.built_with() or "Pillow")


def test_drawn_pictures_are_as_large_as_photos_and_gone_afterwards() -> None:
    with pictures.found(None, seconds=0.0) as some:
        assert 60_000 < some.mean_bytes < 160_000, "ImageNet's have 110 kB"
        root = some.index.root
        assert len(some.index) == pictures.FEWEST_DRAWN and root.is_dir()
    assert not root.exists()


def test_pictures_of_a_folder_are_taken(dial_folder: Path) -> None:
    speed, missing = decoded(str(dial_folder))
    assert speed is not None and missing == {}
    assert speed.data == str(dial_folder) and speed.picture_pixels == 40 * 40
    assert "144 pictures" in speed.picture and "40 x 40 pixels" in speed.picture


def test_pictures_of_a_pack_are_taken(dial_folder: Path, tmp_path: Path) -> None:
    api.pack(str(dial_folder), tmp_path / "pack", workers=1, show=False)
    speed, missing = decoded(str(tmp_path / "pack"))
    assert speed is not None and missing == {} and speed.picture_pixels == 40 * 40


@pytest.fixture
def tar(dial_folder: Path, tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / "some.tar", "w") as file:
        for path in sorted((dial_folder / "train").rglob("*.jpg")):
            file.add(path, arcname=str(path.relative_to(dial_folder / "train")))
    return tmp_path / "some.tar"


def test_pictures_of_a_tar_are_taken(tar: Path) -> None:
    speed, missing = decoded(str(tar))
    assert speed is not None and missing == {} and speed.picture_pixels == 40 * 40


def test_a_tar_that_takes_too_long_to_look_through_is_left_alone(tar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "LARGEST_FILE_BYTES", 1000)
    speed, missing = decoded(str(tar))
    assert speed is not None and speed.data is None and "drawn" in speed.picture
    (why,) = missing.values()
    assert "too much to look through" in why


@pytest.mark.parametrize("content", [b"", b"no picture at all"])
def test_data_without_readable_pictures_is_said_and_drawn_ones_taken(content: bytes, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.jpg").write_bytes(content)
    speed, missing = decoded(str(tmp_path / "data"))
    assert speed is not None and "drawn" in speed.picture
    assert list(missing) == [f"CPU: pictures decoded of {tmp_path / 'data'}"]


def test_pillow_decodes_where_there_is_no_native_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    speed, missing = decoded(None)
    assert speed is not None and (speed.decoder, missing) == ("Pillow", {})


def test_a_decoder_that_fails_is_missing_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> float:
        raise Problem("the system lets no decode thread start", fix="raise the limit of processes: ulimit -u")

    monkeypatch.setattr(cpu, "pictures_per_second", fail)
    assert decoded(None) == (None, {"CPU: pictures decoded": "the system lets no decode thread start"})


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (400, 400), (97, 1000)])
def test_the_whole_picture_is_what_is_decoded(width: int, height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ImageConfig] = []

    def look(image: ImageConfig, *, is_random: bool) -> None:
        asked.append(image)
        raise RuntimeError

    monkeypatch.setattr(native, "look", look)
    with pictures.found(None, seconds=0.0) as some, pytest.raises(RuntimeError):
        cpu.pictures_per_second(some, threads=1, seconds=SECONDS)
    scale, ratio = asked[0].crop_scale, asked[0].crop_ratio
    for drawn in augment.draws(0, epoch=0, positions=np.arange(200)).tolist():
        box = augment.random_crop(width, height, drawn=drawn, scale=scale, ratio=ratio)
        assert box.width * box.height > 0.98 * width * height, "but for a line of pixels"


def test_the_mean_size_is_over_all_pictures(tmp_path: Path) -> None:
    for number, size in enumerate([(10, 20), (30, 40)]):
        (tmp_path / "data" / "a").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size).save(tmp_path / "data" / "a" / f"{number}.jpg")
    with pictures.found(str(tmp_path / "data"), seconds=1.0) as some:
        assert some.mean_pixels == (200 + 1200) / 2 and "20 x 30 pixels" in some.what
