"""What trained networks answer: scores over a dataset, and what they see in pictures."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from stoker import progress
from stoker.data import index as indexes
from stoker.data import order, sources
from stoker.data.index import Index
from stoker.data.loader import Batch, Loader
from stoker.data.sources.pictures import SUFFIXES
from stoker.dist import World
from stoker.errors import Problem
from stoker.tasks import labels
from stoker.train.site import decode_threads
from stoker.train.trained import Answerer

LIKELIEST = 5
BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a network says a picture shows, most likely first."""

    input: str
    classes: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    unreadable: str | None = None
    """why there is no answer"""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a network reaches on held-out samples."""

    model: str
    checkpoint: str
    """the checkpoint or file that the weights come from"""
    average: bool
    """whether the weights are the average that training kept"""
    data: str
    resolution: int
    samples: int
    unreadable: int
    matched: str
    """what told which class of the data is which output of the network"""
    scores: dict[str, float]


def evaluate(net: Answerer, *, data: str | None, batch: int, show: bool) -> Scores:
    """The scores of a network on held-out samples, each counted once."""
    if batch < 1:
        raise Problem(f"batch is {batch}", fix="give at least 1 sample")
    if data is not None:
        samples, own = sources.open_held_out(replace(net.config.data, data=data), show=show)
        found, what = labels.numbered(samples, own, net.labels, where=data), data
    elif net.run is not None:
        held = net.task.open(seed=net.config.train.seed, show=show)
        found = labels.numbered(held.held_out, held.classes, net.labels, where=net.config.data.data)
        what = f"{net.config.data.data}, held out: {held.held_out_name}"
    else:
        raise Problem(f"{net.source} has no data of its own", fix="say what to evaluate on: --data DATA")
    *totals, count, bad = scored(net, batches(net, found.samples, batch), show=show).tolist()
    if not count:
        raise Problem(f"none of the {len(found.samples)} samples can be read", fix="see why with: stoker inspect DATA")
    scores = dict(zip(net.task.score_names, (total / count for total in totals), strict=True))
    image = net.config.image
    return Scores(
        model=net.config.model.model,
        checkpoint=net.source,
        average=net.is_average,
        data=what,
        resolution=image.eval_resolution or image.resolution,
        samples=int(count),
        unreadable=int(bad),
        matched=found.how,
        scores=scores,
    )


def scored(net: Answerer, loader: Loader, *, show: bool) -> torch.Tensor:
    """The sums and count of the scores over all batches, then how many samples could not be read."""
    sums = torch.zeros(len(net.task.score_names) + 2, dtype=torch.float64, device=net.device)

    def added() -> Iterator[int]:
        for batch in loader:
            if len(batch.labels):
                sums[:-1] += net.task.score(net.network, net.task.moved(batch, net.device))
            yield int(batch.plan.samples[-1]) + 1

    with contextlib.closing(loader):
        progress.follow(added(), total=len(loader.index), what="evaluating", show=show)
    sums[-1] = len(loader.bad)
    return sums


def batches(net: Answerer, samples: Index, batch: int) -> Loader:
    """Samples as the network is shown them, each once, in order."""
    plans = order.evaluation_plans(len(samples), batch=batch, rank=0, world=1)
    threads = decode_threads(net.config.loader.threads, World())
    return net.task.batches(samples, plans, seed=None, threads=threads, pin=net.device.type == "cuda")


def predict(net: Answerer, inputs: Sequence[Path], *, show: bool) -> list[Answer]:
    """What a network sees in pictures, and in all pictures of folders. One that can't be read does not end the rest."""
    paths = [path for given in inputs for path in pictures(given)]
    if not paths:
        raise Problem("no pictures were given", fix="stoker predict RUN PICTURE ...")
    sizes = {place: size_of(path) for place, path in enumerate(paths)}
    found = {place: Answer(input=str(paths[place]), unreadable=str(size)) for place, size in sizes.items()}
    there = [place for place, size in sizes.items() if isinstance(size, int)]
    if not there:
        return [*found.values()]
    # Files from everywhere lie below the root.
    names = [os.path.abspath(paths[place]).lstrip("/") for place in there]
    index = indexes.of_files(Path("/"), names, sizes=[int(sizes[place]) for place in there], labels=[0] * len(there))
    loader = batches(net, index, BATCH)

    def answered() -> Iterator[int]:
        for batch in loader:
            good = [sample for sample in batch.plan.samples.tolist() if sample not in loader.bad]
            for sample, answer in zip(good, answers(net, batch), strict=True):
                found[there[sample]] = replace(answer, input=str(paths[there[sample]]))
            yield int(batch.plan.samples[-1]) + 1

    with contextlib.closing(loader):
        progress.follow(answered(), total=len(there), what="predicting", show=show)
    for sample, why in loader.bad.items():
        found[there[sample]] = Answer(input=str(paths[there[sample]]), unreadable=why)
    return [found[place] for place in range(len(paths))]


def answers(net: Answerer, batch: Batch) -> list[Answer]:
    """The likeliest classes of each picture of a batch."""
    if not len(batch.labels):
        return []
    with torch.inference_mode():
        likely = net.task.answers(net.network, batch.pixels.to(net.device)).softmax(1)
        best = likely.topk(min(LIKELIEST, likely.shape[1]))
    return [
        Answer(input="", classes=tuple(net.labels.names[place] for place in places), probabilities=tuple(chances))
        for places, chances in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def pictures(given: Path) -> list[Path]:
    """All pictures below a folder, in the order of their names; a file is itself."""
    if not given.is_dir():
        return [given]
    found = sorted(p for p in given.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    if not found:
        raise Problem(f"the folder {given} holds no pictures", fix=f"give pictures: {', '.join(sorted(SUFFIXES))}")
    return found


def size_of(path: Path) -> int | str:
    """A file's bytes, or why it can't be read."""
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_size or "the file is empty"
    except OSError as error:
        return error.strerror or str(error)
