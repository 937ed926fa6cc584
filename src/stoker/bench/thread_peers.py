"""Peers that load in threads, their own or Python's, and in one loop without any."""

import collections
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stoker.bench.job import BATCH, SEED, Job
from stoker.config import ImageConfig
from stoker.data import index, order

Batches = Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]
AHEAD = 4
# Samples a thread takes at a time, as in Stoker's own loader.
CHUNK = 4


def cut(job: Job) -> list[NDArray[np.int64]]:
    """The rows of each batch."""
    return [job.rows[start : start + BATCH] for start in range(0, len(job.rows), BATCH)]


def stoker(job: Job) -> Batches:
    """Load with Stoker, a thread for each core."""
    return stoker_in(job, threads=job.workers)


def stoker_alone(job: Job) -> Batches:
    """Load with Stoker, in one thread."""
    return stoker_in(job, threads=1)


def stoker_in(job: Job, *, threads: int) -> Batches:
    """Load with Stoker in some threads."""
    from stoker.data.loader import Loader

    names = [job.file(row).lstrip("/") for row in range(len(job.rows))]
    sizes = {file: Path(file).stat().st_size for file in job.files}
    lengths = [sizes[job.file(row)] for row in range(len(job.rows))]
    rows = index.of_files(Path("/"), names, sizes=lengths, labels=list(range(len(job.rows))))
    pace = order.Pace(count=len(rows), batch=BATCH, atoms=1, last_step="drop")
    route = pace.route(epochs=job.epoch + 1, resolution=job.side)
    plans = order.training_plans(route, seed=SEED, epoch=job.epoch, position=0, rank=0, world=1)
    image = ImageConfig(resolution=job.side)
    loader = Loader(rows, plans, image=image, seed=SEED, threads=threads, ahead=AHEAD, pin=False)
    try:
        for batch in loader:
            yield batch.labels.numpy(), batch.pixels.numpy()
    finally:
        loader.close()


def pillow_loop(job: Job) -> Batches:
    """Decode with Pillow in one loop, without a loader."""
    for rows in cut(job):
        pixels = np.empty((len(rows), job.side, job.side, 3), np.uint8)
        for place, row in enumerate(rows.tolist()):
            pixels[place] = pillow_pixels(job, row)
        yield rows, pixels


def pillow_pixels(job: Job, row: int) -> NDArray[np.uint8]:
    """What every other result is compared with: Pillow's antialiased resize of the crop."""
    left, top, width, height = job.boxes[row].tolist()
    with Image.open(job.file(row)) as picture:
        part = picture.convert("RGB").crop((left, top, left + width, top + height))
    part = part.resize((job.side, job.side), Image.Resampling.BILINEAR)
    return np.asarray(part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if job.flips[row] else part)


def opencv(job: Job) -> Batches:
    """Decode with simplejpeg and resize with OpenCV's area filter, in a pool of threads."""
    # The pool's threads are the parallel part; OpenCV's own would only stand in their way.
    import_module("cv2").setNumThreads(1)
    return pooled(job, area)


def simplejpeg(job: Job) -> Batches:
    """Decode with simplejpeg and resize with Pillow, in a pool of threads."""
    return pooled(job, resized_by_pillow)


def pooled(job: Job, fill: Callable[[Job, NDArray[np.int64], NDArray[np.uint8]], None]) -> Batches:
    """Fill batches in a pool of threads, some batches ahead."""
    waiting: collections.deque[tuple[Any, Any, list[Future[None]]]] = collections.deque()
    batches = iter(cut(job))
    with ThreadPoolExecutor(job.workers) as pool:
        while True:
            for rows in itertools.islice(batches, AHEAD + 1 - len(waiting)):
                pixels = np.empty((len(rows), job.side, job.side, 3), np.uint8)
                parts = [slice(start, start + CHUNK) for start in range(0, len(rows), CHUNK)]
                waiting.append((rows, pixels, [pool.submit(fill, job, rows[p], pixels[p]) for p in parts]))
            if not waiting:
                return
            rows, pixels, parts_done = waiting.popleft()
            for part in parts_done:
                part.result()
            yield rows, pixels


