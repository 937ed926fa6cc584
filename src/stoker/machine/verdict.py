"""Evidence -> where a run's time went, what limits it, and what to do about it. Pure."""

import contextlib
from dataclasses import dataclass, field, replace

from stoker.machine import arithmetic, calibration, evidence, predict
from stoker.machine.calibration import LEAST_SHARE, Model, Straggler
from stoker.machine.evidence import ENOUGH_STEPS, STEP_BUCKETS, Evidence
from stoker.machine.remedies import remedies
from stoker.machine.remedy import Remedy, elsewhere
from stoker.machine.usage import Spread

MEANING = {
    "data_wait": "the training thread waited for samples",
    "transfer": "samples were copied to the device",
    "compute": "the network went forward and backward",
    "host": "the GPU was idle because its work came late",
    "comm": "gradients were exchanged",
    "peer_wait": "waited for a slower process",
    "optimizer": "the weights were updated",
    "checkpoint": "the state was saved",
    "eval": "the held-out samples were scored",
    "logging": "lines were written and shown",
    "other": "none of these",
    "setup": "libraries and the network were loaded, data was indexed, the recipe was tried",
    "compile": "the network was compiled, with its first step",
    "restore": "a checkpoint was read",
    "lost": "work that an interruption undid",
    "rollback": "work that was undone after a divergence",
    "down": "the run was not running",
}
DEFINITIONS = {
    "useful_share": "of the wall clock, in which the network went forward and backward and was updated",
    "busy_percent": "of the time, in which some kernel ran on the GPU, however small (NVML): a sign of life only",
    "mfu": "of the FLOP/s that the GPU was measured to sustain at this precision, used by the network during a step",
}
# What a step could have for free, and what a run then is not limited by.
RESOURCES = {"decode": "CPU decode", "disk": "disk", "compute": "arithmetic", "copies": "copies", "network": "network"}
# The start of a run, which comes before what limits it.
START = ("setup", "compile", "restore")
# Whole buckets of the run that are a limit of their own.
PAUSES = {
    "checkpoints": ("checkpoint",),
    "evaluation": ("eval",),
    "interruptions": ("lost", "rollback", "down"),
}
# Other programs that use so much of the CPU are worth a word.
OTHERS_PERCENT = 20.0
# What computes is what a run is for: something else is called its limit from this share of the time on.
HIGH_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Share:
    """A bucket of the ledger."""

    bucket: str
    seconds: float
    share: float
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Where a run's time went, what limits it, and what to do about it."""

    state: str
    """what the run is doing"""
    step: int
    """up to which the ledger goes"""
    wall_seconds: float
    steps: int
    samples: int
    shares: tuple[Share, ...]
    not_measured: tuple[str, ...]
    useful_share: float
    """compute and optimiser, of the wall clock"""
    busy_percent: Spread | None
    """of the GPUs; None where no gauge tells"""
    mfu: float | None
    """of the measured ceiling; None without the ceiling or the network's FLOPs"""
    limit: str | None
    """the limiting resource; None where there is not enough evidence, or where nothing takes long enough"""
    gain: float | None
    """how many times as fast the run would be without the limit, its start left out"""
    step_seconds: float | None
    step_gain: float | None
    """... and a step"""
    straggler: Straggler | None
    amp: str | None
    """what mixed precision could gain at all, in words"""
    remedies: tuple[Remedy, ...]
    """the greatest gain first"""
    elsewhere: str | None
    """the command that says what other machines would take"""
    missing: tuple[str, ...]
    """evidence that there is not, and how to get it"""
    sentence: str
    definitions: dict[str, str] = field(default_factory=lambda: dict(DEFINITIONS))
    version: int = 2


