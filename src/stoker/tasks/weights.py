"""Where a network's first weights come from: timm, torchvision, a file, an export, or another run."""

import argparse
import io
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as tensors_of
from torch import Tensor

from stoker import checkpoint, records, runs, settings
from stoker.config import Config
from stoker.errors import Problem
from stoker.runs import Run
from stoker.tasks import blurpool, exported
from stoker.tasks.matching import Pretrained

PRETRAINED = "pretrained"
FILES = (".safetensors", ".pth", ".pt", ".bin")
# Where training programs put weights into a file with other things: timm, torchvision, Lightning and many more.
INSIDE = ("state_dict_ema", "model_ema", "state_dict", "model")
# What DataParallel and torch.compile put before every name.
WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What pictures some weights were made with. None where that is not known."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resolution: int | None = None
    crop: float | None = None
    """share of the picture's short side that the centre crop of evaluation keeps"""


def traits(weights: str, *, model: str) -> Traits:
    """What pictures the weights were made with, as their library or their run says. Downloads and loads nothing."""
    if not weights:
        return Traits()
    if said := exported.beside(Path(weights)):
        return Traits(mean=said.mean, std=said.std, resolution=said.resolution, crop=said.crop)
    if weights == PRETRAINED:
        check_pretrained(model)
    elif not is_file(weights):
        return run_traits(found(weights).run)
    library, _, name = model.partition("/")
    if library == "timm":
        from timm.models import get_pretrained_cfg

        cfg = get_pretrained_cfg(name)
        if cfg is not None:
            return Traits(mean=tuple(cfg.mean), std=tuple(cfg.std), resolution=cfg.input_size[-1], crop=cfg.crop_pct)
    elif library == "torchvision":
        made = published(name, file=Path(weights).name).transforms()
        crop = min(1.0, made.crop_size[0] / made.resize_size[0])
        return Traits(mean=tuple(made.mean), std=tuple(made.std), resolution=made.crop_size[0], crop=crop)
    return Traits()


def read(weights: str, *, model: str) -> Pretrained:
    """The weights themselves. `model` says which ones `pretrained` means."""
    if weights == PRETRAINED:
        return downloaded(model)
    path = Path(weights)
    said = exported.beside(path)
    if said and path.is_dir():
        path = path / exported.WEIGHTS
    if said or is_file(weights):
        known = {"classes": said.classes, "model": said.model} if said else {}
        return pretrained(loaded(path, file_bytes(path)), source=str(path), **known)
    return of_run(found(weights))


def is_file(weights: str) -> bool:
    """Whether a file is meant, and not a run."""
    path = Path(weights)
    return not path.is_dir() and path.suffix in FILES


def check_pretrained(model: str) -> None:
    """Refuse `pretrained` where a library has no weights for the model."""
    library, _, name = model.partition("/")
    if library == "timm":
        from timm.models import get_pretrained_cfg

        cfg = get_pretrained_cfg(name)
        has_weights = cfg is not None and cfg.has_weights
    else:
        has_weights = library == "torchvision"
    if not has_weights:
        raise Problem(
            f"{library} has no pretrained weights for {name}",
            fix="give a .safetensors or .pth file or a run with --weights, or another --model",
        )


def published(name: str, *, file: str) -> Any:
    """torchvision's entry for a model's weights: the one that has this file, or else its newest."""
    import torchvision

    entries = torchvision.models.get_model_weights(name)  # type: ignore[attr-defined]
    return next((entry for entry in entries if file and entry.url.endswith(f"/{file}")), entries.DEFAULT)  # type: ignore[attr-defined]


def downloaded(model: str) -> Pretrained:
    """The weights that a library has for a model, from its cache or from the net."""
    check_pretrained(model)
    library, _, name = model.partition("/")
    try:
        if library == "timm":
            import timm

            # timm makes a network on the way, and that must not move the seed of the run's own.
            with torch.random.fork_rng(devices=[]):
                tensors = timm.create_model(name, pretrained=True).state_dict()
        else:
            tensors = published(name, file="").get_state_dict(progress=False, check_hash=True)
    except Exception as error:  # each library, and each of its ways to the net, has errors of its own
        reason = str(error).strip().partition("\n")[0]
        raise Problem(
            f"the pretrained weights of {model} could not be had: {reason}",
            fix="get the file on a machine that reaches the net, and give it: --weights FILE.safetensors or FILE.pth",
        ) from None
    return pretrained(tensors, source=f"{library}'s pretrained {name}")


