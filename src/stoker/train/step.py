"""One optimisation step: each atom forward and backward, then one update of the weights.

What a step does to the weights does not depend on how many processes share its atoms.
"""

from dataclasses import dataclass
from typing import Any

import torch

from stoker import dist
from stoker.config import Config
from stoker.data import random
from stoker.data.loader import Loader
from stoker.tasks import Task, networks
from stoker.train import groups, optim
from stoker.train.average import Average
from stoker.train.site import Site
from stoker.train.state import TrainState
from stoker.train.statistics import Statistics

# Someone who waits for data looks up this often.
GLANCE_SECONDS = 0.5
# Of batches, in one run: of each stage those of steps and of evaluations, with their last, partial ones.
MOST_SHAPES = 64


class Interrupted(Exception):
    """The run was asked to stop while something waited for its data."""


@dataclass(frozen=True, kw_only=True)
class Gear:
    """What takes steps: a state and all that works on it."""

    config: Config
    state: TrainState
    model: Any
    """the network as it computes: compiled, and joined with those of the other processes"""
    task: Task
    site: Site
    statistics: Statistics
    average: Average
    is_frozen: bool
    """whether only the last layer learns"""


def geared(config: Config, state: TrainState, task: Task, site: Site) -> Gear:
    """Put everything together that takes steps, as it is at this epoch of the run."""
    is_frozen = state.at.epoch < config.tune.freeze_epochs
    if config.tune.freeze_epochs:
        groups.freeze(state.network, head=networks.head(state.network), is_frozen=is_frozen)
    if config.model.compile:
        # A run has few shapes, and kernels for one shape each are the fastest. Reasoning about shapes left open took
        # torch 2.11 more than five minutes for a ResNet-18.
        torch._dynamo.config.recompile_limit = MOST_SHAPES
        state.network.compile(dynamic=False)
    compress = config.many.compress
    gear = Gear(
        config=config,
        state=state,
        model=dist.wrapped(
            state.network, site.world, site.device, exact=config.model.exact, compress=compress, clock=site.clock
        ),
        task=task,
        site=site,
        statistics=Statistics(state.network),
        average=Average(state, decay=config.optim.ema),
        is_frozen=is_frozen,
    )
    set_training(gear)
    return gear


def set_training(gear: Gear) -> None:
    """Let the network learn again after an evaluation; what is frozen keeps its statistics too."""
    gear.state.network.train()
    if gear.is_frozen:
        groups.training_mode(gear.state.network, head=networks.head(gear.state.network), is_frozen=True)


def gradients(gear: Gear, batches: Loader, *, atoms: int, compute: str, is_new: bool = False) -> torch.Tensor | None:
    """The gradients of a step, over all processes. Returns the sums and count of this process's scores.

    None where the run was asked to stop while the step waited for data. Then, and after an error, nothing of the step
    is left.
    """
    try:
        return attempted(gear, batches, atoms=atoms, compute=compute, is_new=is_new)
    except Interrupted:
        abandon(gear)
        return None
    except Exception:
        abandon(gear)
        raise


def attempted(gear: Gear, batches: Loader, *, atoms: int, compute: str, is_new: bool) -> torch.Tensor:
    """Each atom of a step forward and backward, and the gradients averaged over all processes."""
    state, task, site = gear.state, gear.task, gear.site
    world, device, clock = site.world, site.device, site.clock
    mine = range(world.rank, atoms, world.size)
    sums = torch.zeros(len(task.score_names) + 1, dtype=torch.float64, device=device)
    gear.statistics.begin_step(atoms=atoms)
    for atom in mine:
        with clock.into("data_wait"):
            site.watch.at(state.at.step, "data_wait")
            batch = awaited(batches, site)
        if atom == mine[0]:
            clock.begin_step(is_new=is_new)
        with clock.into("transfer"):
            inputs = task.moved(batch, device)
        with clock.into(compute), dist.quietly(gear.model, last=atom == mine[-1]):
            site.watch.at(state.at.step, compute)
            seed_torch(state.at.seed, step=state.at.step, atom=atom, device=device)
            gear.statistics.begin_atom()
            loss, scores = task.loss(gear.model, inputs)
            # The gradients are divided by the number of processes; a share of the step must not be divided again.
            state.scaler.scale(loss * (batch.plan.share * world.size)).backward()
            gear.statistics.end_atom(batch.plan.share)
            sums += scores
    with clock.into("comm" if world.size > 1 else compute):
        site.watch.at(state.at.step, "comm")
        dist.average(gear.model, world, compress=gear.config.many.compress)
        gear.statistics.end_step(world)
    return sums


def update(gear: Gear, *, rate: float) -> None:
    """Move the weights along their gradients, and what is averaged over steps with them."""
    state = gear.state
    with gear.site.clock.into("optimizer"):
        optim.rated(state.optimizer, rate)
        if gear.config.optim.clip:
            state.scaler.unscale_(state.optimizer)
            optim.clipped(gear.config.optim, state.network)
        if state.scaler.is_enabled():
            optim.begun(state.optimizer)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.optimizer.zero_grad(set_to_none=True)
        gear.average.follow(step=state.at.step)
    gear.site.clock.end_step()


def abandon(gear: Gear) -> None:
    """Undo what a step that did not come to its update has done."""
    gear.state.optimizer.zero_grad(set_to_none=True)
    gear.statistics.restore()


def awaited(batches: Loader, site: Site) -> Any:
    """The next batch. A process on its own looks up while it waits; many can't leave a step by themselves."""
    while not batches.ready(GLANCE_SECONDS):
        if site.stop.by is not None and site.world.size == 1:
            raise Interrupted
    return next(batches)


def seed_torch(seed: int, *, step: int, atom: int, device: torch.device) -> None:
    """Seed torch's own generators (dropout) for one atom."""
    low, high, _, _ = random.word_block(seed, epoch=atom, position=step, purpose=random.TORCH)
    drawn = (high << 32 | low) & (2**63 - 1)
    # torch.manual_seed would look for every kind of device there is, at ten times the cost.
    torch.default_generator.manual_seed(drawn)
    if device.type == "cuda":
        torch.cuda.manual_seed(drawn)
