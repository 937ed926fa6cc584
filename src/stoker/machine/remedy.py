"""One thing to do about a slow run: what it is, what it gains, and the command that does it. Pure."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.machine import predict
from stoker.machine.calibration import Model
from stoker.machine.evidence import Evidence

# Less than this is within the noise of most machines.
LEAST_GAIN = 1.03


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Something to do, and what it is predicted to gain: of steps with their checkpoints and evaluations."""

    what: str
    why: str
    command: str
    gain: float
    """how many times as fast"""
    low: float
    high: float
    is_lossy: bool = False
    """whether it may change what is learned"""
    needs_new_run: bool = False
    """whether it changes the result, so that it can't go on with this run"""


def predicted(
    model: Model,
    likely: float,
    *,
    what: str,
    why: str,
    command: str,
    fast: float | None = None,
    slow: float | None = None,
    unsure: float = 0.1,
    is_input: bool = False,
    is_lossy: bool = False,
    needs_new_run: bool = False,
) -> Remedy:
    """A remedy with which a step takes `likely` seconds in the place of the model's, between `fast` and `slow`.

    What makes samples come sooner does so in evaluations, too.
    """
    step, whole = predict.step(model.costs, model.job).seconds, model.pace.whole_seconds
    scored = model.pace.now_and_then.get("eval", 0.0) / step if is_input and step > 0 else 0.0

    def left(seconds: float) -> float:
        return max(whole - step + seconds - scored * (step - seconds), 1e-9)

    after = left(likely)
    # The error is a share of what goes or of what stays, whichever is less.
    error = unsure * min(abs(whole - after), after)
    shortest, longest = after - error, after + error
    if fast is not None:
        shortest = min(shortest, left(fast))
    if slow is not None:
        longest = max(longest, left(slow))
    gain, high, low = (whole / seconds for seconds in (after, shortest, longest))
    return Remedy(
        what=what,
        why=why,
        command=command,
        gain=gain,
        low=min(low, gain),
        high=max(high, gain),
        is_lossy=is_lossy,
        needs_new_run=needs_new_run,
    )


def seconds_with(model: Model, *, costs: dict[str, Any] | None = None, job: dict[str, Any] | None = None) -> float:
    """A step with some costs or some of the job other than they are."""
    changed, other = dataclasses.replace(model.costs, **costs or {}), dataclasses.replace(model.job, **job or {})
    return predict.step(changed, other).seconds


def command(evidence: Evidence, flags: dict[str, Any], *, is_new: bool) -> str:
    """What to type: to go on with the run, or to begin another where it is over or its result would change."""
    folder = evidence.folder if evidence.folder.parent != Path() else evidence.folder.resolve()
    name = f"{folder}-{'-'.join(flags)}" if is_new or evidence.is_done else str(folder)
    words = [*launcher(evidence), "train", "--config", str(folder / "config.json"), "--name", name]
    for flag, value in flags.items():
        words += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    return shlex.join(words)


def elsewhere(evidence: Evidence) -> str:
    """What to type to see what other machines would take."""
    return shlex.join(
        [
            "stoker",
            "plan",
            "--config",
            str(evidence.folder / "config.json"),
            "--machines",
            "this,g6.xlarge,p4d.24xlarge",
        ]
    )


def launcher(evidence: Evidence) -> list[str]:
    """How the processes of a run are started."""
    if evidence.world == 1:
        return ["stoker"]
    hosts = [rows[-1].host for _, rows in sorted(evidence.rows.items())]
    nodes = len(set(hosts)) if all(hosts) else 1
    each = str(-(-evidence.world // nodes))
    there = []
    if nodes > 1:
        there = ["--nnodes", str(nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts[0]}:29400"]
    return ["torchrun", *there, "--nproc-per-node", each, "-m", "stoker"]
