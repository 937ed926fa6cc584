"""What a step takes, from what its parts cost. Pure; the same model before a run (plan) and after it (why)."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from stoker.machine.links import Link, all_reduce_seconds

# How much of twice the threads is twice the speed: 1.88 times on two ARM cores (docs/log.md, 2026-11-15).
THREAD_SCALING = 0.91
# On a CPU that the network keeps busy, a second of decoding costs more than a second: the network's threads go in step
# and wait for the one that shares its core. Measured on two ARM cores (docs/log.md, 2026-11-15).
CROWDING = 1.45
CROWDING_SCALING = 0.65
LEAST_CROWDING, MOST_CROWDING = 0.3, 4.0
# Launches vary by a fifth from step to step (H200, docs/log.md), so a GPU waits for some when they take nearly as long
# as its work.
NEAR, CLEAR = 0.75, 1.02
# The backward pass, of a step's arithmetic: two products for each one of the forward pass.
BACKWARD_SHARE = 2 / 3
# How sure a prediction is, as a share of it: as probed, and for each thing that differs from the probe.
SURE = 0.05
UNSURE = {"batch": 0.05, "threads": 0.08, "processes": 0.10, "link": 0.08}


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A figure and the bounds within which it should come out."""

    low: float
    likely: float
    high: float

    def times(self, factor: float) -> "Interval":
        """The same figure in another unit, or of so many."""
        return Interval(low=self.low * factor, likely=self.likely * factor, high=self.high * factor)

    def plus(self, other: "Interval") -> "Interval":
        """Both together; their errors may go the same way."""
        return Interval(low=self.low + other.low, likely=self.likely + other.likely, high=self.high + other.high)

    def holds(self, value: float) -> bool:
        """Whether a figure is within the bounds."""
        return self.low <= value <= self.high


def around(value: float, unsure: float) -> Interval:
    """A figure that may be off by a share of itself, either way."""
    return Interval(low=value / (1 + unsure), likely=value, high=value * (1 + unsure))


NOTHING = Interval(low=0.0, likely=0.0, high=0.0)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What the parts of a step cost one process of a machine: measured by a probe, or taken from a ledger."""

    device: str
    """cpu or cuda"""
    atom_seconds: float
    """forward and backward of an atom, however small"""
    sample_seconds: float
    """... and of each sample in it, with `compute_threads` where the CPU computes"""
    compute_threads: int
    optimizer_seconds: float
    """of a step"""
    transfer_sample_seconds: float
    decode_sample_seconds: float
    """of a thread that has a core to itself"""
    read_sample_seconds: float
    """of a thread"""
    host_seconds: float
    """of a step: the time between the parts"""
    gradient_bytes: int
    launch_seconds: float = 0.0
    """of the host, to hand an atom's work to a GPU, which does that of the atom before meanwhile"""
    crowding: float = CROWDING
    """seconds that a step takes longer for each second of decoding by one thread, where the network uses all cores"""
    spread: float = SURE
    """of repeats, as a share"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """How steps are taken: how large, by how many, over what."""

    batch: int
    """samples of a step, over all processes"""
    atoms: int
    world: int
    local_world: int
    """processes on each machine"""
    threads: int
    """decode threads of each process"""
    compute_threads: int
    cores: int
    """of each machine"""
    link: Link | None = None
    """None for one process, and where it is not known"""
    sent_bytes: int | None = None
    """of gradients in a step, where they are compressed"""
    is_overlapped: bool = False
    """whether gradients are exchanged during the backward pass"""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a process, by its parts as they are alone, and what remains when they overlap."""

    seconds: float
    compute_seconds: float
    optimizer_seconds: float
    transfer_seconds: float
    host_seconds: float
    """between the parts, and waiting for work to come"""
    input_seconds: float
    """how long the decode threads need for a step's samples, with nothing else to do"""
    comm_seconds: float
    """how long the exchange of gradients takes, alone"""
    exposed_comm_seconds: float
    exposed_input_seconds: float
    """what reading and decoding add to the step"""


