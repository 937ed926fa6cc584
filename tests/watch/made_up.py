"""Run folders that were never trained, written as a run writes them."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker import locks, records, runs, settings
from stoker.config import Config
from stoker.records import BUCKETS, INTERVAL_BUCKETS, Attempt, Event, GaugeRow, LedgerRow, MetricRow, RunRecord
from stoker.runs import Run

NOW = 1_800_000_000.0
# 100 samples in steps of 10: ten steps an epoch, of ten epochs.
SAMPLES, BATCH, EPOCHS = 100, 10, 10


def made(folder: Path, *, status: str = "done", steps: int = 0, attempts: int = 1, **record: Any) -> Run:
    """A run of so many steps, with a line for every second one and an evaluation after every epoch."""
    run = Run(folder)
    run.checkpoints.mkdir(parents=True)
    config = settings.with_values(Config(), {"batch": BATCH, "epochs": EPOCHS, "resolution": 32, "atoms": 1})
    runs.write_whole(run.config, settings.as_json(config))
    write_record(run, status=status, attempts=attempts, **record)
    train(run, 0, steps)
    return run


def write_record(run: Run, *, status: str, attempts: int = 1, **changes: Any) -> None:
    tried = tuple(Attempt(started_at=NOW - 100, host="box", world=1) for _ in range(attempts))
    data = {"train_samples": SAMPLES, "held_out_samples": 20, "classes": 10, "train_bytes": 1000}
    record = RunRecord(status=status, attempts=tried, **{"data": data, **changes})  # type: ignore[arg-type]
    runs.write_whole(run.record, json.dumps(dataclasses.asdict(record)))


def train(run: Run, begin: int, end: int, *, attempt: int = 1) -> None:
    """Write down the steps between two."""
    for step in range(begin + 2, end + 1, 2):
        runs.append_line(run.ledger, spent(step, attempt=attempt))
        runs.append_line(run.metrics, scored(step))
        if step % 10 == 0:
            runs.append_line(run.metrics, evaluated(step))


def spent(step: int, *, steps: int = 2, attempt: int = 1, seconds: float = 0.1, rank: int = 0) -> LedgerRow:
    """A line of the ledger: a tenth of the time goes by waiting for data."""
    part = {
        **dict.fromkeys(INTERVAL_BUCKETS, 0.0),
        "data_wait": 0.1 * seconds * steps,
        "compute": 0.9 * seconds * steps,
    }
    totals = {bucket: part.get(bucket, 0.0) * step / steps for bucket in BUCKETS}
    return LedgerRow(
        at=NOW + step * seconds, rank=rank, world=1, attempt=attempt, step=step, steps=steps, samples=BATCH * steps,
        seconds=part, totals=totals, read_seconds=0.0, decode_seconds=0.0, device="cpu", host="box", threads=1,
    )  # fmt: skip


def scored(step: int) -> MetricRow:
    scores = {"loss": 2.0 / (1 + step / 10), "top1": float(min(step, 90)), "top5": 95.0}
    return MetricRow(kind="train", epoch=(step - 1) // 10, step=step, samples=BATCH * 2, lr=0.1, scores=scores)


def evaluated(step: int) -> MetricRow:
    scores = {"loss": 2.5 / (1 + step / 10), "top1": float(min(step, 90)) / 2, "top5": 90.0}
    return MetricRow(kind="eval", epoch=step // 10, step=step, samples=20, lr=None, scores=scores)


def gauged(at: float, *, gpus: list[dict[str, Any]] | None = None, host: str = "box", **others: Any) -> GaugeRow:
    return GaugeRow(**{
        "at": at, "rank": 0, "host": host, "seconds": 1.0, "gpus": gpus, "cpu_percent": 50.0,
        "process_cpu_percent": 40.0, "memory_used_bytes": 1 << 30, "memory_available_bytes": 3 << 30,
        "disk_read_bytes_per_second": 1000.0, "disk_write_bytes_per_second": None,
        "process_read_bytes_per_second": None,
        "network": {"eth0": {"sent_bytes_per_second": 10.0, "received_bytes_per_second": 20.0}}, "iowait_percent": 0.0,
        **others,
    })  # fmt: skip


def told(run: Run, kind: str, what: str) -> None:
    runs.append_line(run.events, Event(at=NOW, kind=kind, what=what))


@contextlib.contextmanager
def training(run: Run) -> Iterator[None]:
    """Hold the lock of a run, as the process does that trains it."""
    with locks.held(run.lock):
        yield


def text(row: Any) -> bytes:
    return records.line(row).encode() + b"\n"
