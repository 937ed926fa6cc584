"""What would make a run faster, the greatest gain first. Pure."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

from stoker import units
from stoker.config import ModelConfig
from stoker.machine import arithmetic, feeding, predict
from stoker.machine.calibration import NARROW, Model
from stoker.machine.evidence import Evidence
from stoker.machine.remedy import LEAST_GAIN, Remedy, command, predicted, seconds_with

# Gains (beyond 1) that are this near to each other are no order: then the surer one comes first.
NEAR = 1.15
# PowerSGD of rank 4 sends so many times fewer bytes; its own arithmetic takes so long for each byte that is not sent.
POWERSGD_FEWER = (20.0, 40.0, 100.0)
POWERSGD_SECONDS_A_BYTE = {"cpu": 1.5e-9, "cuda": 1e-11}
FASTER_LINK = 10
MORE_ATOMS = 4


def remedies(evidence: Evidence, model: Model) -> tuple[Remedy, ...]:
    """What is worth doing, the greatest gain first; the surer one first where two are near each other."""
    found = [
        *feeding.remedies(evidence, model),
        *network_remedies(evidence, model),
        *step_remedies(evidence, model),
        *launch_remedies(evidence, model),
        *pause_remedies(evidence, model),
        *straggler_remedies(model),
    ]
    return tuple(ordered(remedy for remedy in found if remedy.gain >= LEAST_GAIN))


def ordered(found: Iterable[Remedy]) -> Iterator[Remedy]:
    """The greatest gain first; among those that are near to it, the one with the narrowest bounds."""
    left = sorted(found, key=lambda remedy: -remedy.gain)
    while left:
        near = [remedy for remedy in left if (remedy.gain - 1) * NEAR >= left[0].gain - 1]
        best = min(near, key=lambda remedy: (remedy.high / remedy.low, -remedy.gain))
        left.remove(best)
        yield best


def network_remedies(evidence: Evidence, model: Model) -> Iterator[Remedy]:
    """For exchanges of gradients that take long."""
    job, config = model.job, evidence.config
    if job.world == 1 or job.link is None or job.sent_bytes is None or config is None:
        return
    mbit = job.link.bytes_per_second * 8 / 1e6
    why = f"{units.bytes_text(job.sent_bytes)} of gradients a step at {mbit:,.0f} Mbit/s"
    faster = dataclasses.replace(job.link, bytes_per_second=job.link.bytes_per_second * FASTER_LINK)
    yield predicted(
        model,
        seconds_with(model, job={"link": faster}),
        what=f"a link {FASTER_LINK} times as fast: another port or machine",
        why=why,
        command=f"stoker doctor --peer {peer(evidence)}",
        unsure=predict.UNSURE["link"],
    )
    yield from compressions(evidence, model, why=why)
    batch, atoms = job.batch * MORE_ATOMS, job.atoms * MORE_ATOMS
    if may_grow(evidence, batch) and not config.many.sync_bn:
        yield predicted(
            model,
            seconds_with(model, job={"batch": batch, "atoms": atoms}) / MORE_ATOMS,
            what=f"a batch of {batch:,} in {atoms} atoms: a quarter of the exchanges",
            why=why,
            command=command(evidence, {"batch": batch, "atoms": atoms}, is_new=True),
            is_lossy=True,
            needs_new_run=True,
        )


def peer(evidence: Evidence) -> str:
    """Another machine of the run, by its name."""
    hosts = [rows[-1].host for _, rows in sorted(evidence.rows.items())]
    return next((host for host in hosts if host and host != hosts[0]), "HOST")


def compressions(evidence: Evidence, model: Model, *, why: str) -> Iterator[Remedy]:
    """Fewer bytes for the same gradients, or nearly the same."""
    costs, config = model.costs, evidence.config
    assert config is not None
    if config.many.compress == "off":
        yield predicted(
            model,
            seconds_with(model, job={"sent_bytes": costs.gradient_bytes // 2}),
            what="send gradients as 16-bit numbers",
            why=why,
            command=command(evidence, {"compress": "bf16"}, is_new=True),
            is_lossy=True,
            needs_new_run=True,
        )
    if config.many.compress in ("off", *NARROW) and not config.model.exact:
        extra = POWERSGD_SECONDS_A_BYTE[costs.device] * costs.gradient_bytes
        slow, likely, fast = (
            seconds_with(model, job={"sent_bytes": int(costs.gradient_bytes / fewer)}) + times * extra
            for fewer, times in zip(POWERSGD_FEWER, (2, 1, 0.5), strict=True)
        )
        yield predicted(
            model,
            likely,
            what="send gradients as PowerSGD's low-rank approximation",
            why=why,
            command=command(evidence, {"compress": "powersgd"}, is_new=True),
            is_lossy=True,
            needs_new_run=True,
            fast=fast,
            slow=slow,
        )


def step_remedies(evidence: Evidence, model: Model) -> Iterator[Remedy]:
    """For arithmetic: what was tried before the run, and mixed precision as far as the GPU's ceilings tell."""
    config = evidence.config
    if config is None:
        return
    for setting, times in evidence.tried.items():
        if flags := flags_of(setting, config.model):
            yield predicted(
                model,
                arithmetic.quicker(model, times, is_whole=True),
                what=setting,
                why=f"a step was {times:.2f} times as fast with it before the run",
                command=command(evidence, flags, is_new=True),
                unsure=0.07,
                is_lossy="amp" in flags,
                needs_new_run=True,
            )
    choice, speed_up = arithmetic.amp_choice(evidence), arithmetic.amp_speed_up(evidence)
    if config.model.amp == "off" and f"amp {choice}" not in evidence.tried and speed_up is not None:
        likely, slow, fast = (arithmetic.quicker(model, times, is_whole=False) for times in speed_up)
        yield predicted(
            model,
            likely,
            what=f"mixed precision: amp {choice}",
            why=f"matrices multiply {speed_up[2]:.1f} times as fast on this GPU",
            command=command(evidence, {"amp": choice}, is_new=True),
            fast=fast,
            slow=slow,
            is_lossy=True,
            needs_new_run=True,
        )