def step(costs: Costs, job: Job) -> Step:
    """A step of the job on a machine with these costs."""
    mine, size = -(-job.atoms // job.world), job.batch / job.atoms
    samples = mine * size
    speed = 1.0
    if costs.device == "cpu":
        speed = float((costs.compute_threads / job.compute_threads) ** THREAD_SCALING)
    compute = mine * (costs.atom_seconds + costs.sample_seconds * size * speed)
    transfer = samples * costs.transfer_sample_seconds
    comm = 0.0
    if job.world > 1 and job.link is not None:
        sent = costs.gradient_bytes if job.sent_bytes is None else job.sent_bytes
        comm = all_reduce_seconds(job.link, sent, job.world)
    # Only the last atom's backward pass has an exchange beside it.
    hidden = BACKWARD_SHARE * compute / mine if job.is_overlapped else 0.0
    exposed = max(comm - hidden, 0.0)
    work = transfer + compute + costs.optimizer_seconds
    # A GPU is never done before the last of its work has come.
    late = max(mine * costs.launch_seconds - work, 0.0)
    device = work + late + exposed
    decode, read = samples * costs.decode_sample_seconds, samples * costs.read_sample_seconds
    beside = with_input(
        costs, job, device_seconds=device, idle_seconds=exposed, decode_seconds=decode, read_seconds=read
    )
    return Step(
        seconds=beside + costs.host_seconds,
        compute_seconds=compute,
        optimizer_seconds=costs.optimizer_seconds,
        transfer_seconds=transfer,
        host_seconds=costs.host_seconds + late,
        input_seconds=(decode + read) / hands(job),
        comm_seconds=comm,
        exposed_comm_seconds=exposed,
        exposed_input_seconds=beside - device,
    )


def hands(job: Job) -> float:
    """Decode threads of a process that can run at the same time."""
    return min(job.threads, max(1.0, job.cores / job.local_world))


def with_input(
    costs: Costs, job: Job, *, device_seconds: float, idle_seconds: float, decode_seconds: float, read_seconds: float
) -> float:
    """A step with its samples made ready beside it: on free cores they cost nothing, on busy ones decoding does."""
    apart = max(device_seconds, (decode_seconds + read_seconds) / hands(job))
    own_cores = job.cores / job.local_world
    crowded = min(max((job.compute_threads + job.threads - own_cores) / job.threads, 0.0), 1.0)
    if costs.device != "cpu" or crowded == 0.0:
        return apart
    # While gradients travel the network leaves its cores alone.
    left = max(decode_seconds - idle_seconds * hands(job), 0.0)
    slowed = costs.crowding * left / float(hands(job) ** CROWDING_SCALING)
    together = max(device_seconds + slowed, apart)
    return (1 - crowded) * apart + crowded * together


def calibrated(costs: Costs, job: Job, *, seconds: float) -> Costs:
    """The costs with a crowding, or on free cores a slower part, that explain a measured step."""
    found = step(costs, job)
    crowded = dataclasses.replace(costs, crowding=0.0)
    slope = found.seconds - step(crowded, job).seconds
    if slope <= 0:
        return slower(costs, found, surplus=max(seconds - found.seconds, 0.0))
    crowding = costs.crowding * (1 + (seconds - found.seconds) / slope)
    return dataclasses.replace(costs, crowding=min(max(crowding, LEAST_CROWDING), MOST_CROWDING))


def slower(costs: Costs, found: Step, *, surplus: float) -> Costs:
    """The costs with what a step took longer than was found, put where it belongs."""
    # Memory that all cores share makes slower what takes longest.
    if found.exposed_input_seconds > 0:
        factor = 1 + surplus / found.seconds
        return dataclasses.replace(costs, decode_sample_seconds=costs.decode_sample_seconds * factor)
    if costs.device == "cpu":
        return dataclasses.replace(costs, atom_seconds=costs.atom_seconds + surplus)
    late = found.host_seconds - costs.host_seconds
    work = found.compute_seconds + found.transfer_seconds + found.optimizer_seconds
    if surplus and costs.launch_seconds > NEAR * work:
        return dataclasses.replace(costs, launch_seconds=work + late + surplus)
    return dataclasses.replace(costs, host_seconds=costs.host_seconds + surplus)


def told_apart(costs: Costs, samples: int, *, pure_seconds: float, launch_seconds: float) -> Costs:
    """Costs of steps with one atom on a GPU, in which its work takes what it does when it has all come before.

    The steps that were measured took as long as that, or as the host needs to hand the work over if that is longer.
    """
    taken = costs.atom_seconds + costs.optimizer_seconds
    taken += samples * (costs.sample_seconds + costs.transfer_sample_seconds)
    if launch_seconds <= NEAR * pure_seconds:
        return dataclasses.replace(costs, launch_seconds=launch_seconds)
    names = ("atom_seconds", "sample_seconds", "optimizer_seconds", "transfer_sample_seconds")
    less = {name: getattr(costs, name) * min(pure_seconds / taken, 1.0) for name in names}
    waited = taken > CLEAR * pure_seconds
    return dataclasses.replace(costs, **less, launch_seconds=taken if waited else min(launch_seconds, taken))


# What a step could have for nothing, and the costs that are it.
FREE = {
    "decode": ("decode_sample_seconds",),
    "disk": ("read_sample_seconds",),
    "compute": ("atom_seconds", "sample_seconds", "optimizer_seconds"),
    "copies": ("transfer_sample_seconds",),
    "launches": ("host_seconds", "launch_seconds"),
}


def freed(costs: Costs, resource: str) -> Costs:
    """The costs with one resource for nothing."""
    nothing: dict[str, Any] = dict.fromkeys(FREE[resource], 0.0)
    return dataclasses.replace(costs, **nothing)


def without(costs: Costs, job: Job) -> dict[str, float]:
    """Seconds of a step if one resource were free, for each of them."""
    found = {name: step(freed(costs, name), job).seconds for name in FREE}
    if job.world > 1 and job.link is not None:
        found["network"] = step(costs, dataclasses.replace(job, link=None)).seconds
    return found


def unsure(costs: Costs, *changes: str) -> float:
    """How far a step may be from its prediction, when these things are other than they were in the probe."""
    return max(SURE, costs.spread) + sum(UNSURE[change] for change in changes)
