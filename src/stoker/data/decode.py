"""Bytes of a picture file -> pixels of the size the network takes, by Pillow, which knows all formats.

JPEGs and bare pixels are done by the native decoder where there is one; what it refuses comes here.

Grey, palette, CMYK and 16-bit pictures become 8-bit RGB, transparency is dropped, and EXIF rotation is not applied: all
as torchvision's image folders do, except that 16-bit grey is scaled instead of clipped.
"""

import io
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from stoker.config import ImageConfig
from stoker.data import augment
from stoker.data.index import GREY, JPEG, OTHER, PLANES, Index

Pixels = NDArray[np.uint8]
# What Pillow's decoders raise on bytes that are no picture, or only a part of one.
ERRORS = (
    OSError, SyntaxError, ValueError, EOFError, IndexError, RuntimeError, struct.error, Image.DecompressionBombError,
)  # fmt: skip


# Once, before there are threads: Pillow loads its plugins at first need, and two threads at once may miss some.
Image.init()


class Unreadable(Exception):
    """Bytes that are no whole picture. Its text is the reason."""


def opened(raw: bytes) -> Image.Image:
    """A picture whose header was read and whose pixels were not."""
    try:
        return Image.open(io.BytesIO(raw))
    except ERRORS as error:
        raise Unreadable(reason(raw, error)) from None


def opened_sample(index: Index, sample: int, raw: bytes) -> Image.Image:
    """A sample of an index as a picture, also where its bytes are pixels without a header."""
    codec = index.codec[sample]
    if codec in (JPEG, OTHER):
        return opened(raw)
    assert index.width is not None and index.height is not None
    width, height = int(index.width[sample]), int(index.height[sample])
    values = np.frombuffer(raw, np.uint8)
    if len(values) != width * height * (1 if codec == GREY else 3):
        raise Unreadable(f"{len(raw)} bytes are no {width} x {height} pixels")
    if codec == GREY:
        return Image.fromarray(values.reshape(height, width))
    if codec == PLANES:
        values = np.ascontiguousarray(values.reshape(3, height, width).transpose(1, 2, 0))
    return Image.fromarray(values.reshape(height, width, 3))


def rgb(picture: Image.Image) -> Image.Image:
    """A picture's pixels as 8-bit RGB."""
    try:
        if picture.mode.startswith("I") or picture.mode == "F":
            return sixteen_bit(picture)
        if picture.mode == "RGB":
            picture.load()
            return picture
        # Pillow warns about transparency that a palette can't keep; it is dropped anyway.
        picture.info.pop("transparency", None)
        return picture.convert("RGB")
    except ERRORS as error:
        raise Unreadable(str(error) or type(error).__name__) from None


def sixteen_bit(picture: Image.Image) -> Image.Image:
    """16-bit values scaled to 0..255, as grey."""
    values = np.asarray(picture)
    return Image.fromarray(np.clip(values / 257.0 + 0.5, 0, 255).astype(np.uint8)).convert("RGB")


def reason(raw: bytes, error: BaseException) -> str:
    """Why some bytes are no picture, in words that help to find the cause."""
    if not raw:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return f"not a picture: it begins with {raw[:12]!r}"
    return str(error) or type(error).__name__


def training_pixels(raw: bytes | Image.Image, *, drawn: NDArray[np.float64], config: ImageConfig) -> Pixels:
    """A random part of a picture, resized with antialiasing, perhaps flipped."""
    picture = opened(raw) if isinstance(raw, bytes) else raw
    numbers = drawn.tolist()
    box = augment.random_crop(*picture.size, drawn=numbers, scale=config.crop_scale, ratio=config.crop_ratio)
    edges = (int(box.left), int(box.top), int(box.left + box.width), int(box.top + box.height))
    side = config.resolution
    part = rgb(picture).crop(edges).resize((side, side), Image.Resampling.BILINEAR)
    if augment.is_flipped(numbers, config.flip):
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(part)


def evaluation_pixels(raw: bytes | Image.Image, *, config: ImageConfig) -> Pixels:
    """The middle of a picture, resized with antialiasing in one pass."""
    picture = opened(raw) if isinstance(raw, bytes) else raw
    side = config.eval_resolution or config.resolution
    box = augment.centre_box(*picture.size, resolution=side, crop=config.eval_crop)
    edges = (box.left, box.top, box.left + box.width, box.top + box.height)
    return np.asarray(rgb(picture).resize((side, side), Image.Resampling.BILINEAR, box=edges))
