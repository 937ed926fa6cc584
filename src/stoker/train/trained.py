"""A trained network put to use: loaded from its run, or from weights alone, on any machine, with or without a GPU."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from stoker import checkpoint, dist, records, runs, settings
from stoker.config import Config, ImageConfig
from stoker.dist import World
from stoker.errors import Problem
from stoker.runs import Run
from stoker.tasks import exported, labels, matching, networks, weights
from stoker.tasks.classify import MEAN, STD, Classify, task_of
from stoker.tasks.exported import Exported
from stoker.tasks.labels import Labels
from stoker.tasks.matching import Pretrained
from stoker.train import state as states
from stoker.train.fixed import RESOLUTION

COUNTER = "num_batches_tracked"


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """A network ready to answer."""

    config: Config
    """all that was left open is settled in it"""
    task: Classify
    network: torch.nn.Module
    labels: Labels
    device: torch.device
    source: str
    """the checkpoint or file that the weights come from"""
    is_average: bool = False
    """whether the weights are the average that training kept"""
    run: Run | None = None


def load(what: str | Path, *, model: str = "", name: str = "best", resolution: int = 0) -> Answerer:
    """The network of a run at a checkpoint, of an export, or of a weights file of a model that is named."""
    path = Path(what)
    said = exported.beside(path)
    if said is not None:
        refuse_model(what, model, said.model)
        found = of_export(path / exported.WEIGHTS if path.is_dir() else path, said)
    elif str(what) == weights.PRETRAINED or weights.is_file(str(what)):
        found = of_file(str(what), full_name(what, model))
    else:
        found = of_run(runs.open_run(path), model=model, name=name)
    return seen_at(found, resolution) if resolution else found


def refuse_model(what: str | Path, asked: str, said: str) -> None:
    """Refuse another model than that of the weights."""
    if asked and networks.resolved(asked) != said:
        raise Problem(f"{what} is a {said}, not a {asked}", fix="leave --model out")


def full_name(what: str | Path, model: str) -> str:
    """The full name of the model that a weights file is said to be of."""
    if not model:
        raise Problem(f"{what} does not say which network it is of", fix="give its name: --model resnet50")
    return networks.resolved(model)


def of_run(run: Run, *, model: str, name: str) -> Answerer:
    """The network of a run at a checkpoint: best, latest, epoch_N, a step, or a path."""
    record = records.read_record(run.record)
    if not run.classes.exists() or not checkpoint.steps(run):
        raise Problem(f"{run.folder} has no checkpoint yet", fix=f"train it: stoker work {run.folder}")
    config = settings.with_values(runs.read_config(run), record.fixed)
    refuse_model(run.folder, model, config.model.model)
    classes = tuple(json.loads(run.classes.read_text()))
    task = task_of(config)
    network = task.model(classes=len(classes))
    place = checkpoint.find(run, name)
    try:
        files = checkpoint.read(place)
    except checkpoint.Torn as error:
        raise Problem(f"this checkpoint is not whole: {error}", fix="give another with --checkpoint") from None
    states.load_weights(network, files, where=str(place))
    found = ready(config, task, network, labels.named(classes), source=str(place))
    return replace(found, is_average=checkpoint.EMA in files, run=run)


def of_file(source: str, model: str) -> Answerer:
    """The network of a weights file, with as many outputs as the file has."""
    given, seen = weights.read(source, model=model), weights.traits(source, model=model)
    known = labels.named(given.classes) if given.classes else labels.of_outputs(outputs(given, model))
    said = Exported(
        model=model,
        classes=known.names,
        mean=seen.mean or MEAN,
        std=seen.std or STD,
        resolution=seen.resolution or RESOLUTION,
        crop=seen.crop or ImageConfig.eval_crop,
        blurpool=given.is_blurred,
    )
    return filled(said, given, known)


def of_export(path: Path, said: Exported) -> Answerer:
    """The network of an export, whose weights are seen to be those that were written."""
    if hashlib.sha256(weights.file_bytes(path)).hexdigest() != said.weights_sha256:
        raise Problem(f"{path} is not the file that was exported: it is torn or was changed", fix="export it again")
    return filled(said, weights.read(str(path), model=said.model), labels.named(said.classes))


def filled(said: Exported, given: Pretrained, known: Labels) -> Answerer:
    """A network with given weights: all of them, and no others."""
    values = {
        "model": said.model, "blurpool": said.blurpool, "resolution": said.resolution, "eval_crop": said.crop,
        "mean": said.mean, "std": said.std, "test_flip": said.test_flip,
    }  # fmt: skip
    config = settings.with_values(Config(), values)
    task, saved = task_of(config), {"model": said.model, "classes": len(known.names)}
    network = task.bare(classes=len(known.names))
    wanted = network.state_dict()
    # Old files lack the counters of batch norm, which no answer depends on.
    tensors = {name: tensor for name, tensor in wanted.items() if name.endswith(COUNTER)} | given.tensors
    states.check_weights(tensors, wanted, saved=saved, where=given.source)
    network.load_state_dict(tensors)
    return ready(config, task, task.fitted(network), known, source=given.source)


def ready(config: Config, task: Classify, network: torch.nn.Module, known: Labels, *, source: str) -> Answerer:
    """A network on the device, to be asked."""
    device = dist.choose_device("auto", World())
    return Answerer(
        config=config, task=task, network=network.to(device).eval(), labels=known, device=device, source=source
    )


def describe(net: Answerer) -> Exported:
    """What one must know to use a network elsewhere."""
    image = net.config.image
    return Exported(
        model=net.config.model.model,
        classes=net.labels.names,
        mean=image.mean or MEAN,
        std=image.std or STD,
        resolution=image.eval_resolution or image.resolution,
        crop=image.eval_crop,
        blurpool=net.config.model.blurpool,
        test_flip=image.test_flip,
    )


def outputs(given: Pretrained, model: str) -> int:
    """How many outputs some weights of a model have."""
    network = networks.create(model, classes=labels.IMAGENET)
    name = networks.head(network) + ".weight"
    if name in given.tensors:
        return len(given.tensors[name])
    # This refuses weights of which little fits, and says what they would fit.
    matching.give(network, given, model=model)
    raise Problem(
        f"{given.source} holds no {name}, the last layer of {model}",
        fix="give weights with their last layer, or train one: stoker train --weights ...",
    )


def seen_at(net: Answerer, resolution: int) -> Answerer:
    """The same network, shown pictures of another size; refused where it can't take them."""
    config = settings.with_values(net.config, {"eval_resolution": resolution})
    try:
        with torch.inference_mode():
            net.network(torch.zeros(1, 3, resolution, resolution, device=net.device))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise Problem(
            f"{config.model.model} takes no pictures of {resolution} pixels: {str(error).splitlines()[0]}",
            fix=f"give another --resolution, or none: it then is {net.config.image.resolution}",
        ) from None
    return replace(net, config=config, task=task_of(config))