def area(job: Job, rows: NDArray[np.int64], pixels: NDArray[np.uint8]) -> None:
    """Fill some rows of a batch with simplejpeg and OpenCV."""
    cv2, decoder = import_module("cv2"), import_module("simplejpeg")
    for row, dest in zip(rows.tolist(), pixels, strict=True):
        left, top, width, height = job.boxes[row].tolist()
        whole = decoder.decode_jpeg(job.raw(row), "RGB")
        part = whole[top : top + height, left : left + width]
        if job.flips[row]:
            cv2.flip(cv2.resize(part, (job.side, job.side), interpolation=cv2.INTER_AREA), 1, dst=dest)
        else:
            cv2.resize(part, (job.side, job.side), dst=dest, interpolation=cv2.INTER_AREA)


def resized_by_pillow(job: Job, rows: NDArray[np.int64], pixels: NDArray[np.uint8]) -> None:
    """Fill some rows of a batch with simplejpeg and Pillow."""
    decoder = import_module("simplejpeg")
    for row, dest in zip(rows.tolist(), pixels, strict=True):
        left, top, width, height = job.boxes[row].tolist()
        part = decoder.decode_jpeg(job.raw(row), "RGB")[top : top + height, left : left + width]
        small = Image.fromarray(part).resize((job.side, job.side), Image.Resampling.BILINEAR)
        dest[:] = np.asarray(small.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if job.flips[row] else small)


def dali(job: Job) -> Batches:
    """Load with DALI on the CPU, which decodes only the rows of the picture that the box needs."""
    pipelines, fn, types = (import_module(f"nvidia.dali.{name}") for name in ("pipeline", "fn", "types"))
    batches = cut(job)

    def boxes(batch: int) -> tuple[Any, ...]:
        # DALI asks for some batches more than it gives.
        rows = batches[batch % len(batches)]
        whole = job.boxes[rows]
        return whole[:, :2].copy(), whole[:, 2:].copy(), job.flips[rows].astype(np.int32)

    pipe = pipelines.Pipeline(BATCH, job.workers, None, prefetch_queue_depth=2)
    with pipe:
        files = [job.file(row) for row in job.rows.tolist()]
        raw, rows = fn.readers.file(files=files, labels=job.rows.tolist(), random_shuffle=False)
        corner, size, flip = fn.external_source(source=boxes, num_outputs=3)
        part = fn.decoders.image_slice(
            raw, corner, size, axis_names="WH", normalized_anchor=False, normalized_shape=False,
            output_type=types.RGB, adjust_orientation=False,
        )  # fmt: skip
        part = fn.resize(part, size=[job.side, job.side], interp_type=types.INTERP_TRIANGULAR, antialias=True)
        pipe.set_outputs(rows, fn.flip(part, horizontal=flip))
    pipe.build()
    for _ in batches:
        rows, pixels = pipe.run()
        yield rows.as_array().ravel().astype(np.int64), pixels.as_array()


def spdl(job: Job) -> Batches:
    """Load with SPDL, which decodes, crops and resizes with FFmpeg."""
    io, pipelines = import_module("spdl.io"), import_module("spdl.pipeline")
    flags = "bilinear+accurate_rnd+full_chroma_int+full_chroma_inp"

    def decoded(row: int) -> tuple[int, Any]:
        left, top, width, height = job.boxes[row].tolist()
        steps = f"crop={width}:{height}:{left}:{top}:exact=1,scale={job.side}:{job.side}:flags={flags},format=rgb24"
        flip = ",hflip" if job.flips[row] else ""
        return row, io.decode_packets(io.demux_image(job.file(row)), filter_desc=steps + flip)

    def batch(samples: list[tuple[int, Any]]) -> tuple[Any, Any]:
        rows, frames = zip(*samples, strict=True)
        return np.array(rows), io.to_numpy(io.convert_frames(list(frames)))

    builder = pipelines.PipelineBuilder().add_source(job.rows.tolist()).pipe(decoded, concurrency=job.workers)
    pipeline = builder.aggregate(BATCH).pipe(batch).add_sink(AHEAD).build(num_threads=job.workers)
    with pipeline.auto_stop():
        yield from pipeline
