import io

import numpy as np
import pytest
from PIL import Image

from stoker.data import dials
from stoker.data.decode import Unreadable
from stoker.data.index import GREY, JPEG, OTHER, PLANES, RGB
from stoker.data.packing.encode import Encoding, stored, stored_pixels
from stoker.errors import Problem

SMALL = Encoding(short_side=32, quality=90)


def saved(picture: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def gradient(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture without sharp edges, so that it looks alike at any size."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)]
    return Image.fromarray(np.stack(channels, axis=2).astype(np.uint8)).convert(mode)


def opened(raw: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(raw))
    picture.load()
    return picture


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize(("size", "wanted"), [((96, 64), (48, 32)), ((50, 301), (32, 193)), ((33, 33), (32, 32))])
def test_what_is_larger_becomes_a_jpeg_with_the_short_side_asked_for(
    form: str, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    found = stored(saved(gradient(*size), form), SMALL)
    picture = opened(found.raw)
    assert (found.width, found.height) == picture.size == wanted
    assert (picture.format, picture.mode, found.extension, found.codec) == ("JPEG", "RGB", "jpg", JPEG)
    expected = np.asarray(gradient(*size).resize(wanted, Image.Resampling.BICUBIC), float)
    assert np.abs(np.asarray(picture, float) - expected).mean() < 4
    # 4:2:0: the first component has two samples where the others have one.
    assert [layer[1:3] for layer in picture.layer] == [(2, 2), (1, 1), (1, 1)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM"])
@pytest.mark.parametrize("keep", [False, True])
def test_what_is_not_larger_keeps_its_bytes(form: str, keep: bool) -> None:
    raw = saved(gradient(200 if keep else 32, 60), form)
    found = stored(raw, Encoding(short_side=32, keep=keep))
    assert found.raw == raw and found.skip == 0
    assert (found.width, found.height) == (200 if keep else 32, 60)
    assert found.codec == (JPEG if form == "JPEG" else OTHER)
    assert found.extension == {"JPEG": "jpg", "TIFF": "tif"}.get(form, form.lower())


@pytest.mark.parametrize("mode", ["L", "1", "I;16"])
def test_grey_stays_grey(mode: str) -> None:
    if mode == "I;16":
        grey = Image.fromarray(np.asarray(gradient(80, 80, "L")).astype(np.uint16) * 257)
    else:
        grey = gradient(80, 80, mode)
    picture = opened(stored(saved(grey, "PNG"), SMALL).raw)
    assert picture.mode == "L"
    if mode != "1":
        assert np.abs(np.asarray(picture, float) - np.asarray(gradient(32, 32, "L"), float)).mean() < 4


@pytest.mark.parametrize(("mode", "form"), [("CMYK", "JPEG"), ("P", "PNG"), ("RGBA", "PNG"), ("LA", "PNG")])
def test_other_colours_become_rgb(mode: str, form: str) -> None:
    picture = opened(stored(saved(gradient(80, 80).convert(mode), form), SMALL).raw)
    assert picture.mode == "RGB" and picture.size == (32, 32)


def test_rotation_is_neither_applied_nor_kept_and_no_profile_is() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    raw = saved(gradient(96, 64), "JPEG", exif=exif, icc_profile=b"profile")
    assert "exif" in opened(raw).info and "icc_profile" in opened(raw).info
    picture = opened(stored(raw, SMALL).raw)
    assert picture.size == (48, 32)
    assert not picture.getexif() and not {"exif", "icc_profile"} & picture.info.keys()


@pytest.mark.parametrize("encoding", [SMALL, Encoding(keep=True), Encoding(short_side=4000)])
def test_a_picture_that_is_cut_off_is_refused_whether_it_keeps_its_bytes_or_not(encoding: Encoding) -> None:
    raw = dials.draw(1, seed=0, size=64)
    for length in (0, 3, 100, len(raw) // 2, len(raw) - 10):
        with pytest.raises(Unreadable):
            stored(raw[:length], encoding)
    with pytest.raises(Unreadable, match="not a picture"):
        stored(b"hello, world" * 20, encoding)


@pytest.mark.parametrize(("codec", "kept_as"), [(GREY, GREY), (RGB, RGB), (PLANES, RGB)])
def test_pixels_become_a_file_that_others_read_and_whose_pixels_need_no_decoder(codec: int, kept_as: int) -> None:
    pixels = np.asarray(gradient(20, 12, "L" if codec == GREY else "RGB"))
    raw = pixels.transpose(2, 0, 1).tobytes() if codec == PLANES else pixels.tobytes()
    found = stored_pixels(raw, SMALL, codec=codec, width=20, height=12)
    assert (found.codec, found.width, found.height) == (kept_as, 20, 12)
    assert found.raw[found.skip :] == pixels.tobytes()
    assert np.array_equal(np.asarray(opened(found.raw)), pixels)
    with pytest.raises(Unreadable):
        stored_pixels(raw[:-1], SMALL, codec=codec, width=20, height=12)


def test_large_pixels_become_a_jpeg() -> None:
    pixels = np.asarray(gradient(128, 64))
    found = stored_pixels(pixels.tobytes(), SMALL, codec=RGB, width=128, height=64)
    assert (found.codec, found.extension, found.skip) == (JPEG, "jpg", 0)
    assert opened(found.raw).size == (64, 32)


def test_a_side_that_the_index_can_not_hold_is_refused() -> None:
    with pytest.raises(Unreadable, match="65,535"):
        stored(saved(Image.new("L", (70_000, 2)), "PNG"), SMALL)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(Problem, match="short_side"):
        Encoding(short_side=0)
    with pytest.raises(Problem, match="quality"):
        Encoding(quality=101)
