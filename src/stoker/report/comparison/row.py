"""One run as a row of figures that can be set beside those of others. Pure: account -> row."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker import records, settings
from stoker.config import Config
from stoker.machine import evidence
from stoker.machine.evidence import Evidence, Pace
from stoker.machine.usage import Spread
from stoker.report import cost as costs
from stoker.report import summary, surroundings
from stoker.report.account import Account
from stoker.report.comparison import likeness
from stoker.report.comparison import target as targets
from stoker.report.surroundings import Software

DTYPES = {"off": "fp32"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run: what was asked for, and what came of it. What was not measured is None."""

    name: str
    folder: str | None
    """None for figures that somebody reported"""
    status: str
    """running, killed, stopped, done, diverged, oom, timeout, failed, or unreadable"""
    why: str | None = None
    """what ended it, where it is not done; what can't be read"""
    is_reported: bool = False
    machine: str | None = None
    device: str | None = None
    """what computed: the GPU's name, or CPU and its cores"""
    cpu: str | None = None
    """the one beside the GPUs, which makes samples ready, and its cores"""
    processes: int | None = None
    hosts: int | None = None
    data: str | None = None
    """the fingerprint of what it learned from"""
    model: str | None = None
    batch: int | None = None
    """samples of a step, over all processes (of the last stage)"""
    atom: float | None = None
    """samples that go through the network together"""
    dtype: str | None = None
    resolution: int | None = None
    epochs_asked: int | None = None
    seed: int | None = None
    epochs: int | None = None
    """whole ones that were trained"""
    top1_percent: float | None = None
    """of the best evaluation"""
    top5_percent: float | None = None
    """of the same evaluation"""
    last_top1_percent: float | None = None
    seconds_per_epoch: float | None = None
    """at its pace under way, evaluation and checkpoints included"""
    samples_per_second: float | None = None
    """of training under way, over all processes, without evaluation and checkpoints"""
    gpu_busy_percent: Spread | None = None
    cpu_percent: Spread | None = None
    """100 is one core kept busy, as top counts"""
    peak_memory_bytes: float | None = None
    """of the first process: on its GPU, or all of it where there is none"""
    data_wait_share: float | None = None
    """of a step under way, in which the training thread waited for samples"""
    wall_seconds: float | None = None
    """from the first start on, with the time in which the run was down"""
    lost_seconds: float | None = None
    dollars: float | None = None
    target_seconds: float | None = None
    """of the wall clock, until the first evaluation that reached the target was over"""
    target_dollars: float | None = None
    limit: str | None = None
    """what limits the run"""
    software: Software = Software()
    settings: dict[str, Any] = field(default_factory=dict)
    """of those that have no column; in a comparison, the ones that differ"""
    alike: str | None = None
    """the same for runs that are repeats of each other; None where that is not known"""
    missing: tuple[str, ...] = ()
    """what could not be read"""


# Settings that have a column, or that say where things are and not what they are.
SHOWN = ("model", "batch", "atoms", "amp", "resolution", "epochs", "seed", "data", "compute_threads", "mean", "std")


def row(account: Account, *, target: float | None, dollars_per_hour: float | None) -> Row:
    """What a run's account says in the figures of a comparison."""
    found, config = account.evidence, account.evidence.config
    status, device, cpu = status_of(account), surroundings.device_of(found), surroundings.cpu_of(found.profile)
    return Row(
        name=account.name,
        folder=str(account.folder),
        status=status,
        why=why_of(account, status),
        machine=surroundings.machine_of(found),
        device=device,
        cpu=cpu if cpu != device else None,
        processes=processes_of(found),
        hosts=len({rows[-1].host for rows in found.rows.values() if rows[-1].host}) or None,
        data=surroundings.text(found.record.data.get("fingerprint")) if found.record is not None else None,
        limit=account.verdict.limit,
        software=surroundings.software_of(account),
        settings={} if config is None else others(config),
        alike=likeness.key(account, device=device) if status == "done" else None,
        missing=account.missing,
        **({} if config is None else asked(config)),
        **learned(account),
        **used(account),
        **spent(account, target=target, dollars_per_hour=dollars_per_hour),
    )


def learned(account: Account) -> dict[str, Any]:
    """How far a run came, and how good it was."""
    scored = [one for one in account.evaluations if one.scores.get("top1") is not None]
    best, last = max(scored, key=summary.rank, default=None), next(reversed(account.evaluations), None)
    return {
        "epochs": epochs_of(account),
        "top1_percent": best.scores.get("top1") if best is not None else None,
        "top5_percent": best.scores.get("top5") if best is not None else None,
        "last_top1_percent": last.scores.get("top1") if last is not None else None,
    }


