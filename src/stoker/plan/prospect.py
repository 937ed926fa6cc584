"""A run that is not there yet: what is known about it, what a person asks, and how its steps would be taken."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.config import Config, Stage
from stoker.machine.forecast import Rest
from stoker.machine.links import Link
from stoker.machine.predict import Job
from stoker.plan.probe import Probe

if TYPE_CHECKING:
    from stoker.data.order import Route

THIS = "this"
# A link that a person names carries so much of its label, and answers so late.
LABEL_SHARE, LABEL_LATENCY_SECONDS = 0.95, 3e-4


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a person wants to know."""

    machines: tuple[str, ...] = (THIS,)
    """this, or names of the catalogue"""
    gpus: int = 0
    """processes a machine; 0 takes all GPUs it has"""
    nodes: int = 1
    link_bytes_per_second: float | None = None
    """between the processes, as its label says; None takes what was measured or what the catalogue says"""
    target_seconds: float | None = None
    target_dollars: float | None = None
    catalogue: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Here:
    """What a plan needs to know of this machine."""

    device: str
    """cpu or cuda"""
    gpu: str | None
    """as its driver calls it"""
    cores: int
    gpu_memory_bytes: int | None
    setup_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A run that is not there yet, and all that is known about it."""

    config: Config
    """with nothing left open"""
    route: "Route"
    held_out: int
    """samples of an evaluation"""
    data: str
    probe: Probe
    here: Here


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Processes, and what they work with."""

    device: str
    local: int
    """processes a machine"""
    world: int
    cores: int
    link: Link | None


def job_of(run: Prospect, stage: Stage, crew: Crew) -> Job:
    """How the steps of a stage are taken by a crew. Left to Stoker, there is one atom a process."""
    config, local = run.config, crew.local
    return Job(
        batch=stage.batch,
        atoms=max(config.train.atoms, crew.world),
        world=crew.world,
        local_world=local,
        threads=config.loader.threads or max(1, crew.cores // local - 1),
        compute_threads=min(config.model.compute_threads, max(1, crew.cores // local)),
        cores=crew.cores,
        link=crew.link,
        sent_bytes=run.probe.sent_bytes,
        is_overlapped=crew.world > 1 and crew.device == "cuda" and not config.model.exact,
    )


def memory_of(run: Prospect, job: Job) -> int | None:
    """Memory that a process takes on its device: weights, gradients and momentum, and the rest by its samples."""
    probe = run.probe
    if probe.memory_bytes is None:
        return None
    weights = min(3 * probe.costs[0].gradient_bytes, probe.memory_bytes)
    return math.ceil(weights + (probe.memory_bytes - weights) * (job.batch / job.atoms) / probe.atom[0])


def labelled(bytes_per_second: float) -> Link:
    """A link by its label."""
    return Link(latency_seconds=LABEL_LATENCY_SECONDS, bytes_per_second=bytes_per_second * LABEL_SHARE)


def rest_of(run: Prospect, *, ratio: float) -> Rest:
    """Evaluations, checkpoints and setup of a run, on a machine whose arithmetic takes so many times as long."""
    save, route, probe = run.config.save, run.route, run.probe
    by_steps = route.steps // save.checkpoint_steps if save.checkpoint_steps else 0
    return Rest(
        evals=-(-route.epochs // run.config.train.eval_epochs),
        eval_samples=run.held_out,
        eval_sample_seconds=probe.eval_sample_seconds * ratio,
        saves=-(-route.epochs // save.checkpoint_epochs) + by_steps,
        save_seconds=probe.save_seconds,
        setup_seconds=run.here.setup_seconds,
    )
