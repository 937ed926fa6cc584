"""Run folders to compare, written as a run writes them; what is true of them is known, because it was put there."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stoker import runs, settings
from stoker.config import Config
from stoker.records import BUCKETS, Attempt, GaugeRow, LedgerRow, MetricRow
from stoker.runs import Run

NOW = 1_700_000_000.0
SETUP_SECONDS, EVAL_SECONDS = 10.0, 4.0
STEPS_AN_EPOCH = 20
FIXED = {"resolution": 64, "batch": 32, "atoms": 1, "compute_threads": 2, "epochs": 2, "data": "photos"}
PROFILE: dict[str, Any] = {
    "platform": "Linux-6.1-x86_64-with-glibc2.36", "torch": "2.10.0", "torch_cuda": "12.8", "cudnn": "9.10.2",
    "driver": "570.1", "gpus": [{"name": "Tesla V100"}] * 4, "cores": {"allotted": 8, "present": 8},
    "packages": {"timm": "1.0.30"},
}  # fmt: skip
CPU = {**PROFILE, "gpus": [], "driver": None, "torch_cuda": None, "cudnn": None}
CODE: dict[str, Any] = {"version": "0.1.0", "commit": "abc", "diff": "", "packages": {"timm": "1.0.30", "rich": "14.0"}}


def made(
    name: str,
    *,
    top1: Sequence[float] = (20.0, 50.0),
    step_seconds: float = 0.1,
    world: int = 1,
    status: Any = "done",
    why: str | None = None,
    profile: dict[str, Any] | None = PROFILE,
    code: dict[str, Any] | None = CODE,
    fingerprint: str = "f1",
    busy: Sequence[float] = (),
    **values: Any,
) -> Run:
    """A run of two epochs, each of twenty steps, which was evaluated after each of them."""
    config = settings.with_values(Config(), {**FIXED, "atoms": world, **values})
    run = runs.create(Path("runs") / name, config, resumed_from=None)
    if profile is not None:
        run.machine.write_text(json.dumps(profile))
    if code is not None:
        run.code.write_text(json.dumps(code))
    batch = config.train.batch
    assert batch != "auto"
    device = "cuda:0" if profile and profile["gpus"] else "cpu"
    wall = 0.0
    for rank in range(world):
        rows = ledger(top1, step_seconds, batch=batch, rank=rank, world=world, device=device)
        wall = sum(value or 0.0 for value in rows[-1].totals.values())
        for row in rows:
            runs.append_line(run.ledger_of(rank), row)
    for epoch, score in enumerate(top1, start=1):
        scores = {"loss": 1.0, "top1": score, "top5": min(2 * score, 100.0)}
        step = epoch * STEPS_AN_EPOCH
        runs.append_line(run.metrics, MetricRow(kind="train", epoch=epoch - 1, step=step, samples=batch, lr=0.1,
                                                scores={"loss": 1.1, "top1": score, "top5": score}))  # fmt: skip
        runs.append_line(run.metrics, MetricRow(kind="eval", epoch=epoch, step=step, samples=100, lr=None,
                                                scores=scores))  # fmt: skip
    for place, percent in enumerate(busy):
        runs.append_line(run.gauges_of(0), gauge(NOW + place, percent))
    ended_at = None if status == "running" else NOW + wall
    runs.update_record(
        run, status=status, why=why,
        attempts=(Attempt(started_at=NOW, host="h1", world=world, ended_at=ended_at, status=status),),
        data={"fingerprint": fingerprint, "train_samples": STEPS_AN_EPOCH * batch},
        result={"epoch": len(top1), "peak_memory_bytes": 3 << 30} if status == "done" else {},
    )  # fmt: skip
    return run


def ledger(
    top1: Sequence[float], step_seconds: float, *, batch: int = 32, rank: int = 0, world: int = 1, device: str = "cpu"
) -> list[LedgerRow]:
    """A line where training begins, two for each epoch, one for the last evaluation; a fifth of a step is waiting."""
    totals: dict[str, float | None] = dict.fromkeys(BUCKETS, 0.0) | {"setup": SETUP_SECONDS}
    rows: list[LedgerRow] = []

    def add(step: int, steps: int, evaluated: float) -> None:
        step_part = {"data_wait": 0.2 * steps * step_seconds, "compute": 0.8 * steps * step_seconds}
        seconds: dict[str, float | None] = {**step_part, "eval": evaluated}
        for bucket, value in seconds.items():
            totals[bucket] = (totals[bucket] or 0.0) + (value or 0.0)
        at = NOW + sum(value or 0.0 for value in totals.values())
        rows.append(LedgerRow(at=at, rank=rank, world=world, attempt=1, step=step, steps=steps, samples=steps * batch,
                              seconds=seconds, totals=dict(totals), read_seconds=0.0, decode_seconds=0.0,
                              device=device, host="h1", threads=2))  # fmt: skip

    add(0, 0, 0.0)
    half = STEPS_AN_EPOCH // 2
    for epoch in range(len(top1)):
        add(epoch * STEPS_AN_EPOCH + half, half, EVAL_SECONDS if epoch else 0.0)
        add((epoch + 1) * STEPS_AN_EPOCH, half, 0.0)
    add(len(top1) * STEPS_AN_EPOCH, 0, EVAL_SECONDS if top1 else 0.0)
    return rows


def gauge(at: float, percent: float) -> GaugeRow:
    """What a machine with eight cores, half of them busy, and one GPU showed."""
    unknown = dict.fromkeys(field.name for field in dataclasses.fields(GaugeRow))
    gpu = {"index": 0, "name": "V100", "busy_percent": percent, "memory_used_bytes": None, "memory_bytes": None,
           "power_w": None, "power_limit_w": None, "clock_mhz": None, "clock_max_mhz": None, "temperature_c": None,
           "throttle": None}  # fmt: skip
    known = {"at": at, "rank": 0, "host": "h1", "seconds": 1.0, "gpus": [gpu], "cpu_percent": 50.0, "version": 1}
    return GaugeRow(**{**unknown, **known})  # type: ignore[arg-type]
