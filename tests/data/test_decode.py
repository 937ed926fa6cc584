import io

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from stoker.config import ImageConfig
from stoker.data import augment, decode, dials

EVALUATION = ImageConfig(resolution=64)
SHAPES = [(200, 200), (300, 200), (150, 220), (64, 64), (40, 30), (30, 50)]


def photo(size: tuple[int, int] = (200, 200)) -> Image.Image:
    drawn = Image.open(io.BytesIO(dials.draw(4, seed=1, size=200)))
    return drawn.resize(size, Image.Resampling.LANCZOS)


def encoded(picture: Image.Image, form: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def seen(raw: bytes, *, resolution: int = 64) -> np.ndarray:
    """The whole of a square picture."""
    return decode.evaluation_pixels(raw, config=ImageConfig(resolution=resolution, eval_crop=1.0))


def off(found: np.ndarray, expected: object) -> float:
    """Mean difference, in steps of 1/255."""
    return float(np.abs(found.astype(float) - np.asarray(expected, float)).mean())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("crop", [0.875, 1.0])
def test_evaluation_pixels_are_those_of_torchvision(shape: tuple[int, int], crop: float):
    picture = photo(shape)
    expected = v2.CenterCrop(64)(v2.Resize(round(64 / crop), antialias=True)(picture))
    found = decode.evaluation_pixels(encoded(picture), config=ImageConfig(resolution=64, eval_crop=crop))
    assert found.shape == (64, 64, 3) and found.dtype == np.uint8
    assert off(found, expected) < 1


def test_evaluation_has_a_resolution_of_its_own_where_asked_for():
    config = ImageConfig(resolution=32, eval_resolution=48)
    assert decode.evaluation_pixels(encoded(photo()), config=config).shape == (48, 48, 3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_training_pixels_are_the_drawn_box_resized_and_flipped(shape: tuple[int, int], flip: float):
    picture, config = photo(shape), ImageConfig(resolution=32, flip=flip)
    for drawn in augment.draws(0, epoch=0, positions=np.arange(5)):
        box = augment.random_crop(*shape, drawn=drawn.tolist(), scale=config.crop_scale, ratio=config.crop_ratio)
        sides = [int(side) for side in (box.top, box.left, box.height, box.width)]
        expected = functional.resized_crop(picture, *sides, size=[32, 32], antialias=True)
        expected = functional.horizontal_flip(expected) if flip else expected
        assert off(decode.training_pixels(encoded(picture), drawn=drawn, config=config), expected) < 0.01


def test_grey_becomes_three_equal_channels():
    found = seen(encoded(photo().convert("L")))
    assert off(found, found[:, :, :1]) == 0
    assert off(found[:, :, 0], photo().convert("L").resize((64, 64), Image.Resampling.BILINEAR)) < 1


def test_a_palette_gives_its_colours():
    indexed = photo().quantize(32)
    expected = seen(encoded(indexed.convert("RGB")))
    assert expected.std() > 10
    assert off(seen(encoded(indexed)), expected) == 0


def test_a_palette_with_transparency_gives_its_colours_and_no_warning():
    indexed = photo().quantize(32)
    assert off(seen(encoded(indexed, transparency=bytes(range(0, 256, 8)))), seen(encoded(indexed))) == 0


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_dropped_and_the_colours_below_it_are_seen(mode: str):
    veiled = photo().convert(mode)
    veiled.putalpha(0)
    assert off(seen(encoded(veiled)), seen(encoded(photo().convert(mode[:-1])))) < 0.01


def test_a_cmyk_jpeg_gives_its_colours():
    raw = encoded(photo().convert("CMYK"), "JPEG", quality=95)
    assert Image.open(io.BytesIO(raw)).mode == "CMYK"
    assert off(seen(raw), seen(encoded(photo()))) < 4


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize(("value", "expected"), [(0, 0), (257, 1), (32768, 128), (65278, 254), (65535, 255)])
def test_16_bit_grey_is_scaled_not_clipped(form: str, value: int, expected: int):
    raw = encoded(Image.fromarray(np.full((9, 9), value, np.uint16)), form)
    assert Image.open(io.BytesIO(raw)).mode.startswith("I")
    assert np.unique(seen(raw, resolution=8)).tolist() == [expected]


@pytest.mark.parametrize("mode", ["RGB", "L", "1"])
def test_a_picture_of_one_pixel_fills_the_square_with_it(mode: str):
    raw = encoded(Image.new(mode, (1, 1), "white"))
    drawn = augment.draws(0, epoch=0, positions=np.arange(1))[0]
    assert np.unique(decode.evaluation_pixels(raw, config=EVALUATION)).tolist() == [255]
    assert np.unique(decode.training_pixels(raw, drawn=drawn, config=EVALUATION)).tolist() == [255]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "the file is empty"),
        (b"<html>404 not found</html>", "not a picture: it begins with b'<html>404 no'"),
        (dials.draw(1, seed=0, size=64)[:1000], "truncated"),
        (dials.draw(1, seed=0, size=64)[:30], ""),
        (encoded(photo((64, 64)))[:3000], "truncated"),
        (encoded(photo((64, 64)))[:20], ""),
        (b"\x00" * 5000, "not a picture"),
    ],
    ids=["empty", "text", "half a JPEG", "start of a JPEG", "half a PNG", "start of a PNG", "zeros"],
)
def test_what_is_no_whole_picture_is_unreadable_for_a_reason(raw: bytes, reason: str):
    drawn = augment.draws(0, epoch=0, positions=np.arange(1))[0]
    with pytest.raises(decode.Unreadable) as in_evaluation:
        decode.evaluation_pixels(raw, config=EVALUATION)
    with pytest.raises(decode.Unreadable) as in_training:
        decode.training_pixels(raw, drawn=drawn, config=EVALUATION)
    assert str(in_evaluation.value) and reason in str(in_evaluation.value)
    assert str(in_training.value) == str(in_evaluation.value)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "PPM"])
def test_a_picture_cut_anywhere_is_read_or_unreadable_and_nothing_else(form: str):
    raw = encoded(photo((40, 40)), form)
    reasons = []
    for size in range(0, len(raw), max(1, len(raw) // 60)):
        try:
            decode.evaluation_pixels(raw[:size], config=EVALUATION)
        except decode.Unreadable as error:
            reasons.append(str(error))
    assert len(reasons) > 40 and all(reasons)


def test_what_pillow_calls_an_error_of_its_own_is_an_unreadable_picture(monkeypatch: pytest.MonkeyPatch):
    def failing(*_: object) -> None:
        raise RuntimeError("Failed to decode image")

    picture = decode.opened(encoded(photo()))
    monkeypatch.setattr(picture, "load", failing)
    with pytest.raises(decode.Unreadable, match="Failed to decode image"):
        decode.rgb(picture)
