"""A run on machines of the catalogue, from a probe on this one. Pure."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from stoker import units
from stoker.errors import Problem
from stoker.machine import forecast as forecasts
from stoker.machine import price, transfer
from stoker.machine.catalogue import Catalogue, GpuSpec, Instance
from stoker.machine.forecast import Forecast, Leg
from stoker.plan.prospect import Ask, Crew, Prospect, job_of, labelled, memory_of, rest_of

# What it takes to give a GPU the work of a layer, forward, backward and update: at least, likely and at most.
LAUNCH_SECONDS = (40e-6, 90e-6, 200e-6)


def on_other(run: Prospect, ask: Ask, known: Catalogue, name: str) -> Forecast | str:
    """The run on a machine of the catalogue, or why nothing can be said about it."""
    instance = instance_of(known, name)
    spec, local = known.gpu(instance.gpu), ask.gpus or instance.gpus
    if spec is None:
        return f"the catalogue has no GPU {instance.gpu}"
    if local > instance.gpus:
        return f"it has {units.count_text(instance.gpus, 'GPU')}, and {local} were asked for"
    world = local * ask.nodes
    link = transfer.link_of(instance, spec, machines=ask.nodes) if world > 1 else None
    if world > 1 and ask.link_bytes_per_second is not None:
        link = labelled(ask.link_bytes_per_second)
    crew = Crew(device="cuda", local=local, world=world, cores=instance.vcpus or run.here.cores, link=link)
    there = moved(run, known, crew, spec, instance)
    if isinstance(there, str):
        return there
    return forecasts.forecast(
        name,
        there.legs,
        rest_of(run, ratio=there.ratio),
        machines=ask.nodes,
        memory_bytes=memory_of(run, there.legs[0].job),
        device_memory_bytes=instance.gpu_memory_bytes,
        instance=instance,
        terms=terms_of(run, there.legs),
        notes=(there.note,),
    )


def instance_of(known: Catalogue, name: str) -> Instance:
    """A machine of the catalogue by its name, or a refusal with those that are called alike."""
    instance = known.instance(name)
    if instance is not None:
        return instance
    near = known.close(name)
    raise Problem(
        f"the catalogue has no machine {name}",
        fix=f"did you mean {', '.join(near)}?" if near else "give its figures in a file with --catalogue",
    )


@dataclass(frozen=True, kw_only=True)
class Moved:
    """The stages of a run on another machine."""

    legs: list[Leg]
    ratio: float
    """seconds of arithmetic there for each second here"""
    note: str


def moved(run: Prospect, known: Catalogue, crew: Crew, spec: GpuSpec, instance: Instance) -> Moved | str:
    """The stages of the run on another machine, or why nothing can be said about them."""
    here, probe, amp = run.here, run.probe, run.config.model.amp
    legs: list[Leg] = []
    ratio, note, flops, first = 1.0, "", probe.flops_per_sample, run.route.stages[0].resolution
    for costs, stage, pace in zip(probe.costs, run.route.stages, run.route.paces, strict=True):
        there = transfer.elsewhere(
            costs,
            here=known.gpu(here.gpu) if here.gpu else None,
            there=spec,
            # What has no tensor cores computes in fp32; convolutions use tf32 unless they are told otherwise.
            precision="tf32" if amp == "off" else amp,
            flops_per_sample=None if flops is None else flops * (stage.resolution / first) ** 2,
            sample_bytes=3.0 * stage.resolution**2,
            there_lanes=instance.pcie_lanes,
        )
        if isinstance(there, transfer.Unknown):
            return there.reason
        low, likely, high = there.low, there.likely, there.high
        if here.gpu is None:
            # A CPU has no work to wait for, a GPU has: it is given so much a layer at least.
            low, likely, high = (
                dataclasses.replace(costs, launch_seconds=probe.layers * seconds)
                for costs, seconds in zip((low, likely, high), LAUNCH_SECONDS, strict=True)
            )
        changed = ("processes", "link") if crew.world > 1 else ()
        leg = Leg(
            costs=likely, job=job_of(run, stage, crew), steps=pace.steps * stage.epochs, epochs=stage.epochs,
            changes=changed, low=low, high=high,
        )  # fmt: skip
        legs.append(leg)
        ratio, note = there.ratio.likely, there.note
    return Moved(legs=legs, ratio=ratio, note=note)


def terms_of(run: Prospect, legs: Sequence[Leg]) -> price.Terms:
    """What a run on spot machines has to reckon with: a checkpoint every epoch, or sooner where that pays."""
    save = run.config.save
    epoch = max(leg.step().likely * leg.steps / leg.epochs for leg in legs) * save.checkpoint_epochs
    young = math.sqrt(2 * save.mtbf_hours * 3600 * max(run.probe.save_seconds, 0.01))
    return price.Terms(checkpoint_seconds=min(epoch, young), mtbf_hours=save.mtbf_hours)
