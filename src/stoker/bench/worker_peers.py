"""Peers that load in worker processes, as their tutorials show, but for the box, which is given."""

import collections
import functools
import io
import tarfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.bench.job import BATCH, Job

# The rows of a batch and their pixels, as count x height x width x 3 or count x 3 x height x width.
Rows = NDArray[np.int64]
Batches = Iterator[tuple[Rows, NDArray[np.uint8]]]


class Samples:
    """A job's samples by their position, as torch's DataLoader asks for them."""

    def __init__(self, job: Job, pixels: Callable[[Job, int], Any]) -> None:
        self.job, self.pixels = job, pixels

    def __len__(self) -> int:
        return len(self.job.rows)

    def __getitem__(self, position: int) -> tuple[int, Any]:
        row = int(self.job.rows[position])
        return row, self.pixels(self.job, row)


def from_torch(loader: Any) -> Batches:
    """The batches of a loader that gives tensors."""
    for rows, pixels in loader:
        yield rows.numpy(), pixels.numpy()


def torch_batches(samples: Samples) -> Batches:
    """Load with torch's DataLoader."""
    torch = import_module("torch")
    torch.set_num_threads(samples.job.workers)
    return from_torch(torch.utils.data.DataLoader(samples, BATCH, num_workers=samples.job.processes))


def torch_pillow(job: Job) -> Batches:
    """Load with torch's DataLoader, Pillow and torchvision's v2 transforms."""
    return torch_batches(Samples(job, pillow_file))


def torch_io(job: Job) -> Batches:
    """Load with torch's DataLoader and torchvision's own decoder, then its v2 transforms on tensors."""
    return torch_batches(Samples(job, decoded_by_torchvision))


def pillow_file(job: Job, row: int) -> Any:
    """A row's picture, decoded from its file by Pillow."""
    image = import_module("PIL.Image")
    with image.open(job.file(row)) as picture:
        return transformed(job, row, picture.convert("RGB"))


def decoded_by_torchvision(job: Job, row: int) -> Any:
    """A row's picture, decoded from its file by torchvision."""
    tv = import_module("torchvision.io")
    return transformed(job, row, tv.decode_jpeg(tv.read_file(job.file(row)), mode=tv.ImageReadMode.RGB))


def transformed(job: Job, row: int, picture: Any) -> Any:
    """A row's part of a picture, in the size of the job, as a tensor of bytes."""
    v2 = import_module("torchvision.transforms.v2.functional")
    left, top, width, height = job.boxes[row].tolist()
    part = v2.resized_crop(picture, top, left, height, width, [job.side, job.side], antialias=True)
    if job.flips[row]:
        part = v2.horizontal_flip(part)
    return v2.to_image(part) if hasattr(part, "mode") else part


def webdataset(job: Job) -> Batches:
    """Load tar shards with the webdataset package, decoding with Pillow."""
    wds = import_module("webdataset")
    passes = -(-len(job.rows) // len(job.files))
    shards = wds.WebDataset(tar_shards(job), shardshuffle=False).repeat(passes).decode("pil")
    chosen = shards.map(functools.partial(from_shard, job, collections.Counter())).select(bool)
    batches = chosen.batched(BATCH)
    return from_torch(wds.WebLoader(batches, batch_size=None, num_workers=job.processes))


def tar_shards(job: Job) -> list[str]:
    """The files of a job as tar shards, of which every worker takes as many as the others."""
    folder = job.folder / "webdataset"
    shards = [folder / f"{shard:03d}.tar" for shard in range(4 * job.workers)]
    if not folder.exists():
        folder.mkdir()
        for number, path in enumerate(shards):
            with tarfile.open(path, "w") as shard:
                for place in range(number, len(job.files), len(shards)):
                    shard.add(job.files[place], arcname=f"{place:07d}.jpg")
    return [str(path) for path in shards]


def from_shard(job: Job, seen: "collections.Counter[str]", sample: dict[str, Any]) -> tuple[Any, Any] | None:
    """A member of a shard as a row and its picture; nothing where the job ends before it."""
    key = sample["__key__"]
    # A shard belongs to one worker, so a worker's own count says which pass this is.
    row = seen[key] * len(job.files) + int(key)
    seen[key] += 1
    return (row, transformed(job, row, sample["jpg"])) if row < len(job.rows) else None


def litdata(job: Job) -> Batches:
    """Load chunks that LitData wrote, with its own loader, decoding with Pillow."""
    lit = import_module("litdata")
    folder = job.folder / "litdata"
    if not folder.exists():
        lit.optimize(
            functools.partial(lit_sample, job.files), list(range(len(job.rows))), str(folder),
            chunk_bytes="64MB", num_workers=1, reorder_files=False, verbose=False,
        )  # fmt: skip
    chunks = lit.StreamingDataset(str(folder), shuffle=False, transform=functools.partial(from_chunk, job))
    return from_torch(lit.StreamingDataLoader(chunks, batch_size=BATCH, num_workers=job.processes))


def lit_sample(files: tuple[str, ...], row: int) -> dict[str, Any]:
    """What LitData stores of a row."""
    return {"row": row, "jpeg": Path(files[row % len(files)]).read_bytes()}


def from_chunk(job: Job, sample: dict[str, Any]) -> tuple[int, Any]:
    """A stored sample as a row and its picture."""
    image = import_module("PIL.Image")
    row = int(sample["row"])
    with image.open(io.BytesIO(sample["jpeg"])) as picture:
        return row, transformed(job, row, picture.convert("RGB"))
