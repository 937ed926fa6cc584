"""Some pictures to decode: of the data that is given, else drawn ones that are as hard to decode as ImageNet's."""

import contextlib
import io
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoker import units
from stoker.doctor import listing
from stoker.errors import Problem

if TYPE_CHECKING:
    from stoker.data.index import Index
    from stoker.data.sources import Kind

MOST = listing.MOST_PICTURES
# ImageNet's photos are 500 x 375 pixels in 110 kB on average; dials are smoother, so they are kept finely: 100 kB.
WIDTH, HEIGHT, QUALITY = 500, 375, 100
FEWEST_DRAWN, MOST_DRAWN = 2, 24
# A larger file of many pictures may take minutes to be looked through.
LARGEST_FILE_BYTES = 2 * units.GIB


@dataclass(frozen=True, kw_only=True, eq=False)
class Pictures:
    """Pictures to decode, and what they are."""

    index: "Index"
    what: str
    mean_bytes: float
    mean_pixels: float
    data: str | None


@contextlib.contextmanager
def found(data: str | None, *, seconds: float) -> Iterator[Pictures]:
    """Some pictures of a source, or drawn ones where none is given. They are there while the block lasts."""
    if data is not None and data.partition(":")[0] != "dials":
        yield described(of_data(data, seconds=seconds), data)
        return
    with tempfile.TemporaryDirectory(prefix="stoker-doctor-", ignore_cleanup_errors=True) as folder:
        yield described(drawn(Path(folder), seconds=seconds), None)


def of_data(data: str, *, seconds: float) -> "Index":
    """Up to MOST samples of a source, found without listing all of it."""
    import numpy as np

    from stoker.config import DataConfig
    from stoker.data import index, sources, survey

    kind = sources.prepared(DataConfig(data=data), show=False)
    if kind.name == "folder":
        seen = listing.walked(kind.root, most_seconds=seconds).pictures
        paths, sizes = [path for path, _ in seen], [size for _, size in seen]
        whole = index.of_files(kind.root, paths, sizes=sizes, labels=[0] * len(seen))
    elif kind.name == "pack":
        whole = sources.open_source(DataConfig(data=data, allow_bad=1.0), seed=0, show=False).train
    else:
        rows = sources.rows_of(smallest(kind, data), show=False)
        whole = rows.indexed(dict.fromkeys(rows.labels, 0))
    if not len(whole):
        raise Problem(f"no pictures were found in {data}", fix=f"see what it holds: stoker inspect {data}")
    return whole.taken(np.array(survey.chosen(whole, MOST), np.int64))


def smallest(kind: "Kind", data: str) -> "Kind":
    """The same kind of source with its smallest file alone, which stands for the others."""
    path = min(kind.files, key=os.path.getsize)
    if kind.name != "list" and os.path.getsize(path) > LARGEST_FILE_BYTES:
        raise Problem(
            f"the smallest file of {data} has {units.bytes_text(os.path.getsize(path))}, too much to look through here",
            fix="give a pack, or leave --data out",
        )
    return replace(kind, files=(path,))


def drawn(folder: Path, *, seconds: float) -> "Index":
    """Draw pictures into a folder for so many seconds."""
    from PIL import Image

    from stoker.data import dials, index

    began, sizes = time.perf_counter(), list[int]()
    while len(sizes) < FEWEST_DRAWN or (len(sizes) < MOST_DRAWN and time.perf_counter() - began < seconds):
        encoded = io.BytesIO()
        with Image.open(io.BytesIO(dials.draw(len(sizes), seed=0, size=WIDTH))) as picture:
            top = (WIDTH - HEIGHT) // 2
            part = picture.crop((0, top, WIDTH, top + HEIGHT))
            part.save(encoded, "JPEG", quality=QUALITY, subsampling="4:2:0")
        (folder / f"{len(sizes)}.jpg").write_bytes(encoded.getvalue())
        sizes.append(len(encoded.getvalue()))
    return index.of_files(folder, [f"{n}.jpg" for n in range(len(sizes))], sizes=sizes, labels=[0] * len(sizes))


def described(index: "Index", data: str | None) -> Pictures:
    """What pictures these are, in words and figures. Reads the head of each."""
    from stoker.data import decode

    sizes = []
    for sample in range(len(index)):
        with contextlib.suppress(decode.Unreadable, OSError):
            sizes.append(decode.opened_sample(index, sample, index.read(sample)).size)
    if not sizes:
        raise Problem(f"none of {len(index)} pictures of {data} can be read", fix=f"stoker inspect {data}")
    width, height = (statistics.mean(size[axis] for size in sizes) for axis in (0, 1))
    mean_bytes = index.total_bytes / len(index)
    whose = "drawn pictures" if data is None else f"pictures of {data}"
    return Pictures(
        index=index,
        what=f"{len(index)} {whose}, {width:.0f} x {height:.0f} pixels and {mean_bytes / 1000:.0f} kB on average",
        mean_bytes=mean_bytes,
        mean_pixels=statistics.fmean(width * height for width, height in sizes),
        data=data,
    )