def judge(found: Evidence) -> Verdict:
    """What the evidence says about a run."""
    totals = found.totals
    wall = sum(value or 0.0 for value in totals.values())
    first = found.rows[min(found.rows)] if found.rows else ()
    shares = tuple(
        Share(bucket=bucket, seconds=value, share=value / wall, meaning=MEANING.get(bucket, ""))
        for bucket, value in sorted(totals.items(), key=lambda item: -(item[1] or 0.0))
        if value
    )
    model = calibration.model(found) if found.steps >= ENOUGH_STEPS and wall > 0 else None
    saved = saved_seconds(found, model) if model is not None else {}
    # What goes into the start of a run says nothing about the rest of it.
    working = wall - sum(totals.get(bucket) or 0.0 for bucket in START)
    limit = limiting(saved, working)
    unsure = None
    if model is not None and limit == "arithmetic":
        limit, unsure = arithmetic.kind(found, model)
        saved[limit] = saved["arithmetic"]
    step = model.pace.step_seconds if model is not None else None
    return Verdict(
        state=found.state,
        step=first[-1].step if first else 0,
        wall_seconds=wall,
        steps=found.steps,
        samples=sum(row.samples for row in first),
        shares=shares,
        not_measured=tuple(bucket for bucket, value in totals.items() if value is None),
        useful_share=sum(share.share for share in shares if share.bucket in ("compute", "optimizer")),
        busy_percent=evidence.usage(found).gpu_busy_percent,
        mfu=arithmetic.mfu(found, model, seconds=step) if model is not None and step else None,
        limit=limit,
        gain=times(saved.get(limit or "", 0.0) / working) if limit else None,
        step_seconds=step,
        step_gain=step_gain(found, model, limit, saved) if model is not None else None,
        straggler=model.straggler if model is not None else None,
        amp=amp(found, model, wall) if model is not None else None,
        remedies=remedies(found, model) if model is not None else (),
        elsewhere=elsewhere(found) if model is not None else None,
        missing=(*found.missing, *lacking(found, model), *([unsure] if unsure else [])),
        sentence=sentence(found, limit, saved, working),
    )


def sensible(found: Evidence) -> Evidence:
    """The same evidence if it can be judged, else without what makes no sense, which is told as missing.

    Files of a run may hold anything by the time they are read.
    """
    nonsense = "holds figures that make no sense, so it was left out"
    bare = replace(
        found, profile={}, plan={}, packed=None, missing=(*found.missing, f"the machine or plan: it {nonsense}")
    )
    record = replace(found.record, data={}) if found.record is not None else None
    poor = replace(bare, record=record, missing=(*found.missing, f"the machine, plan and data: one {nonsense}"))
    empty = replace(poor, rows={}, gauges=(), missing=(*found.missing, f"the ledger: it {nonsense}"))
    for known in (found, bare, poor):
        with contextlib.suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            judge(known)
            return known
    return empty


def saved_seconds(found: Evidence, model: Model) -> dict[str, float]:
    """Seconds of the wall clock that would go if a resource were free, for each."""
    step, seconds = model.pace.step_seconds, model.pace.seconds
    now = predict.step(model.costs, model.job).seconds
    free = predict.without(model.costs, model.job)
    in_a_step = {name: now - free[key] for key, name in RESOURCES.items() if key in free}
    in_a_step["launch overhead"] = seconds.get("host", 0.0)
    # Where no process is late every time, they take turns, and each waits for all the others.
    in_a_step["stragglers"] = model.straggler.extra_seconds if model.straggler else seconds.get("peer_wait", 0.0)
    stepping = sum(found.totals.get(bucket) or 0.0 for bucket in STEP_BUCKETS)
    saved = {name: stepping * max(value, 0.0) / step for name, value in in_a_step.items()} if step > 0 else {}
    for name, buckets in PAUSES.items():
        saved[name] = sum(found.totals.get(bucket) or 0.0 for bucket in buckets)
    crowded = model.pace.crowd_seconds
    saved["checkpoints"] += stepping * crowded / (step + crowded) if step + crowded > 0 else 0.0
    return saved


def limiting(saved: dict[str, float], wall: float) -> str | None:
    """The limit: what would save most, and arithmetic only where nothing else would save much."""
    others = {name: seconds for name, seconds in saved.items() if name != "arithmetic"}
    most = max(others, key=lambda name: others[name], default=None)
    if most is not None and others[most] >= HIGH_SHARE * wall:
        return most
    largest = max(saved, key=lambda name: saved[name], default=None)
    return largest if largest is not None and saved[largest] >= LEAST_SHARE * wall else None


