"""A trained network put to use: loaded from its run on any machine, with or without a GPU."""

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from stoker import dist, records, runs, settings
from stoker.config import Config
from stoker.data import decode, order, sources
from stoker.data.loader import Loader
from stoker.dist import World
from stoker.errors import Problem
from stoker.runs import Run
from stoker.tasks import Task
from stoker.tasks.classify import Answer, Classify
from stoker.train import checkpoint
from stoker.train import state as states
from stoker.train.site import decode_threads


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """A network ready to answer."""

    config: Config
    task: Classify
    network: torch.nn.Module
    classes: tuple[str, ...]
    device: torch.device
    checkpoint: Path


def load(run: Run, *, name: str) -> Answerer:
    """The network of a run at a checkpoint: best, latest, epoch_N, a step, or a path."""
    record = records.read_record(run.record)
    if not run.classes.exists() or not checkpoint.steps(run):
        raise Problem(f"{run.folder} has no checkpoint yet", fix=f"train it: stoker work {run.folder}")
    config = settings.with_values(runs.read_config(run), record.fixed)
    device = dist.choose_device("auto", World())
    task = Classify(data=config.data, image=config.image, loader=config.loader, network=config.model)
    classes = tuple(json.loads(run.classes.read_text()))
    network = task.model(classes=len(classes))
    place = checkpoint.find(run, name)
    try:
        states.load_weights(network, checkpoint.read(place), where=str(place))
    except checkpoint.Torn as error:
        raise Problem(f"this checkpoint is not whole: {error}", fix="give another with --checkpoint") from None
    return Answerer(
        config=config, task=task, network=network.to(device).eval(), classes=classes, device=device, checkpoint=place
    )


def evaluate(run: Run, *, data: str | None, name: str, show: bool) -> dict[str, Any]:
    """The scores of a network on held-out samples, each counted once."""
    net = load(run, name=name)
    if data is None:
        found = net.task.open(seed=net.config.train.seed, show=show)
        index, what = found.held_out, f"{net.config.data.data}, held out: {found.held_out_name}"
    else:
        what = data
        index = sources.open_held_out(replace(net.config.data, data=data), net.classes, show=show)
    batch = -(-net.config.train.batch // net.config.train.atoms)
    plans = order.evaluation_plans(len(index), batch=batch, rank=0, world=1)
    threads = decode_threads(net.config.loader.threads, World())
    batches = net.task.batches(index, plans, seed=None, threads=threads, pin=net.device.type == "cuda")
    *totals, count, bad = scored(net.task, net.network, batches, device=net.device).tolist()
    if not count:
        raise Problem(f"none of the {len(index)} samples can be read", fix="see why with: stoker inspect DATA")
    scores = dict(zip(net.task.score_names, (total / count for total in totals), strict=True))
    return {
        "checkpoint": str(net.checkpoint),
        "data": what,
        "samples": int(count),
        "unreadable": int(bad),
        "scores": scores,
    }


def scored(task: Task, network: torch.nn.Module, batches: Loader, *, device: torch.device) -> torch.Tensor:
    """The sums and count of the scores over all batches, then how many samples could not be read."""
    sums = torch.zeros(len(task.score_names) + 2, dtype=torch.float64, device=device)
    with contextlib.closing(batches):
        for batch in batches:
            if len(batch.labels):
                sums[:-1] += task.score(network, task.moved(batch, device))
        sums[-1] = len(batches.bad)
    return sums


def predict(run: Run, inputs: list[Path], *, name: str) -> list[Answer]:
    """What a network sees in some pictures."""
    if not inputs:
        raise Problem("no pictures were given", fix="stoker predict RUN PICTURE ...")
    for path in inputs:
        try:
            decode.rgb(decode.opened(path.read_bytes()))
        except (OSError, decode.Unreadable) as error:
            raise Problem(f"{path} can't be read: {error}", fix="give the paths of whole picture files") from None
    net = load(run, name=name)
    raw, names = [path.read_bytes() for path in inputs], [str(path) for path in inputs]
    return net.task.predict(net.network, raw, names=names, classes=net.classes, device=net.device)
