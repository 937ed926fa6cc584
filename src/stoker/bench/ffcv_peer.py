"""The peer with a file format and a compiler of its own: FFCV."""

import contextlib
import io
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from stoker.bench.job import BATCH, Job
from stoker.bench.worker_peers import Batches
from stoker.data import decode

# How FFCV marks a picture that is stored as a JPEG.
JPEG = 0


def ffcv(job: Job) -> Batches:
    """Load with FFCV from its own file, which holds the same JPEGs, with its decoder and OpenCV's area filter."""
    decoders, loaders = import_module("ffcv.fields.decoders"), import_module("ffcv.loader")
    image = decoders.CenterCropRGBImageDecoder((job.side, job.side), 1.0)
    # No decoder of FFCV's takes a box from outside. This one does what they do, and takes it from the job.
    image.generate_code = lambda: filling(job, image)
    loader = loaders.Loader(
        beton(job), BATCH, num_workers=job.workers, os_cache=True, order=loaders.OrderOption.SEQUENTIAL,
        indices=job.rows, drop_last=False, pipelines={"image": [image], "row": [decoders.IntDecoder()]},
    )  # fmt: skip
    for pixels, rows in loader:
        yield rows.ravel().astype(np.int64), pixels


def filling(job: Job, decoder: Any) -> Callable[..., Any]:
    """The function that fills a batch, as FFCV compiles it."""
    library, compiler = import_module("ffcv.libffcv"), import_module("ffcv.pipeline.compiler").Compiler
    read, each = decoder.memory_read, compiler.get_iterator()
    decode_jpeg, resize = compiler.compile(library.imdecode), compiler.compile(library.resize_crop)
    boxes, flips = job.boxes, job.flips

    def fill(batch_indices: Any, storage: Any, metadata: Any, state: Any) -> Any:
        pixels, scratch = storage
        for place in each(len(batch_indices)):
            row = batch_indices[place]
            height, width = np.uint32(metadata[row]["height"]), np.uint32(metadata[row]["width"])
            raw, whole = read(metadata[row]["data_ptr"], state), scratch[place]
            decode_jpeg(raw, whole, height, width, height, width, 0, 0, 1, 1, False, False)
            whole = whole.reshape(-1)[: 3 * height * width].reshape(height, width, 3)
            left, top, across, down = boxes[row]
            resize(whole, top, top + down, left, left + across, pixels[place])
            if flips[row]:
                pixels[place] = pixels[place][:, ::-1].copy()
        return pixels[: len(batch_indices)]

    fill.is_parallel = True  # type: ignore[attr-defined]  # how FFCV is told
    return fill


class Stored:
    """The rows of a job as FFCV's writer asks for them."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __len__(self) -> int:
        return len(self.job.rows)

    def __getitem__(self, row: int) -> tuple[bytes, int]:
        return self.job.raw(row), row


def beton(job: Job) -> str:
    """A file in FFCV's format with every row of a job, its JPEG as it is."""
    path = job.folder / "ffcv.beton"
    if not path.exists():
        fields, writers = import_module("ffcv.fields"), import_module("ffcv.writer")
        image = fields.RGBImageField(write_mode="jpg")
        # FFCV would encode each picture again; the files must be the same for all.
        image.encode = store
        writer = writers.DatasetWriter(str(path), {"image": image, "row": fields.IntField()}, num_workers=1)
        with contextlib.redirect_stderr(io.StringIO()):
            writer.from_indexed_dataset(Stored(job))
    return str(path)


def store(place: Any, raw: bytes, allotted: Callable[[int], Any]) -> None:
    """Enter a JPEG's bytes into FFCV's file."""
    place["mode"] = JPEG
    place["width"], place["height"] = decode.opened(raw).size
    place["data_ptr"], room = allotted(len(raw))
    room[:] = np.frombuffer(raw, np.uint8)