def times(share: float) -> float | None:
    """How many times as fast something is without a share of its time; None where nothing would be left."""
    return 1 / (1 - share) if share < 0.999 else None


def step_gain(found: Evidence, model: Model, limit: str | None, saved: dict[str, float]) -> float | None:
    """How many times as fast a step would be without the limit; None where the limit is no part of it."""
    stepping = sum(found.totals.get(bucket) or 0.0 for bucket in STEP_BUCKETS)
    # A network without arithmetic is none, however fast it would be.
    is_part = limit is not None and limit not in (*PAUSES, "arithmetic", "memory bandwidth")
    if limit is None or not is_part or stepping <= 0 or model.pace.step_seconds <= 0:
        return None
    return times(saved[limit] / stepping)


def amp(found: Evidence, model: Model, wall: float) -> str:
    """What mixed precision could gain at all."""
    stepping = sum(found.totals.get(bucket) or 0.0 for bucket in STEP_BUCKETS)
    return arithmetic.amp_text(found, model, wall_seconds=wall, step_share=stepping / wall)


def lacking(found: Evidence, model: Model | None) -> list[str]:
    """What would make the verdict surer, and how to get it."""
    if not found.rows:
        return ["ledger lines: the run has not come to its first one, or they were written by another Stoker"]
    if model is None:
        return [f"steps: there are {found.steps}, and {ENOUGH_STEPS} are needed; look again when the run has gone on"]
    said = []
    if model.pace.steps < ENOUGH_STEPS:
        said.append(f"steps of one start: there are {model.pace.steps} at most, so these are of several starts")
    if not found.profile.get("cores"):
        said.append("the machine (machine.json): how many cores are free is not known")
    for bucket, how in (
        ("comm", "how long gradients travel is not measured"),
        ("peer_wait", "waiting for slow processes is not told from the network"),
    ):
        if found.world > 1 and bucket not in model.pace.seconds:
            said.append(f"{bucket}: {how}")
    if model.pace.read_seconds + model.pace.decode_seconds == 0:
        said.append("the loader's clock: waiting for samples is not told apart into disk and decoding")
    if model.costs.device == "cuda":
        said += lacking_on_gpu(found, model)
    others = evidence.usage(found).others_cpu_percent
    if found.world == 1 and others is not None and others.mean >= OTHERS_PERCENT:
        said.append(f"a quiet machine: other programs used {others.mean:.0f} % of the CPU meanwhile, so times vary")
    return said


def lacking_on_gpu(found: Evidence, model: Model) -> list[str]:
    """What a GPU's figures are short of."""
    said = []
    if "host" not in model.pace.seconds:
        said.append("host: whether the GPU waits for its work to come is not measured")
    if not arithmetic.ceilings(found):
        said.append("the GPU's measured ceiling: run stoker doctor on that machine before the next start")
    if not found.plan.get("flops_per_sample"):
        said.append("the network's FLOPs (plan.json), so there is no MFU")
    if not found.gauges:
        said.append("gauges (gauges.jsonl), so there is no busy %")
    return said


def sentence(found: Evidence, limit: str | None, saved: dict[str, float], wall: float) -> str:
    """The verdict in words."""
    if found.steps < ENOUGH_STEPS or wall <= 0:
        return f"No verdict yet: the ledger holds {found.steps} steps, and {ENOUGH_STEPS} are needed."
    if limit is None:
        return f"Nothing takes {LEAST_SHARE:.0%} of the time alone, so nothing is called a bottleneck."
    share = saved[limit] / wall
    faster = times(share)
    gained = f"the run would be {faster:.2g} times as fast" if faster is not None else "next to nothing would be left"
    if limit in ("arithmetic", "memory bandwidth"):
        return f"Bound by {limit}: {share:.0%} of the time went into the network and its update."
    if limit == "interruptions":
        return (
            f"Bound by interruptions: {share:.0%} of the time. More frequent checkpoints lose less: --checkpoint-steps."
        )
    return f"Bound by {limit}: {share:.0%} of the time. Without it {gained}."
