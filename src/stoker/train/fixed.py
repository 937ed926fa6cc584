"""What is left to Stoker: decided at the first start of a run, written down, and kept from then on."""

from typing import Any

import torch

from stoker import dist
from stoker.config import Config
from stoker.data.sources import Dataset
from stoker.dist import World
from stoker.errors import Problem
from stoker.machine import gauges
from stoker.tasks import Task, networks, weights
from stoker.tasks.classify import MEAN, STD
from stoker.train import memory

# Steps that an epoch has at least with `--batch auto`.
LEAST_STEPS = 8
# Where nobody says anything else: what ImageNet's networks are trained at.
RESOLUTION = 224


def fixed_settings(config: Config, world: World) -> dict[str, Any]:
    """What follows from the settings, the weights and the machine, before the data is known."""
    cores = gauges.cores_allotted().allotted
    model = networks.resolved(config.model.model)
    known = weights.traits(config.tune.weights, model=model) if config.tune.weights else weights.Traits()
    found: dict[str, Any] = {
        "model": model,
        "atoms": config.train.atoms or world.size,
        "compute_threads": config.model.compute_threads or max(1, cores // world.local_size),
        "mean": config.image.mean or known.mean or MEAN,
        "std": config.image.std or known.std or STD,
        "resolution": config.image.resolution or known.resolution or RESOLUTION,
    }
    return found


def batch_that_fits(
    config: Config, task: Task, data: Dataset, world: World, device: torch.device, *, show: bool
) -> int:
    """The batch of `--batch auto`: what fits into the memory of the process that has least, times the processes."""
    fit = memory.largest_batch(
        task,
        classes=len(data.classes),
        resolution=config.image.resolution,
        device=device,
        optim=config.optim,
        # Memory is not the only limit: an epoch of one step teaches little.
        most=max(2, len(data.train) // (LEAST_STEPS * world.size)),
        show=show and world.is_first,
    )
    return dist.least(fit.batch, world, device) * world.size


def check_atoms(config: Config, world: World) -> None:
    """Refuse more processes than there is work for, and atoms without samples."""
    atoms = config.train.atoms
    if world.size > atoms:
        raise Problem(
            f"there are {world.size} processes for {atoms} atoms",
            fix=f"start at most {atoms} processes, or begin a new run with --atoms {world.size}",
        )
    if config.many.sync_bn and world.size != atoms:
        raise Problem(
            f"sync_bn is one batch norm of all {atoms} atoms, which takes {atoms} processes, and here are {world.size}",
            fix=f"start {atoms} processes, or begin a new run without --sync-bn",
        )
    flag = "--stages with batches of" if config.train.stages else "--batch"
    for stage in config.stages:
        if stage.batch < atoms:
            raise Problem(
                f"a batch of {stage.batch} can't be cut into {atoms} atoms",
                fix=f"give {flag} {2 * atoms} or more, or fewer --atoms",
            )


def check_batches(config: Config, data: Dataset) -> None:
    """Refuse batches that no epoch could fill."""
    largest = max(stage.batch for stage in config.stages)
    flag = "--stages with batches of" if config.train.stages else "--batch"
    if largest > len(data.train):
        raise Problem(
            f"a batch of {largest} is larger than the {len(data.train)} training samples",
            fix=f"give {flag} {len(data.train)} or less",
        )
