"""How much of a GPU's arithmetic a run uses, and what mixed precision could gain at all. Pure."""

import math

from stoker.machine import predict
from stoker.machine.calibration import Model
from stoker.machine.evidence import Evidence
from stoker.machine.remedy import seconds_with

# From this share of the measured ceiling on, arithmetic is what takes the time; below the other, it can't be.
IS_ARITHMETIC, IS_MEMORY = 0.4, 0.25


def precision(evidence: Evidence) -> str:
    """The numbers that the network multiplies: without mixed precision, torch's convolutions round to TF32."""
    amp = evidence.config.model.amp if evidence.config is not None else "off"
    if amp != "off":
        return amp
    return "tf32" if ceilings(evidence).get("tf32") else "fp32"


def ceilings(evidence: Evidence) -> dict[str, float]:
    """FLOP/s that the slowest GPU of the machine was measured to sustain, by precision; empty where it was not."""
    measured = evidence.profile.get("measured") or {}
    every = [gpu.get("matmul_flops") or {} for gpu in measured.get("gpus") or ()]
    names = {name for one in every for name, value in one.items() if value}
    return {name: min(one[name] for one in every if one.get(name)) for name in names}


def mfu(evidence: Evidence, model: Model, *, seconds: float) -> float | None:
    """The network's FLOP/s on one GPU, of its measured ceiling, when a step takes so long; None where not known."""
    flops, ceiling = evidence.plan.get("flops_per_sample"), ceilings(evidence).get(precision(evidence))
    if not flops or not ceiling or seconds <= 0 or model.costs.device != "cuda":
        return None
    return float(flops) * model.job.batch / model.job.world / seconds / ceiling


def kind(evidence: Evidence, model: Model) -> tuple[str, str | None]:
    """Whether computing is bound by arithmetic or by memory, and why that can't be told where it can't."""
    undecided = "arithmetic or memory bandwidth: not told apart because "
    if model.costs.device != "cuda":
        return "arithmetic", f"{undecided}neither is measured on a CPU"
    used = mfu(evidence, model, seconds=model.pace.seconds.get("compute", 0.0))
    if used is None:
        lacking = "the network's FLOPs" if ceilings(evidence) else "the GPU's ceiling (run: stoker doctor)"
        return "arithmetic", f"{undecided}{lacking} can't be found"
    if IS_MEMORY <= used < IS_ARITHMETIC:
        return "arithmetic", f"{undecided}{used:.0%} of the ceiling while it computes fits both"
    return ("arithmetic" if used >= IS_ARITHMETIC else "memory bandwidth"), None


def amp_choice(evidence: Evidence) -> str:
    """The precision to try: bf16, which needs no scaling, where the GPU has it."""
    found = ceilings(evidence)
    return "fp16" if found and not found.get("bf16") else "bf16"


def amp_speed_up(evidence: Evidence) -> tuple[float, float, float] | None:
    """How many times as fast mixed precision makes the arithmetic: likely, least and most. None where nothing says."""
    choice, found = amp_choice(evidence), ceilings(evidence)
    tried = evidence.tried.get(f"amp {choice}")
    if tried is not None:
        return tried, tried / 1.07, tried * 1.07
    if not found.get(choice) or not found.get(precision(evidence)):
        return None
    # Networks get to a part of what matrices do: half of the way, counted in factors.
    most = found[choice] / found[precision(evidence)]
    return (math.sqrt(most), 1.0, most) if most > 1 else None


def quicker(model: Model, times: float, *, is_whole: bool) -> float:
    """A step whose forward and backward pass, and where it is whole its update and launches, are so much faster."""
    costs = model.costs
    changed = {"sample_seconds": costs.sample_seconds / times}
    if is_whole:
        late = min(model.pace.seconds.get("host", 0.0), costs.host_seconds)
        changed["optimizer_seconds"] = costs.optimizer_seconds / times
        changed["host_seconds"] = costs.host_seconds - late + late / times
    return seconds_with(model, costs=changed)


def amp_text(evidence: Evidence, model: Model, *, wall_seconds: float, step_share: float) -> str:
    """What mixed precision could gain at all, in words. `step_share` is that of the steps in the wall clock."""
    amp = evidence.config.model.amp if evidence.config is not None else "off"
    now, step = predict.step(model.costs, model.job).seconds, model.pace.step_seconds
    free = seconds_with(model, costs={"atom_seconds": 0.0, "sample_seconds": 0.0})
    share = step_share * min(1.0, (now - free) / step)
    bound = f"even if forward and backward were free, the run would be {text(share)} as fast"
    computing = model.pace.seconds.get("compute", 0.0) / step * step_share
    shown = f"forward and backward are {computing:.0%} of {wall_seconds:,.0f} s"
    if amp != "off":
        return f"Mixed precision ({amp}) is on: {shown}, and {bound}."
    speed_up = amp_speed_up(evidence)
    if speed_up is None:
        how = "on this CPU only a trial can say" if model.costs.device == "cpu" else "no trial or profile says how much"
        return f"Mixed precision: {shown}; {bound}, which is the most it could gain ({how})."
    choice = amp_choice(evidence)
    is_tried = f"amp {choice}" in evidence.tried
    gains = [step_share * (now - quicker(model, times, is_whole=is_tried)) / step for times in speed_up]
    likely, low, high = (text(gain) for gain in gains)
    source = "as tried before the run" if is_tried else "by the GPU's measured ceilings"
    return f"Mixed precision: {shown}; {bound}. With {choice}, likely {likely} ({low} to {high}), {source}."


def text(share: float) -> str:
    """What it means to save a share of the time, in words."""
    return f"{1 / (1 - share):.2f} times" if share < 0.99 else "any number of times"
