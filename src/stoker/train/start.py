"""The state a run begins with: weights from the seed or from others, then whatever its newest checkpoint says."""

import os
from dataclasses import dataclass

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm

from stoker import checkpoint, dist, runs
from stoker.config import Config, ModelConfig
from stoker.data import order
from stoker.data.sources import Dataset
from stoker.dist import World, norm
from stoker.errors import Problem
from stoker.tasks import Task, matching, weights
from stoker.tasks.matching import Pretrained
from stoker.train import average, optim, saving, step
from stoker.train.site import Site
from stoker.train.state import Position, TrainState


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A state to go on from, and what a person should know of it."""

    state: TrainState
    notes: tuple[str, ...]
    is_new: bool = True
    """whether the run has no checkpoint of its own yet"""


def begun(config: Config, task: Task, data: Dataset, site: Site, *, resume: str | None) -> Begun:
    """The state of a run, wherever it is."""
    state = fresh(config, task, data, site, pretrained=None).state
    notes = saving.restore(state, site, resume=resume, epochs=sum(stage.epochs for stage in config.stages))
    is_new = not runs.has_begun(site.run) or state.at.step not in checkpoint.steps(site.run)
    if state.at.step == 0 and config.tune.weights:
        # Only now: a run that goes on does not need the file it began with.
        found = weights.read(config.tune.weights, model=config.model.model)
        first = fresh(config, task, data, site, pretrained=found)
        return Begun(state=first.state, notes=(*notes, *first.notes), is_new=is_new)
    return Begun(state=state, notes=tuple(notes), is_new=is_new)


def fresh(config: Config, task: Task, data: Dataset, site: Site, *, pretrained: Pretrained | None) -> Begun:
    """A run before its first step: weights that follow from the seed, or from a network that was trained before."""
    device, classes = site.device, len(data.classes)
    notes: tuple[str, ...] = ()
    step.seed_torch(config.train.seed, step=0, atom=2**32 - 1, device=device)
    network = task.bare(classes=classes)
    if pretrained is not None:
        matched = matching.give(network, pretrained, model=config.model.model, classes=data.classes)
        notes = (matched.text(),)
    network = task.fitted(network).to(device)
    check_batch_norm(network, batch=min(stage.batch for stage in config.stages), atoms=config.train.atoms)
    if config.many.sync_bn:
        network = norm.synchronised(network, site.world)
    state = TrainState(
        network=network,
        optimizer=optim.optimizer(config.optim, config.tune, network),
        scaler=GradScaler(device.type, enabled=config.model.amp == "fp16"),
        at=Position(
            seed=config.train.seed,
            model=config.model.model,
            classes=classes,
            data=data.fingerprint(),
            optimizer=config.optim.optimizer,
            amp=config.model.amp,
        ),
        ema=average.begun(network) if config.optim.ema else None,
    )
    return Begun(state=state, notes=notes)


def check_batch_norm(network: torch.nn.Module, *, batch: int, atoms: int) -> None:
    """Refuse atoms of one sample for a network with batch norm, which needs two to have a spread."""
    if batch < 2 * atoms and any(isinstance(module, _BatchNorm) for module in network.modules()):
        raise Problem(
            f"a batch of {batch} in {atoms} atoms leaves one sample an atom, and this network's batch norm needs two",
            fix=f"give --batch {2 * atoms} or more, or fewer --atoms",
        )


def opened_in_turn(task: Task, world: World, *, seed: int, show: bool) -> Dataset:
    """The data, opened by the first process first: it may have to draw what the others then find."""
    if world.is_first:
        data = task.open(seed=seed, show=show)
    dist.barrier(world)
    return data if world.is_first else task.open(seed=seed, show=False)


def pin_arithmetic(config: ModelConfig, device: torch.device) -> None:
    """Fix what decides in which order sums are added up. Comes before the first computation on a GPU."""
    torch.set_num_threads(config.compute_threads)
    if device.type == "cuda":
        if config.exact:
            # cuBLAS adds up in a fixed order only with a workspace of fixed size, and reads this once.
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.backends.cudnn.benchmark = not config.exact
        torch.use_deterministic_algorithms(config.exact)


def route_of(config: Config, data: Dataset) -> order.Route:
    """The way through a run: stages, epochs, steps."""
    return order.Route(
        count=len(data.train), stages=config.stages, atoms=config.train.atoms, last_step=config.train.last_step
    )
