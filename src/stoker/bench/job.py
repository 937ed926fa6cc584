"""What every contestant is given: the same files, the same boxes and flips, the same size and number of cores."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.config import ImageConfig
from stoker.data import augment, decode, order
from stoker.data.index import JPEG, Index

BATCH = 32
SEED = 0
# More files than this are sampled evenly: the rounds are short, and what is compared is not the disk.
MOST_FILES = 2000


@dataclass(frozen=True, kw_only=True)
class Photos:
    """The JPEG files that are loaded, and their sizes in pixels."""

    files: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """The work of one round. A row is a file with a box; row r is file r modulo the number of files."""

    files: tuple[str, ...]
    rows: NDArray[np.int64]
    """the order in which rows are loaded where a loader can be told"""
    boxes: NDArray[np.int64]
    """left, top, width and height of each row's crop"""
    flips: NDArray[np.bool_]
    side: int
    workers: int
    """threads or processes, and cores they run on"""
    processes: int
    """worker processes of loaders that have them; with 0 they work in the process that asks"""
    epoch: int
    """what the boxes were drawn for"""
    folder: Path
    """where a peer may keep the files in its own format, from round to round"""

    def file(self, row: int) -> str:
        """The file of a row."""
        return self.files[row % len(self.files)]

    def raw(self, row: int) -> bytes:
        """The bytes of a row's file."""
        return Path(self.file(row)).read_bytes()


def photos(*indexes: Index, folder: Path) -> Photos:
    """The three-colour JPEGs of some indexes as files of their own; those that lie inside others are copied out."""
    found: dict[str, tuple[int, int]] = {}
    places = [(index, sample) for index in indexes for sample in np.flatnonzero(index.codec == JPEG).tolist()]
    for number in np.unique(np.linspace(0, len(places) - 1, min(MOST_FILES, len(places)), dtype=np.int64)).tolist():
        index, sample = places[number]
        path = index.path(sample)
        raw = index.read(sample)
        try:
            picture = decode.opened(raw)
            # Grey and CMYK files are rare, and not every peer knows them.
            if picture.format != "JPEG" or picture.mode != "RGB":
                continue
            picture.load()
        except (decode.Unreadable, *decode.ERRORS):
            continue
        if index.offset[sample] or len(raw) != path.stat().st_size:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{number:07d}.jpg"
            path.write_bytes(raw)
        found[str(path.resolve())] = picture.size
    return Photos(files=tuple(found), sizes=tuple(found.values()))


def made(
    found: Photos, *, count: int, epoch: int, image: ImageConfig, workers: int, processes: int, folder: Path
) -> Job:
    """The boxes and flips that Stoker's own loader draws for `count` rows in an epoch, for everyone to use."""
    positions = np.arange(count)
    rows = order.permuted(positions, count=count, seed=SEED, epoch=epoch)
    boxes, flips = np.empty((count, 4), np.int64), np.empty(count, np.bool_)
    for row, drawn in zip(rows.tolist(), augment.draws(SEED, epoch=epoch, positions=positions).tolist(), strict=True):
        size = found.sizes[row % len(found.sizes)]
        box = augment.random_crop(*size, drawn=drawn, scale=image.crop_scale, ratio=image.crop_ratio)
        boxes[row] = box.left, box.top, box.width, box.height
        flips[row] = augment.is_flipped(drawn, image.flip)
    return Job(
        files=found.files, rows=rows, boxes=boxes, flips=flips, side=image.resolution, workers=workers,
        processes=processes, epoch=epoch, folder=folder,
    )  # fmt: skip
