"""A short measured probe of a recipe on this machine: what the parts of its steps cost."""

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from stoker import dist, progress, settings
from stoker.config import Config, Stage
from stoker.data.sources import Dataset
from stoker.dist import World
from stoker.machine import gauges, predict
from stoker.machine.links import Link
from stoker.machine.predict import Costs, Job
from stoker.plan.probe import Probe
from stoker.plan.trial import Trial
from stoker.tasks import Task, classify
from stoker.train import memory, site
from stoker.train import state as states

# Rounds of each size, and steps of a round; fewer where a step takes long.
ROUNDS, MOST_STEPS = 3, 30
# Of the time that a run will take, that a probe may.
SHARE = 0.03
# The loader alone is watched for so long.
LOADER_SECONDS = 1.5
# Decoding of less than this share of a step is not worth telling how it crowds the network.
WORTH = 0.05
# Settings that leave the task as it is and may be faster on this machine.
ALTERNATIVES: dict[str, dict[str, Any]] = {
    "amp bf16": {"amp": "bf16"},
    "amp fp16": {"amp": "fp16"},
    "amp off": {"amp": "off"},
    "channels_last on": {"channels_last": True},
    "channels_last off": {"channels_last": False},
}


def job_of(config: Config, stage: Stage, world: World, *, link: Link | None) -> Job:
    """How the steps of a stage are taken here."""
    cores = gauges.cores_allotted().allotted
    return Job(
        batch=stage.batch,
        atoms=config.train.atoms,
        world=world.size,
        local_world=world.local_size,
        threads=site.decode_threads(config.loader.threads, world),
        compute_threads=config.model.compute_threads,
        cores=cores,
        link=link,
    )


