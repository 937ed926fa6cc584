"""What a report shows of image classification: what the network is given, and where it goes wrong."""

import contextlib
import heapq
import io
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from stoker import units
from stoker.data.index import Index
from stoker.data.loader import Batch, Loader
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.errors import Problem
from stoker.records import Exhibit, Picture
from stoker.tasks import Shown, confusion

if TYPE_CHECKING:
    from stoker.tasks.classify import Classify

GIVEN, WORST = 16, 24
# All samples of an atom are mixed alike, so of mixed ones a few of each of several atoms are shown.
OF_A_MIXED_ATOM = 4
# Pixels a side of what is shown: smaller pictures are enlarged, and larger ones made smaller.
LEAST_SIDE, MOST_SIDE, QUALITY = 96, 160, 85
NAMES = {"mixup": "MixUp", "cutmix": "CutMix"}
# Letters of a name or a path in the few lines below a picture.
NAME, PATH = 32, 48
# Between two looks at whether it is over, while a slow disk is waited for.
GLANCE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """A picture to be shown, as bytes (height x width x 3), with the words below it."""

    pixels: NDArray[np.uint8]
    caption: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Answered:
    """A held-out sample and what a network made of it."""

    sample: int
    """its place in the index"""
    label: int
    predicted: int
    probability: float
    loss: float
    pixels: NDArray[np.uint8]


def before(
    task: "Classify", data: Dataset, plans: Iterator[Plan], *, seed: int, threads: int, device: torch.device
) -> tuple[Shown, ...]:
    """The first samples of training, just as the network is given them."""
    is_mixed = bool(task.augment.mixup or task.augment.cutmix)
    each = OF_A_MIXED_ATOM if is_mixed else GIVEN
    batches = task.batches(data.train, begun(plans, each), seed=seed, threads=threads, pin=False)
    drawn: list[Drawn] = []
    with contextlib.closing(batches):
        for batch in batches:
            drawn += [*itertools.islice(given(task, batch, data.classes, device), each)]
    drawn = drawn[:GIVEN]
    first = f"The first {OF_A_MIXED_ATOM} samples of each of the first atoms" if is_mixed else "The first samples"
    caption = f"{first} of training, as the network is given them: {alterations(task)}."
    return (hung("augmented", drawn, title="What the network sees", caption=caption),)


def begun(plans: Iterator[Plan], each: int) -> Iterator[Plan]:
    """The beginnings of atoms until enough is shown, and one sample more of each: a sample is mixed with the next."""
    shown = 0
    while shown < GIVEN and (plan := next(plans, None)) is not None:
        shown += min(each, len(plan.samples))
        yield replace(plan, positions=plan.positions[: each + 1], samples=plan.samples[: each + 1], coming=())


def given(task: "Classify", batch: Batch, classes: Sequence[str], device: torch.device) -> Iterator[Drawn]:
    """The samples of an atom as the network is given them, each with its label, or both where two are mixed."""
    pictures = task.bytes_of(task.altered(task.moved(batch, device))).cpu().numpy()
    own = [words(classes[label], NAME) for label in batch.labels.tolist()]
    mix = batch.mix
    for pixels, label, other in zip(pictures, own, own[1:] + own[:1], strict=True):
        caption = label
        if mix is not None and mix.kind != "plain":
            shares = [units.percent_text(share) for share in (mix.weight, 1 - mix.weight)]
            caption = f"{NAMES[mix.kind]}: {shares[0]} {label}, {shares[1]} {other}"
        yield Drawn(pixels=pixels, caption=caption)


def alterations(task: "Classify") -> str:
    """What the settings do to a picture in training, in words."""
    image, augment = task.image, task.augment
    least, most = (100 * share for share in image.crop_scale)
    said = [f"random crops of {least:g} to {most:g} % of the picture" if least < 100 else "random crops"]
    if image.flip:
        said.append(f"{100 * image.flip:g} % are mirrored")
    if augment.translate:
        said.append(f"shifted by up to {units.count_text(augment.translate, 'pixel')}")
    if augment.erase:
        said.append(f"{100 * augment.erase:g} % lose a box")
    if mixed := [name for kind, name in NAMES.items() if getattr(augment, kind)]:
        said.append(f"mixed with the next sample by {' or '.join(mixed)}")
    if augment.label_smoothing:
        said.append(f"{100 * augment.label_smoothing:g} % of each label is spread over all classes")
    return "; ".join(said)


