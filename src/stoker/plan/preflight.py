"""The plan at the start of a run: one line, and a stop where something makes the run much slower than it could be."""

import dataclasses
import json
import time

import torch

from stoker import dist, progress, records, runs, units
from stoker.config import Config
from stoker.data.sources import Dataset
from stoker.dist import World
from stoker.errors import Problem
from stoker.machine import gauges
from stoker.machine.forecast import Forecast
from stoker.plan import outlook, probing
from stoker.plan.outlook import Plan
from stoker.plan.probe import Probe
from stoker.plan.prospect import Ask, Here, Prospect
from stoker.runs import Run
from stoker.tasks import Task
from stoker.train import memory, start

# A run of fewer steps is over before a probe of it has told much.
FEW_STEPS = 100
SECONDS = 10.0
MUCH_SLOWER = 3.0
# How to be rid of what limits a run.
# A small network on a fast GPU waits for launches on every machine: that is told, and no reason to stop.
NO_FAULT = ("compute", "launches")
CURES = {
    "network": "use a faster link, send less with --compress bf16, or train on one machine",
    "decode": "pack the data smaller first: stoker pack DATA PACK; or give more --threads",
    "disk": "pack the data, or copy it to a faster disk",
    "copies": "see why copies to the GPU are slow: stoker doctor",
    "launches": "give a larger --batch, or --compile",
    "checkpoints": "save less often: --checkpoint-minutes 10",
    "evaluation": "evaluate less often: --eval-epochs 5",
}


def here(device: torch.device, *, setup_seconds: float) -> Here:
    """What a plan needs to know of this machine."""
    is_gpu = device.type == "cuda"
    properties = torch.cuda.get_device_properties(device) if is_gpu else None
    return Here(
        device=device.type,
        gpu=properties.name if properties else None,
        cores=gauges.cores_allotted().allotted,
        gpu_memory_bytes=properties.total_memory if properties else None,
        setup_seconds=setup_seconds,
    )


def prospect(config: Config, data: Dataset, found: Probe, place: Here) -> Prospect:
    """A run before its start."""
    return Prospect(
        config=config, route=start.route_of(config, data), held_out=len(data.held_out), data=data.name, probe=found,
        here=place,
    )  # fmt: skip


def looked_ahead(
    run: Run, config: Config, task: Task, data: Dataset, world: World, device: torch.device, *, show: bool
) -> None:
    """Say what a run will take, and refuse to begin one that something slows down much, unless told to go on anyway."""
    show = show and world.is_first
    steps, has_begun = start.route_of(config, data).steps, runs.has_begun(run)
    if steps < FEW_STEPS or has_begun:
        # What was planned once stands, and a part of a run is not what was planned.
        return
    found = probe_that_fits(config, task, data, world, device, steps=steps, show=show)
    forecast: Forecast | None = None
    if found is not None:
        ask = Ask(gpus=world.local_size, nodes=max(1, world.size // world.local_size))
        plan = outlook.planned(prospect(config, data, found, here(device, setup_seconds=0.0)), ask)
        forecast = plan.forecasts[0]
        eager = "; less with the network compiled" if config.model.compile else ""
        progress.say(f"plan     {line(forecast)}{eager}", show=show)
        if world.is_first:
            runs.write_whole(run.plan, json.dumps(records.finite(as_plan(plan)), indent=1))
    if device.type == "cuda":
        # The run's own peak is what its record tells.
        torch.cuda.reset_peak_memory_stats(device)
    is_slow = forecast is not None and is_much_slower(forecast) and forecast.limit not in NO_FAULT
    # What the first process finds holds for all: they must stop together or not at all.
    if dist.least(0 if is_slow and world.is_first else 1, world, device) == 0:
        refuse(forecast if world.is_first else None, config)


def probe_that_fits(
    config: Config, task: Task, data: Dataset, world: World, device: torch.device, *, steps: int, show: bool
) -> Probe | None:
    """A probe of the recipe; None where memory is too short for a second network beside that of the run."""
    try:
        # Other settings are not tried on a CPU: it may be very bad at one.
        tries = device.type == "cuda" and world.size == 1
        return probing.probed(config, task, data, world, device, seconds=SECONDS, steps=steps, tries=tries, show=show)
    except Exception as error:
        if not memory.is_out_of_memory(error):
            raise
    memory.free(device)
    progress.say("plan     not made: the probe ran out of memory", show=show)
    return None


def is_much_slower(forecast: Forecast) -> bool:
    """Whether something makes a run much slower than the hardware could do it."""
    return forecast.slowdown > MUCH_SLOWER and forecast.limit != "compute"


def refuse(forecast: Forecast | None, config: Config) -> None:
    """Stop before the start, with the reason; the first process knows it."""
    if config.train.anyway:
        return
    if forecast is None:
        raise Problem("the first process found that something makes this run much slower", fix="see what it says")
    raise Problem(
        f"{forecast.limit} makes this run {forecast.slowdown:.1f} times slower than this hardware could do: "
        f"{lasting(forecast)}",
        fix=f"{CURES[forecast.limit]}; or begin all the same with --anyway",
    )


def as_plan(plan: Plan) -> dict[str, object]:
    """What plan.json says."""
    return {
        "version": 1,
        "at": time.time(),
        "forecast": dataclasses.asdict(plan.forecasts[0]),
        "probe": dataclasses.asdict(plan.probe),
        "tried": plan.probe.tried,
        "flops_per_sample": plan.probe.flops_per_sample,
        "actual": None,
    }


def line(forecast: Forecast) -> str:
    """A forecast in a line: how long, how long a step takes, and what limits it."""
    limit = f"limited by {forecast.limit}"
    if forecast.limit != "compute" and forecast.slowdown > 1.05:
        limit += f" ({forecast.slowdown:.1f} times slower than without)"
    if is_much_slower(forecast):
        limit += f": {CURES[forecast.limit]}"
    return f"{lasting(forecast)}, {limit}"


def lasting(forecast: Forecast) -> str:
    """How long a run and a step of it take, in words."""
    total, step = forecast.total, forecast.step
    span = f"{units.seconds_text(total.low)} to {units.seconds_text(total.high)}"
    return f"{units.seconds_text(total.likely)} ({span}), {units.seconds_text(step.likely)} a step"