def launch_remedies(evidence: Evidence, model: Model) -> Iterator[Remedy]:
    """For a GPU that waits for its work to come."""
    config, pace = evidence.config, model.pace
    late = pace.seconds.get("host", 0.0)
    if config is None or late < (LEAST_GAIN - 1) * pace.step_seconds:
        return
    now = predict.step(model.costs, model.job).seconds
    why = f"the GPU is idle {units.percent_text(late / pace.step_seconds)} of a step because its work comes late"
    if not config.model.compile and "compile" not in evidence.tried:
        busy = late + pace.seconds.get("compute", 0.0) + pace.seconds.get("optimizer", 0.0)
        gone = late if pace.pure_seconds is None else min(late, max(busy - pace.pure_seconds, 0.0))
        yield predicted(
            model,
            now - 0.8 * gone,
            what="compile the network",
            why=why,
            command=command(evidence, {"compile": True}, is_new=True),
            fast=now - gone,
            slow=now - gone / 2,
            needs_new_run=True,
        )
    batch = 2 * model.job.batch
    if memory_room(evidence) > 2 and may_grow(evidence, batch):
        yield predicted(
            model,
            seconds_with(model, job={"batch": batch}) / 2,
            what=f"a batch of {batch:,}",
            why=why,
            command=command(evidence, {"batch": batch}, is_new=True),
            is_lossy=True,
            needs_new_run=True,
        )


def may_grow(evidence: Evidence, batch: int) -> bool:
    """Whether steps may have so many samples: where the data has some such steps, and no stage says otherwise."""
    samples = (evidence.record.data if evidence.record is not None else {}).get("train_samples")
    staged = evidence.config is not None and evidence.config.train.stages
    return not staged and (samples is None or samples >= 4 * batch)


def flags_of(setting: str, now: ModelConfig) -> dict[str, Any]:
    """The flags of a setting that was tried; none where the run has it already."""
    name, _, value = setting.partition(" ")
    if name == "amp":
        return {"amp": value} if value in ("bf16", "fp16", "off") and value != now.amp else {}
    wanted = value not in ("off", "False", "no")
    if name not in ("channels_last", "compile") or getattr(now, name) == wanted:
        return {}
    flag = name.replace("_", "-")
    return {flag if wanted else f"no-{flag}": True}


