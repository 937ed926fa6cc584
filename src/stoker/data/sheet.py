"""A contact sheet: some samples of each class side by side, with how many there are, as one picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from stoker.data import decode
from stoker.data.dataset import Dataset
from stoker.data.index import Index
from stoker.errors import Problem

TILE, GAP, LABEL, BAR, HEAD = 112, 6, 190, 170, 40
COLUMNS, MOST_ROWS = 8, 25
INK, PALE, PAPER, FILL = (30, 34, 40), (120, 126, 134), (250, 250, 248), (0, 114, 178)


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """A class on the sheet."""

    name: str
    count: int
    pictures: list[Image.Image | None]
    """None for a sample that can't be read"""


def check_place(path: Path) -> None:
    """Refuse a place where no sheet can be written, before thousands of pictures are decoded."""
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise Problem(f"the contact sheet can't be written: {error}", fix="give another place with --sheet") from None


def contact_sheet(data: Dataset) -> Image.Image:
    """Up to MOST_ROWS classes, evenly spread, each with samples that are evenly spread over it."""
    chosen = np.unique(np.linspace(0, len(data.classes) - 1, min(len(data.classes), MOST_ROWS)).round().astype(int))
    rows = [row(data, int(label)) for label in chosen]
    width = LABEL + BAR + COLUMNS * (TILE + GAP) + GAP
    sheet = Image.new("RGB", (width, HEAD + len(rows) * (TILE + GAP) + GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    total = len(data.train) + len(data.held_out)
    left_out = "" if len(rows) == len(data.classes) else f", of which {len(rows)} are shown"
    title = f"{data.name}: {total:,} samples, {len(data.classes):,} classes{left_out}"
    draw.text((GAP, 10), title, INK, ImageFont.load_default(18))
    most = max(one.count for one in rows)
    for number, one in enumerate(rows):
        draw_row(sheet, draw, one, top=HEAD + number * (TILE + GAP), most=most)
    return sheet


def row(data: Dataset, label: int) -> Row:
    """Samples of one class, those to train on first."""
    places = [(index, int(sample)) for index in (data.train, data.held_out) for sample in of_class(index, label)]
    shown = [places[int(at)] for at in np.linspace(0, len(places) - 1, min(len(places), COLUMNS)).round()]
    pictures = [tile(index, sample) for index, sample in dict.fromkeys(shown)]
    return Row(name=data.classes[label], count=len(places), pictures=pictures)


def of_class(index: Index, label: int) -> Iterator[int]:
    """The places of a class's samples in an index."""
    yield from np.flatnonzero(index.label == label).tolist()


def tile(index: Index, sample: int) -> Image.Image | None:
    """A sample, small."""
    try:
        picture = decode.opened_sample(index, sample, index.read(sample))
        picture.draft("RGB", (TILE, TILE))
        whole = decode.rgb(picture)
    except (decode.Unreadable, OSError):
        return None
    scale = TILE / max(whole.size)
    size = max(1, round(whole.width * scale)), max(1, round(whole.height * scale))
    # Pictures of a few pixels are shown as they are: pixels, not a blur.
    return whole.resize(size, Image.Resampling.NEAREST if scale > 2 else Image.Resampling.LANCZOS)


def draw_row(sheet: Image.Image, draw: ImageDraw.ImageDraw, one: Row, *, top: int, most: int) -> None:
    """A class's name, its count as a bar, and its samples."""
    middle = top + TILE // 2
    name = one.name if len(one.name) <= 24 else one.name[:23] + "…"
    draw.text((GAP, middle), name, INK, ImageFont.load_default(15), anchor="lm")
    long = round((BAR - 70) * one.count / most)
    draw.rectangle((LABEL, middle - 8, LABEL + max(1, long), middle + 8), FILL)
    draw.text((LABEL + long + 6, middle), f"{one.count:,}", INK, ImageFont.load_default(14), anchor="lm")
    for number, picture in enumerate(one.pictures):
        left = LABEL + BAR + number * (TILE + GAP)
        if picture is None:
            draw.rectangle((left, top, left + TILE - 1, top + TILE - 1), outline=PALE)
            draw.text((left + TILE // 2, middle), "unreadable", PALE, ImageFont.load_default(14), anchor="mm")
        else:
            sheet.paste(picture, (left + (TILE - picture.width) // 2, top + (TILE - picture.height) // 2))
