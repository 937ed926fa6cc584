"""A probe of this machine -> what the run will take on it and on others. Pure."""

from dataclasses import dataclass

from stoker.machine import catalogue as catalogues
from stoker.machine import forecast as forecasts
from stoker.machine import transfer
from stoker.machine.catalogue import Catalogue
from stoker.machine.forecast import Forecast, Leg
from stoker.machine.links import Link
from stoker.machine.predict import Job
from stoker.plan.elsewhere import on_other
from stoker.plan.probe import Probe
from stoker.plan.prospect import THIS, Ask, Crew, Prospect, job_of, labelled, memory_of, rest_of

# Between processes of one machine that compute on its CPU, over gloo; on two ARM cores (docs/log.md, 2026-11-15).
LOCAL = Link(latency_seconds=1e-3, bytes_per_second=1.5e9)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will take: on each machine that was asked for, and which to choose."""

    model: str
    data: str
    epochs: int
    steps: int
    batch: int
    forecasts: tuple[Forecast, ...]
    unknown: dict[str, str]
    """machines that nothing can be said about, and why"""
    fastest: str | None
    cheapest: str | None
    meets: dict[str, str]
    """whether each stays within the target, where there is one"""
    probe: Probe
    version: int = 1


def planned(run: Prospect, ask: Ask) -> Plan:
    """The run on every machine that was asked for."""
    known = catalogues.read(ask.catalogue)
    answers = {name: on_this(run, ask, known) if name == THIS else on_other(run, ask, known, name)
               for name in ask.machines}  # fmt: skip
    found = [one for one in answers.values() if isinstance(one, Forecast)]
    fastest, cheapest = forecasts.fastest(found), forecasts.cheapest(found)
    meets = {
        one.machine: forecasts.meets(one, target_seconds=ask.target_seconds, target_dollars=ask.target_dollars)
        for one in found
        if ask.target_seconds is not None or ask.target_dollars is not None
    }
    return Plan(
        model=run.config.model.model,
        data=run.data,
        epochs=run.route.epochs,
        steps=run.route.steps,
        batch=run.config.stages[0].batch,
        forecasts=tuple(found),
        unknown={name: one for name, one in answers.items() if isinstance(one, str)},
        fastest=fastest.machine if fastest else None,
        cheapest=cheapest.machine if cheapest else None,
        meets=dict(meets),
        probe=run.probe,
    )


def on_this(run: Prospect, ask: Ask, known: Catalogue) -> Forecast:
    """The run on this machine, or on several like it."""
    probe, here, route = run.probe, run.here, run.route
    local = ask.gpus or max(1, probe.world // ask.nodes)
    link, notes = link_here(run, ask, known, world=local * ask.nodes)
    if run.config.model.compile:
        notes = (*notes, "probed without compiling the network, which makes steps shorter")
    crew = Crew(device=here.device, local=local, world=local * ask.nodes, cores=here.cores, link=link)
    legs = []
    for costs, stage, pace, atom in zip(probe.costs, route.stages, route.paces, probe.atom, strict=True):
        job = job_of(run, stage, crew)
        changed = changes(job, probe, atom, link)
        legs.append(Leg(costs=costs, job=job, steps=pace.steps * stage.epochs, epochs=stage.epochs, changes=changed))
    return forecasts.forecast(
        THIS,
        legs,
        rest_of(run, ratio=1.0),
        machines=ask.nodes,
        memory_bytes=memory_of(run, legs[0].job),
        device_memory_bytes=here.gpu_memory_bytes,
        notes=notes,
    )


def link_here(run: Prospect, ask: Ask, known: Catalogue, *, world: int) -> tuple[Link | None, tuple[str, ...]]:
    """What gradients travel over between processes here, and what of it is assumed."""
    here = run.here
    if world == 1:
        return None, ()
    if ask.link_bytes_per_second is not None:
        return labelled(ask.link_bytes_per_second), ()
    if run.probe.link is not None and ask.nodes == run.probe.nodes:
        return run.probe.link, ()
    if ask.nodes > 1:
        return None, ()
    if here.device == "cpu":
        return LOCAL, ("between processes of this machine: assumed, not measured",)
    spec = known.gpu(here.gpu) if here.gpu else None
    if spec is None:
        return None, ()
    speed = (spec.nvlink_bytes_per_second or 0.0) * transfer.NVLINK_SHARE
    speed = speed or transfer.pcie_bytes_per_second(spec, 16) * transfer.PCIE_SHARE
    link = Link(latency_seconds=transfer.LOCAL_LATENCY_SECONDS, bytes_per_second=speed)
    return link, ("between the GPUs: as the catalogue says, not measured",)


def changes(job: Job, probe: Probe, atom: int, link: Link | None) -> tuple[str, ...]:
    """What differs from the probe."""
    found = {
        "batch": -(-job.batch // job.atoms) != atom,
        "threads": job.threads != probe.threads or job.compute_threads != probe.costs[0].compute_threads,
        "processes": job.world != probe.world,
        "link": link != probe.link,
    }
    return tuple(name for name, differs in found.items() if differs)