def memory_room(evidence: Evidence) -> float:
    """How many times the memory that training took there is on the GPU; 0 where that is not known."""
    used = (evidence.record.result if evidence.record is not None else {}).get("peak_memory_bytes")
    sizes = [gpu.get("memory_bytes") for gpu in evidence.profile.get("gpus") or ()]
    return min(sizes) / used if used and sizes and all(sizes) else 0.0


def pause_remedies(evidence: Evidence, model: Model) -> Iterator[Remedy]:
    """For checkpoints and evaluations that take long."""
    config, pace = evidence.config, model.pace
    if config is None:
        return
    whole, pauses = pace.whole_seconds, pace.now_and_then
    now = predict.step(model.costs, model.job).seconds
    data = evidence.record.data if evidence.record is not None else {}
    epoch_steps = max(1.0, (data.get("train_samples") or math.inf) / pace.batch)
    flags, left = rarer_saves(evidence, pauses["checkpoint"], whole=whole, epoch_steps=epoch_steps)
    if flags:
        yield predicted(
            model,
            now - pauses["checkpoint"] + left,
            what="fewer checkpoints",
            why=f"they take {units.percent_text(pauses['checkpoint'] / whole)} of the time",
            command=command(evidence, flags, is_new=False),
            unsure=0.05,
        )
    rest = whole - pauses["eval"]
    every = config.train.eval_epochs
    rarer = min(config.train.epochs, every * math.ceil(pauses["eval"] / (0.05 * rest)) if rest > 0 else every)
    if rarer > every:
        yield predicted(
            model,
            now - pauses["eval"] * (1 - every / rarer),
            what=f"evaluate after every {rarer} epochs",
            why=f"evaluations take {units.percent_text(pauses['eval'] / whole)} of the time",
            command=command(evidence, {"eval-epochs": rarer}, is_new=False),
            unsure=0.05,
        )


def rarer_saves(
    evidence: Evidence, seconds: float, *, whole: float, epoch_steps: float
) -> tuple[dict[str, Any], float]:
    """The flags that save less often than now, and the seconds of a step that saving still takes with them."""
    assert evidence.config is not None
    save = evidence.config.save
    steps = save.checkpoint_steps or math.inf
    timed = 60 * save.checkpoint_minutes / whole if save.checkpoint_minutes else math.inf
    by_epoch = epoch_steps * save.checkpoint_epochs
    if seconds <= 0 or min(steps, timed, by_epoch) == math.inf:
        return {}, seconds
    # Of the rules by which checkpoints are made, the one that makes most of them goes.
    cost = seconds / (1 / steps + 1 / timed + 1 / by_epoch)
    if min(steps, timed) < by_epoch:
        flags = {"checkpoint-steps": 0} if steps < timed else {"checkpoint-minutes": 0}
        # Without minutes, they follow from what a save costs and from how often runs are interrupted.
        own = math.sqrt(2 * save.mtbf_hours * 3600 * cost) / whole
        other = timed if steps < timed else steps
        return flags, min(cost * (1 / by_epoch + 1 / min(own, other)), seconds)
    wanted = math.ceil(save.checkpoint_epochs * seconds / (0.05 * max(whole - seconds, 1e-9)))
    rarer = min(wanted, evidence.config.train.epochs)
    if rarer <= save.checkpoint_epochs:
        return {}, seconds
    return {"checkpoint-epochs": rarer}, seconds * save.checkpoint_epochs / rarer


def straggler_remedies(model: Model) -> Iterator[Remedy]:
    """For a process that the others wait for."""
    slow = model.straggler
    if slow is None:
        return
    where = f"{slow.host} (process {slow.rank})" if slow.host else f"the machine of process {slow.rank}"
    now = predict.step(model.costs, model.job).seconds
    yield predicted(
        model,
        now - slow.extra_seconds,
        what=f"replace {where}, or find out there what slows it down",
        why=f"the others wait {units.seconds_text(slow.extra_seconds)} for it in every step",
        command="stoker doctor",
        unsure=0.05,
    )
