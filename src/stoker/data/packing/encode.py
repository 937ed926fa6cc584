"""A picture's bytes -> the bytes that a pack stores. What is not made smaller keeps its bytes.

Every picture is decoded once, whether its bytes are kept or not: a pack holds nothing that can't be read. Colours are
as in decode.py, except that grey stays grey. EXIF rotation is not applied, and a re-encoded picture keeps neither EXIF
nor a colour profile: it looks as it is trained on.
"""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from stoker.config import demand
from stoker.data import decode
from stoker.data.decode import Unreadable
from stoker.data.index import GREY, JPEG, OTHER, PLANES, RGB

# Extensions that differ from the name of the format.
EXTENSIONS = {"JPEG": "jpg", "MPO": "jpg", "TIFF": "tif", "JPEG2000": "jp2"}
NETPBM = {b"P1": "pbm", b"P2": "pgm", b"P3": "ppm", b"P4": "pbm", b"P5": "pgm", b"P6": "ppm"}
CHANNELS = {GREY: 1, RGB: 3, PLANES: 3}
# Sizes are stored in 16 bits.
LARGEST_SIDE = 2**16 - 1
# A JPEG is decoded at a fraction of its size when that is still this many times the size wanted (as Pillow's
# thumbnails are): the resize that follows then hides the difference.
REDUCING_GAP = 2


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What is done to pictures on their way into a pack."""

    short_side: int = 256
    """pixels of the short side of what is larger than that"""
    quality: int = 90
    """JPEG quality of what is made smaller"""
    keep: bool = False
    """leave all bytes as they are"""

    def __post_init__(self) -> None:
        demand(self.short_side >= 16, f"short_side is {self.short_side}", fix="give at least 16 pixels, or --keep")
        demand(1 <= self.quality <= 100, f"quality is {self.quality}", fix="give a JPEG quality from 1 to 100")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A picture as a file of a pack."""

    raw: bytes
    extension: str
    codec: int
    width: int
    height: int
    skip: int = 0
    """bytes of a header before the pixels, where the codec is pixels"""


def stored(raw: bytes, encoding: Encoding) -> Stored:
    """A picture file as it is stored. Raises Unreadable for what is no whole picture."""
    picture = decode.opened(raw)
    width, height = picture.size
    if not encoding.keep and min(width, height) > encoding.short_side:
        return smaller(picture, encoding)
    if max(width, height) > LARGEST_SIDE:
        raise Unreadable(f"{width} x {height} pixels, and a side may have {LARGEST_SIDE:,} at most")
    form = picture.format or ""
    check(picture)
    return Stored(
        raw=raw,
        extension=NETPBM[raw[:2]] if form == "PPM" and raw[:2] in NETPBM else EXTENSIONS.get(form, form.lower()),
        codec=JPEG if EXTENSIONS.get(form) == "jpg" else OTHER,
        width=width,
        height=height,
    )


def stored_pixels(raw: bytes, encoding: Encoding, *, codec: int, width: int, height: int) -> Stored:
    """Pixels without a header as a PGM or PPM file, which every program reads; the pack's index points past its header.

    A plane of each colour becomes interleaved. What is larger than the short side becomes a JPEG as other pictures do.
    """
    channels = CHANNELS[codec]
    if len(raw) != width * height * channels:
        raise Unreadable(f"{len(raw)} bytes are not {width} x {height} pixels of {channels}")
    pixels = np.frombuffer(raw, np.uint8)
    if codec == PLANES:
        pixels = pixels.reshape(channels, -1).T
    if not encoding.keep and min(width, height) > encoding.short_side:
        shape = (height, width) if channels == 1 else (height, width, channels)
        return smaller(Image.fromarray(np.ascontiguousarray(pixels).reshape(shape)), encoding)
    header = b"P%d\n%d %d\n255\n" % (5 if channels == 1 else 6, width, height)
    return Stored(
        raw=header + pixels.tobytes(),
        extension="pgm" if channels == 1 else "ppm",
        codec=GREY if channels == 1 else RGB,
        width=width,
        height=height,
        skip=len(header),
    )


def smaller(picture: Image.Image, encoding: Encoding) -> Stored:
    """A picture resized with antialiasing, so that its short side is the one asked for, as a JPEG."""
    share = encoding.short_side / min(picture.size)
    width, height = (max(1, round(side * share)) for side in picture.size)
    if max(width, height) > LARGEST_SIDE:
        raise Unreadable(f"{picture.width} x {picture.height} pixels is too long for a JPEG")
    # Does nothing to other formats than JPEG.
    picture.draft(None, (width * REDUCING_GAP, height * REDUCING_GAP))
    resized = colours(picture).resize((width, height), Image.Resampling.BICUBIC)
    encoded = io.BytesIO()
    # Nothing of the old file goes along.
    resized.info.clear()
    # Each row of blocks can be found by itself, so that a crop does not unpack the rows above it: 0.2 % more bytes.
    resized.save(encoded, "JPEG", quality=encoding.quality, subsampling="4:2:0", restart_marker_rows=1)
    return Stored(raw=encoded.getvalue(), extension="jpg", codec=JPEG, width=width, height=height)


def colours(picture: Image.Image) -> Image.Image:
    """A picture's pixels as 8-bit grey if it is grey, else as 8-bit RGB."""
    is_grey = picture.mode in ("1", "L", "F") or picture.mode.startswith("I")
    if picture.mode == "L":
        check(picture, scaled=False)
        return picture
    # Of three equal channels, Pillow's grey is exactly their value.
    return decode.rgb(picture).convert("L") if is_grey else decode.rgb(picture)


def check(picture: Image.Image, *, scaled: bool = True) -> None:
    """Decode a picture to see that it can be."""
    if scaled:
        # An eighth of each side: all of a JPEG is still read and unpacked, which is where a damage shows.
        picture.draft(None, (1, 1))
    try:
        picture.load()
    except decode.ERRORS as error:
        raise Unreadable(str(error) or type(error).__name__) from None
