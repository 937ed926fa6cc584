"""A question to `stoker plan`, answered: the data is opened, the recipe probed here, and the rest reckoned."""

import dataclasses
import time

from stoker import dist, progress, settings
from stoker.config import Config
from stoker.data import sources
from stoker.errors import Problem
from stoker.machine import catalogue
from stoker.plan import elsewhere
from stoker.plan.outlook import Plan
from stoker.plan.prospect import THIS, Ask

SECONDS = 15.0


def answered(config: Config, ask: Ask, *, show: bool) -> Plan:
    """What a run will take. Nothing of it stays; under torchrun all processes probe, and the link between them."""
    began, world = time.monotonic(), dist.world()
    show = show and world.is_first
    check(ask)
    # What needs no torch comes first: a wrong path is refused at once.
    sources.prepared(config.data, show=show)
    progress.say("plan     loading libraries and data", show=show)
    from stoker.plan import outlook, preflight, probing
    from stoker.tasks import classify
    from stoker.train import fixed, memory, start

    device = dist.choose_device(config.model.device, world)
    dist.start(world, device)
    config = settings.with_values(config, fixed.fixed_settings(config, world))
    start.pin_arithmetic(config.model, device)
    task = classify.task_of(config)
    data = start.opened_in_turn(task, world, seed=config.train.seed, show=show)
    if config.train.batch == "auto":
        batch = fixed.batch_that_fits(config, task, data, world, device, show=show)
        config = settings.with_values(config, {"batch": batch})
    fixed.check_atoms(config, world)
    fixed.check_batches(config, data)
    setup_seconds = time.monotonic() - began
    route, here = start.route_of(config, data), preflight.here(device, setup_seconds=setup_seconds)
    if route.steps == 0:
        raise Problem("there is not one whole step in an epoch", fix="give a smaller --batch")
    try:
        found = probing.probed(config, task, data, world, device, seconds=SECONDS, steps=10**9, tries=True, show=show)
    except Exception as error:
        if not memory.is_out_of_memory(error):
            raise
        what = f"a step of {config.stages[0].batch:,} samples does not fit into memory here: {error}"
        raise Problem(what, fix="give a smaller --batch, more --atoms, or --batch auto") from None
    dist.stop(world)
    if world.size > 1 and not ask.gpus:
        ask = around(ask, world)
    return outlook.planned(preflight.prospect(config, data, found, here), ask)


def check(ask: Ask) -> None:
    """Refuse what can't be answered before anything is measured."""
    if ask.gpus < 0 or ask.nodes < 1:
        raise Problem(
            f"{ask.gpus} GPUs on each of {ask.nodes} machines can't train",
            fix="give --gpus 0 or more, --nodes 1 or more",
        )
    if not ask.machines:
        raise Problem("no machine was named", fix=f"give --machines {THIS}, or names of the catalogue")
    known = catalogue.read(ask.catalogue)
    for name in ask.machines:
        if name != THIS:
            elsewhere.instance_of(known, name)


def around(ask: Ask, world: dist.World) -> Ask:
    """The same question about as many processes and machines as are here."""
    return dataclasses.replace(ask, gpus=world.local_size, nodes=max(1, world.size // world.local_size))