def after(
    task: "Classify", model: Any, data: Dataset, plans: Iterator[Plan], *, threads: int, device: torch.device, of: str,
    is_over: Callable[[], bool],
) -> tuple[Shown, ...]:  # fmt: skip
    """What is taken for what among held-out samples, and those with the highest loss. Keeps the pictures of few."""
    batches = task.batches(data.held_out, plans, seed=None, threads=threads, pin=False)
    true, predicted = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    worst: list[Answered] = []
    seen, count = 0, len(data.held_out)
    with contextlib.closing(batches):
        for batch in until(batches, is_over):
            seen += len(batch.plan.samples)
            if not len(batch.labels):
                continue
            answers, its_worst = answered(task, model, batch, batches, device)
            true.append(batch.labels.numpy().copy())
            predicted.append(answers)
            worst = heapq.nsmallest(WORST, [*worst, *its_worst], key=lambda one: (-one.loss, one.sample))
    if not seen:
        raise Problem("no held-out sample was seen in time", fix="see what is slow with: stoker doctor")
    if not worst:
        raise Problem("none of the held-out samples can be read", fix="see why with: stoker inspect DATA")
    which, spread = (f"all {count:,}", "") if seen == count else (f"{seen:,} of {count:,}", ", spread over all of them")
    of += f", on {which} held-out samples{spread}"
    if batches.bad:
        of += f" ({units.count_text(len(batches.bad), 'sample')} could not be read)"
    classes = tuple(words(name) for name in data.classes)
    shown = confusion.exhibits(classes, np.concatenate(true), np.concatenate(predicted), of=of)
    drawn = [Drawn(pixels=one.pixels, caption=told(one, classes, data.held_out)) for one in worst]
    caption = f"{of}: the {units.count_text(len(drawn), 'sample')} with the highest loss, as the network sees them."
    return *shown, hung("worst", drawn, title="Worst predictions", caption=caption)


def until(batches: Loader, is_over: Callable[[], bool]) -> Iterator[Batch]:
    """Batches until it is over, which is looked at before each, and while one is waited for."""
    while not is_over():
        if batches.ready(GLANCE_SECONDS):
            if (batch := next(batches, None)) is None:
                return
            yield batch


def answered(
    task: "Classify", model: Any, batch: Batch, batches: Loader, device: torch.device
) -> tuple[NDArray[np.int64], list[Answered]]:
    """The class that a network sees in each sample of a batch, and those of them that it is most wrong about."""
    samples = [sample for sample in batch.plan.samples.tolist() if sample not in batches.bad]
    logits = task.answers(model, batch.pixels.to(device))
    losses = functional.cross_entropy(logits, batch.labels.to(device), reduction="none")
    # What is no number is as wrong as can be.
    losses = torch.where(losses.isnan(), torch.inf, losses).cpu()
    # Of equals the same one is taken as by the scores of an evaluation.
    best = logits.topk(min(5, logits.shape[1])).indices[:, :1]
    chances, predicted = logits.softmax(1).gather(1, best)[:, 0].cpu(), best[:, 0].cpu()
    rows = losses.topk(min(WORST, len(losses))).indices.tolist()
    worst = [
        Answered(
            sample=samples[row],
            label=int(batch.labels[row]),
            predicted=int(predicted[row]),
            probability=float(chances[row]),
            loss=float(losses[row]),
            pixels=batch.pixels[row].numpy().copy(),
        )
        for row in rows
    ]
    return predicted.numpy(), worst


def told(one: Answered, classes: Sequence[str], index: Index) -> str:
    """What became of a sample, in a line."""
    true, predicted = (words(classes[label], NAME) for label in (one.label, one.predicted))
    chance = units.percent_text(one.probability) if math.isfinite(one.probability) else "no number"
    seen = f"rightly seen as {true}" if one.label == one.predicted else f"{true} taken for {predicted}"
    return f"{seen} ({chance}); loss {one.loss:.2f}; {place(index, one.sample)}"


def place(index: Index, sample: int) -> str:
    """Where a sample is, below the folder of the data; of a long path the end."""
    where = words(index.place(sample).removeprefix(f"{index.root}/"))
    return where if len(where) <= PATH else "…" + where[1 - PATH :]


def words(text: str, most: int | None = None) -> str:
    """A name that any page can show: bytes that are no text are replaced, and what is too long is cut."""
    shown = text.encode("utf-8", "replace").decode()
    return shown if most is None or len(shown) <= most else shown[: most - 1] + "…"


def hung(name: str, drawn: Sequence[Drawn], *, title: str, caption: str) -> Shown:
    """Pictures as an exhibit."""
    files, pictures = {}, []
    for number, one in enumerate(drawn):
        ending, data = encoded(one.pixels)
        file = f"{name}-{number:02d}.{ending}"
        files[file] = data
        pictures.append(Picture(file=file, caption=one.caption))
    exhibit = Exhibit(name=name, title=title, caption=caption, kind="pictures", pictures=tuple(pictures))
    return Shown(exhibit=exhibit, files=files)


def encoded(pixels: NDArray[np.uint8]) -> tuple[str, bytes]:
    """A picture as a small file, and its ending. Pictures of a few pixels are enlarged as they are: pixels, no blur."""
    picture, side = Image.fromarray(pixels), max(pixels.shape[:2])
    held = io.BytesIO()
    if (factor := min(-(-LEAST_SIDE // side), MOST_SIDE // side)) > 1:
        larger = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
        larger.save(held, "PNG", optimize=True)
        return "png", held.getvalue()
    picture.thumbnail((MOST_SIDE, MOST_SIDE), Image.Resampling.LANCZOS)
    picture.save(held, "JPEG", quality=QUALITY)
    return "jpg", held.getvalue()