def file_bytes(path: Path) -> bytes:
    """A file's content."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Problem(
            f"the weights {path} can't be read: {error.strerror}", fix="give an existing file, a run, or pretrained"
        ) from None
    if not data:
        raise Problem(f"the weights {path} are an empty file", fix="copy or download it again")
    return data


def loaded(path: Path, data: bytes) -> Any:
    """What a file of weights holds. Nothing in it is run."""
    if path.suffix == ".safetensors":
        try:
            return tensors_of(data)
        except Exception as error:
            raise Problem(f"{path} is no whole safetensors file: {error}", fix="copy or download it again") from None
    try:
        # Training programs save their arguments along with the weights.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # a file can be broken in any way
        reason = str(error)
        if "Unsupported" in reason or "TorchScript" in reason:
            raise Problem(
                f"{path} holds more than weights, and to load it would run code that came with it",
                fix="where it was made: torch.save(model.state_dict(), 'weights.pth'), and give that file",
            ) from None
        first = reason.strip().partition("\n")[0]
        raise Problem(f"{path} is no whole file of weights: {first}", fix="copy or download it again") from None


def pretrained(held: Any, *, source: str, **known: Any) -> Pretrained:
    """The weights in what a file held, under the names that the bare network has for them."""
    tensors = cleaned(held, where=source)
    plain = blurpool.unblurred(tensors)
    return Pretrained(source=source, tensors=plain, is_blurred=plain.keys() != tensors.keys(), **known)


def cleaned(held: Any, *, where: str) -> dict[str, Tensor]:
    """The tensors in what a file held, without what training programs put around them and before their names."""
    while isinstance(held, Mapping) and (inner := next((k for k in INSIDE if isinstance(held.get(k), Mapping)), None)):
        held = held[inner]
    items = held if isinstance(held, Mapping) else {}
    tensors = {WRAPPERS.sub("", str(name)): value for name, value in items.items() if isinstance(value, Tensor)}
    if not tensors:
        kind = f"a dict of {len(items)} other things" if isinstance(held, Mapping) else f"a {type(held).__name__}"
        raise Problem(
            f"{where} holds no weights but {kind}",
            fix="give a state dict, as torch.save(model.state_dict(), 'weights.pth') writes it",
        )
    broken = [n for n, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if broken:
        raise Problem(
            f"{where} holds numbers that are not finite, in {len(broken)} of {len(tensors)} tensors: {broken[0]} ...",
            fix="give weights from before they diverged",
        )
    return tensors


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint of a run, or one on its own: then the run's folder holds no settings."""

    run: Run
    checkpoint: Path | None


def found(weights: str) -> Found:
    """The run and the checkpoint that are meant by a run, its name, or the path of a checkpoint or a pointer to one."""
    path = Path(weights)
    if (path / checkpoint.MODEL).is_file():
        return Found(run=Run(path.absolute().parent.parent), checkpoint=path)
    beside = Run(path.parent)
    if beside.config.exists() and (named := checkpoint.pointed(path)):
        return Found(run=beside, checkpoint=named)
    try:
        run = runs.open_run(path)
    except Problem as problem:
        state = "is neither a run nor a file of weights" if path.exists() else "was not found"
        raise Problem(
            f"the weights {weights}: that {state}",
            fix=f"give pretrained, a file ({', '.join(FILES)}) or a run; {problem.fix}",
        ) from None
    place = checkpoint.pointed(run.pointer("best")) or checkpoint.pointed(run.pointer("latest"))
    return Found(run=run, checkpoint=place)


def run_config(run: Run) -> Config | None:
    """The settings of a run, with what was fixed at its first start; None where there are none."""
    if not run.config.exists():
        return None
    try:
        fixed = records.read_record(run.record).fixed
    except (OSError, ValueError) as error:
        raise Problem(f"{run.record} can't be read: {error}", fix="give one of its checkpoint folders") from None
    return settings.with_values(runs.read_config(run), fixed)


def run_traits(run: Run) -> Traits:
    """What pictures a run was trained with."""
    config = run_config(run)
    if config is None:
        return Traits()
    image = config.image
    return Traits(
        mean=image.mean or None, std=image.std or None, resolution=image.resolution or None, crop=image.eval_crop
    )


def of_run(place: Found) -> Pretrained:
    """The weights of a run at a checkpoint: the averaged ones where it keeps any."""
    if place.checkpoint is None:
        raise Problem(f"{place.run.folder} has no checkpoint yet", fix=f"train it: stoker work {place.run.folder}")
    files = weight_files(place.checkpoint)
    tensors: dict[str, Tensor] = {}
    # The averaged ones are laid over the others.
    for name in (checkpoint.MODEL, checkpoint.EMA):
        if name in files:
            tensors |= loaded(place.checkpoint / name, files[name])
    config = run_config(place.run)
    classes = tuple(plain_values(place.run.classes)) if place.run.classes.exists() else None
    model = config.model.model if config else None
    return pretrained(tensors, source=str(place.checkpoint), classes=classes, model=model)


def weight_files(place: Path) -> dict[str, bytes]:
    """The files of a checkpoint that hold weights, checked against their hashes where they have any."""
    names = (checkpoint.MODEL, checkpoint.EMA)
    if (place / checkpoint.MODEL).exists() and not (place / checkpoint.MANIFEST).exists():
        return {name: file_bytes(place / name) for name in names if (place / name).exists()}
    try:
        files = checkpoint.read(place, only=names)
        if checkpoint.MODEL not in files:
            raise checkpoint.Torn(f"{place / checkpoint.MANIFEST} has no {checkpoint.MODEL}")
        return files
    except checkpoint.Torn as error:
        raise Problem(
            f"this checkpoint is not whole: {error}", fix=f"give another checkpoint folder beside {place}"
        ) from None


def plain_values(path: Path) -> Any:
    """What a small JSON file of a run holds."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Problem(f"{path} can't be read: {error}", fix="give another run, or one of its checkpoints") from None