class Meter:
    """A trial and what is measured in it."""

    def __init__(self, config: Config, task: Task, data: Dataset, world: World, device: torch.device) -> None:
        self.config, self.world, self.device = config, world, device
        self.trial = Trial(config, task, data, device)
        self.steps = 0

    def burst(self, samples: int, resolution: int, steps: int) -> dict[str, float]:
        """Steps on a batch that is there already."""
        self.steps += steps
        return self.trial.synthetic(samples, resolution, steps)

    def costs(self, stage: Stage, *, seconds: float, share_of: int) -> Costs:
        """What the parts of a stage's steps cost, found out in about so many seconds: fewer, if all steps take few."""
        job = job_of(self.config, stage, self.world, link=None)
        large = atom_of(self.config, stage)
        self.burst(large, stage.resolution, 1)
        step_seconds = sum(self.burst(large, stage.resolution, 1).values())
        seconds = min(seconds, SHARE * share_of * step_seconds)
        count = min(max(round(seconds / (ROUNDS * step_seconds)), 1), MOST_STEPS)
        # Steps that take long are few.
        rounds = ROUNDS if 4 * ROUNDS * step_seconds <= seconds else 1
        share = self.fixed_share(stage, large, min(large, max(2, large // 2)), rounds=rounds)
        taken = [self.burst(large, stage.resolution, count) for _ in range(ROUNDS if rounds > 1 else 2)]
        decode, read = self.input_costs(
            stage, large, threads=min(job.threads, job.cores), seconds=min(seconds / 3, LOADER_SECONDS)
        )
        known = replace(
            self.launched(fitted(taken, large, share), stage, large),
            device=self.device.type, compute_threads=job.compute_threads,
            decode_sample_seconds=decode, read_sample_seconds=read,
            gradient_bytes=dist.sent_bytes(self.trial.state.network, "off"),
        )  # fmt: skip
        return self.calibrated(known, job, stage, large, seconds=seconds)

    def fixed_share(self, stage: Stage, large: int, small: int, *, rounds: int) -> float:
        """Of an atom's time, what does not grow with its samples: from two sizes, in turn.

        A GPU's libraries do not look for their fastest way meanwhile: for a size that no step has, that takes too long.
        """
        if small == large:
            return 0.0
        steps = 2 if rounds > 1 else 1
        with untuned():
            for samples in (small, large) if rounds > 1 else (small,):
                self.burst(samples, stage.resolution, 1)
            pairs = [
                [self.alone(samples, stage.resolution, steps) for samples in (large, small)] for _ in range(rounds)
            ]
        whole, less = (statistics.median(each) for each in zip(*pairs, strict=True))
        return float(min(max(1 - (whole - less) / (large - small) * large / whole, 0.0), 1.0))

    def alone(self, samples: int, resolution: int, steps: int) -> float:
        """Forward and backward by themselves: a GPU does not wait for its work to come meanwhile."""
        found = self.trial.held(samples, resolution)
        return (found or self.burst(samples, resolution, steps))["compute"]

    def launched(self, costs: Costs, stage: Stage, samples: int) -> Costs:
        """The costs with what a GPU does told apart from its wait for work to come."""
        held = [one for _ in range(ROUNDS) if (one := self.trial.held(samples, stage.resolution)) is not None]
        if not held:
            return costs
        launch = statistics.median(self.trial.launch_seconds(samples, stage.resolution) for _ in range(ROUNDS))
        pure = statistics.median(sum(one.values()) for one in held)
        return predict.told_apart(costs, samples, pure_seconds=pure, launch_seconds=launch)

    def input_costs(self, stage: Stage, samples: int, *, threads: int, seconds: float) -> tuple[float, float]:
        """Seconds of a thread for a sample, decoding and reading, with nothing else to do."""
        window, few = self.config.loader.window, min(samples, max(8, 2 * threads))
        with self.trial.loader(few, stage.resolution, threads=threads, window=window) as batches:
            next(batches)
            began, taken = time.monotonic(), 0
            decode, read = batches.decode_seconds, batches.read_seconds
            while time.monotonic() - began < seconds or not taken:
                taken += len(next(batches).labels)
            return (batches.decode_seconds - decode) / taken, (batches.read_seconds - read) / taken

    def calibrated(self, costs: Costs, job: Job, stage: Stage, samples: int, *, seconds: float) -> Costs:
        """The costs with what decoding does to steps beside it, where it takes a good part of them."""
        own = replace(job, batch=samples, atoms=1, world=1, local_world=1, cores=max(1, job.cores // job.local_world))
        bare = predict.step(predict.freed(predict.freed(costs, "decode"), "disk"), own).seconds
        if samples * (costs.decode_sample_seconds + costs.read_sample_seconds) < WORTH * bare:
            return costs
        # What was made ahead is used up first.
        first, step_seconds = self.config.loader.ahead + 2, predict.step(costs, own).seconds
        count = min(round(seconds / step_seconds) - first, 2 * MOST_STEPS)
        if count < 4:
            return costs
        window = self.config.loader.window
        with self.trial.loader(samples, stage.resolution, threads=job.threads, window=window) as batches:
            self.trial.burst(batches, first)
            taken = sum(self.trial.burst(batches, count).values())
        self.steps += first + count
        return predict.calibrated(costs, own, seconds=taken)

    def faster(self, stage: Stage, *, base: float, samples: int) -> float:
        """How many times as fast as `base` a step of so many samples is here."""
        with untuned():
            self.burst(samples, stage.resolution, 2)
            return base / sum(self.burst(samples, stage.resolution, 3).values())


@contextlib.contextmanager
def untuned() -> Iterator[None]:
    """Let a GPU's libraries take the first way to compute something that they think of."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def fitted(rounds: Sequence[dict[str, float]], samples: int, share: float) -> Costs:
    """What an atom costs and what each of its samples adds, from rounds of steps on batches that were there."""
    whole = [one["compute"] for one in rounds]
    compute = statistics.median(whole)
    return Costs(
        device="",
        atom_seconds=compute * share,
        sample_seconds=compute * (1 - share) / samples,
        compute_threads=1,
        optimizer_seconds=statistics.median(one["optimizer"] for one in rounds),
        transfer_sample_seconds=statistics.median(one["transfer"] for one in rounds) / samples,
        decode_sample_seconds=0.0,
        read_sample_seconds=0.0,
        host_seconds=statistics.median(one["other"] for one in rounds),
        gradient_bytes=0,
        spread=(max(whole) - min(whole)) / compute,
    )


def atom_of(config: Config, stage: Stage) -> int:
    """Samples of an atom at most."""
    return -(-stage.batch // config.train.atoms)


def probed(
    config: Config, task: Task, data: Dataset, world: World, device: torch.device, *, seconds: float, steps: int,
    tries: bool, show: bool,
) -> Probe:  # fmt: skip
    """Measure what the steps of a run of so many cost here. All its processes call it at the same time."""
    began = time.monotonic()
    progress.say("plan     trying the recipe for some steps, of which nothing stays", show=show)
    # All the others must be here for it, whatever becomes of the rest.
    link = dist.swept(world, device).link if world.size > 1 else None
    meter = Meter(config, task, data, world, device)
    last = config.stages[-1]
    atom = atom_of(config, last)
    # A CPU that is bad at something may be very bad at it.
    few = max(2, atom // 4) if device.type == "cpu" else atom
    try:
        found = measured(meter, seconds=seconds, steps=steps)
        base = 1 / meter.faster(last, base=1.0, samples=few) if tries else 1.0
    finally:
        meter.trial.close()
    tried = tried_out(config, data, device, base=base, samples=few) if tries else {}
    return replace(found, seconds=time.monotonic() - began, link=link, tried=tried)


def measured(meter: Meter, *, seconds: float, steps: int) -> Probe:
    """What one process finds out by itself."""
    config, trial, is_gpu = meter.config, meter.trial, meter.device.type == "cuda"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(meter.device)
    costs = tuple(meter.costs(stage, seconds=seconds / len(config.stages), share_of=steps) for stage in config.stages)
    memory_bytes = torch.cuda.max_memory_allocated(meter.device) if is_gpu else None
    began = time.perf_counter()
    states.snapshot(trial.state)
    save_seconds = time.perf_counter() - began
    last = config.stages[-1]
    atom = atom_of(config, last)
    forward = replace(
        costs[-1], atom_seconds=0.0, optimizer_seconds=0.0, transfer_sample_seconds=0.0, host_seconds=0.0,
        launch_seconds=0.0,
        sample_seconds=trial.score_seconds(atom, config.image.eval_resolution or config.image.resolution),
    )  # fmt: skip
    with untuned():
        flops = trial.flops(config.stages[0].resolution)
    scored = replace(job_of(config, last, meter.world, link=None), world=1, batch=atom, atoms=1)
    return Probe(
        costs=costs,
        atom=tuple(atom_of(config, stage) for stage in config.stages),
        threads=scored.threads,
        world=meter.world.size,
        nodes=max(1, meter.world.size // meter.world.local_size),
        steps=meter.steps,
        seconds=0.0,
        eval_sample_seconds=predict.step(forward, scored).seconds / atom,
        save_seconds=save_seconds,
        memory_bytes=memory_bytes,
        flops_per_sample=flops,
        layers=sum(1 for part in trial.state.network.modules() if not list(part.children())),
        sent_bytes=dist.sent_bytes(trial.state.network, config.many.compress),
        link=None,
    )


def tried_out(config: Config, data: Dataset, device: torch.device, *, base: float, samples: int) -> dict[str, float]:
    """How many times as fast a step is with another setting, for those that may be faster on this device."""
    found = {}
    for name, values in ALTERNATIVES.items():
        changed = settings.with_values(config, values)
        old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
        if changed == config or (values.get("amp") == "bf16" and old) or (name == "amp fp16" and not old):
            continue
        times = tried_alone(changed, data, device, base=base, samples=samples)
        if times is not None:
            found[name] = times
    return found


def tried_alone(config: Config, data: Dataset, device: torch.device, *, base: float, samples: int) -> float | None:
    """How many times as fast as `base` a step is with these settings; None where it does not fit into memory."""
    meter = Meter(config, classify.task_of(config), data, World(), device)
    try:
        return meter.faster(config.stages[-1], base=base, samples=samples)
    except Exception as error:
        if not memory.is_out_of_memory(error):
            raise
    finally:
        meter.trial.close()
    return None