def used(account: Account) -> dict[str, Any]:
    """How fast a run was, and what it used of the machine."""
    found, usage = account.evidence, evidence.usage(account.evidence)
    pace = next(iter(evidence.paces(found)), None)
    memory = found.record.result.get("peak_memory_bytes") if found.record is not None else None
    return {
        "seconds_per_epoch": epoch_seconds(account, pace),
        "samples_per_second": pace.batch / step_seconds(pace) if pace and step_seconds(pace) > 0 else None,
        "gpu_busy_percent": usage.gpu_busy_percent,
        "cpu_percent": in_cores(usage.cpu_percent, found.profile),
        "peak_memory_bytes": memory if records.fits(memory, float) else None,
        "data_wait_share": wait_share(pace),
    }


def spent(account: Account, *, target: float | None, dollars_per_hour: float | None) -> dict[str, Any]:
    """What a run took, in all and until it was as good as the target."""
    cost = costs.offered(account.cost, dollars_per_hour)
    reached = targets.reached(account, target) if target is not None else None
    return {
        "wall_seconds": account.verdict.wall_seconds or None,
        "lost_seconds": cost.lost_seconds,
        "dollars": cost.so_far_dollars,
        "target_seconds": reached.wall_seconds if reached is not None else None,
        "target_dollars": reached.dollars(cost) if reached is not None else None,
    }


def others(config: Config) -> dict[str, Any]:
    """The settings without a column of their own that change what is learned, or how fast."""
    found = (
        s for s in settings.listed(config)
        if s.is_identity or s.part == "loader" or s.name in likeness.OPERATIONAL
    )  # fmt: skip
    return {setting.name: setting.value for setting in found if setting.name not in SHOWN}


def unread(folder: Path, why: str) -> Row:
    """The row of a run of which nothing can be said but why."""
    return Row(name=folder.name, folder=str(folder), status="unreadable", why=why)


def asked(config: Config) -> dict[str, Any]:
    """What was asked for."""
    batch = config.train.batch if config.train.batch != "auto" else None
    return {
        "model": config.model.model,
        "batch": batch,
        "atom": batch / config.train.atoms if batch and config.train.atoms else None,
        "dtype": DTYPES.get(config.model.amp, config.model.amp),
        "resolution": config.image.resolution or None,
        "epochs_asked": config.train.epochs,
        "seed": config.train.seed,
    }


def status_of(account: Account) -> str:
    """What became of a run, in one word."""
    state = summary.state(account)
    return "unreadable" if state == "not known" else state


def why_of(account: Account, status: str) -> str | None:
    """What ended a run, or what can't be read of it."""
    record = account.evidence.record
    if status == "killed":
        return account.evidence.state
    if status == "unreadable":
        return "; ".join((account.evidence.state, *account.missing))
    unreadable = "; ".join(account.missing) if account.evidence.config is None else None
    return (record.why if record is not None else None) or unreadable


def processes_of(found: Evidence) -> int | None:
    """Processes of the last start."""
    if found.rows:
        return found.world
    return found.record.attempts[-1].world if found.record is not None and found.record.attempts else None


def epochs_of(account: Account) -> int | None:
    """Whole epochs that were trained."""
    record = account.evidence.record
    if record is not None and record.status != "running" and records.fits(record.result.get("epoch"), int):
        return int(record.result["epoch"])
    # A line of training has the number of epochs before its own; an evaluation, of those before it.
    rows = (*account.training[-1:], *account.evaluations[-1:])
    return max((one.epoch for one in rows), default=0 if account.evidence.rows else None)


def step_seconds(pace: Pace) -> float:
    """A step, with what writing checkpoints on the same cores takes from it."""
    return pace.step_seconds + pace.crowd_seconds


def epoch_seconds(account: Account, pace: Pace | None) -> float | None:
    """An epoch at the pace of the run, with its evaluation and checkpoints."""
    found = account.evidence
    samples: Any = found.record.data.get("train_samples") if found.record is not None else None
    if pace is None or not pace.batch or not records.fits(samples, int):
        return None
    steps: float = samples / pace.batch
    if account.steps and found.config is not None and not found.config.train.stages:
        steps = account.steps / found.config.train.epochs
    return steps * pace.whole_seconds


def wait_share(pace: Pace | None) -> float | None:
    """The share of a step that goes into waiting for samples."""
    if pace is None or "data_wait" not in pace.seconds or step_seconds(pace) <= 0:
        return None
    return pace.seconds["data_wait"] / step_seconds(pace)


def in_cores(share: Spread | None, profile: dict[str, Any]) -> Spread | None:
    """A share of the allotted cores as one where 100 is a core."""
    cores = surroundings.cores_of(profile)
    if share is None or cores is None:
        return None
    return Spread(mean=share.mean * cores, least=share.least * cores, most=share.most * cores)
