"""Accounts of runs that never were: what is true of them is known, because it was put there."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker import settings
from stoker.config import Config
from stoker.machine import verdict
from stoker.machine.evidence import Evidence
from stoker.records import Attempt, Event, GaugeRow, LedgerRow, MetricRow, RunRecord
from stoker.report import cost
from stoker.report.account import Account, Saved
from stoker.report.questions import Question, asked
from stoker.train import rates
from tests.machine.made_up import EIGHT_CORES, ledger

NOW = 1_700_000_000.0
STEP = {"data_wait": 0.01, "transfer": 0.01, "compute": 0.4, "optimizer": 0.05, "host": 0.01, "comm": 0.0}
DATA = {
    "train_samples": 6400, "train_bytes": 6400 * 30_000, "held_out_samples": 1000, "held_out": "a seeded 10%",
    "classes": 10, "fingerprint": "abc",
}  # fmt: skip
STEPS_AN_EPOCH = 100
Scores = list[tuple[float, float]]
KEYS = [
    "time", "trained", "overfitting", "gpus", "network", "schedule", "data", "checkpoint", "step", "traffic", "cost",
    "plan",
]  # fmt: skip
PARTS = {"model.safetensors": 94_000_000, "optimizer.safetensors": 94_000_000, "state.json": 1200}


def evaluation(epoch: int, loss: float | None, top1: float | None, *, samples: int = 1000) -> MetricRow:
    """The scores of held-out samples after an epoch."""
    scores: dict[str, Any] = {"loss": loss, "top1": top1}
    return MetricRow(kind="eval", epoch=epoch, step=epoch * STEPS_AN_EPOCH, samples=samples, lr=None, scores=scores)


def epoch_of_training(epoch: int, loss: float, top1: float, *, rate: Callable[[int], float]) -> list[MetricRow]:
    """Two lines of training in an epoch, which is counted from 1; the second has three times as many samples."""
    begin = (epoch - 1) * STEPS_AN_EPOCH
    return [
        MetricRow(
            kind="train", epoch=epoch - 1, step=begin + steps, samples=samples, lr=rate(begin + steps - 1),
            scores={"loss": loss + off, "top1": top1},
        )
        for steps, samples, off in ((25, 1600, 0.03), (100, 4800, -0.01))
    ]  # fmt: skip


def learned(
    held: Sequence[tuple[float, float]], trained: Sequence[tuple[float, float]] | None = None, *, config: Config
) -> dict[str, tuple[MetricRow, ...]]:
    """The lines of a run with these losses and accuracies after its epochs, and the rates of its settings."""

    def rate(tick: int) -> float:
        share = rates.shape(config.optim, tick=tick, steps_an_epoch=STEPS_AN_EPOCH, epochs=config.train.epochs)
        return rates.peak_rate(config.optim, batch=64) * share

    pairs = trained if trained is not None else [(loss + 0.1, top1 - 1) for loss, top1 in held]
    lines = [epoch_of_training(epoch, *pair, rate=rate) for epoch, pair in enumerate(pairs, start=1)]
    return {
        "evaluations": tuple(evaluation(epoch, *pair) for epoch, pair in enumerate(held, start=1)),
        "training": tuple(row for each in lines for row in each),
    }


def gauge(at: float, traffic: float | None, *, seconds: float = 5.0, rank: int = 0, **values: Any) -> GaugeRow:
    """A reading of a machine that sends and receives so many bytes a second together."""
    network = {"eth0": {"sent_bytes_per_second": traffic, "received_bytes_per_second": 0.0}}
    return GaugeRow(
        at=at, rank=rank, host=f"h{rank + 1}", seconds=seconds, network=network,
        **{
            "gpus": None, "cpu_percent": 80.0, "process_cpu_percent": 60.0, "memory_used_bytes": None,
            "memory_available_bytes": None, "disk_read_bytes_per_second": None, "disk_write_bytes_per_second": None,
            "process_read_bytes_per_second": None, "iowait_percent": None, **values,
        },
    )  # fmt: skip


def busy_gpu(percent: float, **values: Any) -> dict[str, Any]:
    """A GPU as a reading shows it."""
    return {
        "index": 0, "name": "V100", "busy_percent": percent, "memory_used_bytes": None, "memory_bytes": None,
        "power_w": None, "power_limit_w": None, "clock_mhz": None, "clock_max_mhz": None, "temperature_c": None,
        "throttle": None, **values,
    }  # fmt: skip


def in_time(rows: Sequence[LedgerRow], *, begin: float = NOW) -> tuple[LedgerRow, ...]:
    """The same lines, each written when its steps were over."""
    found, at = [], begin
    for row in rows:
        at += sum(value or 0.0 for value in row.seconds.values())
        found.append(replace(row, at=at))
    return tuple(found)


def settings_of(**values: Any) -> Config:
    """Settings of a run, with all that is left to Stoker."""
    given = {"resolution": 224, "batch": 64, "atoms": 1, "compute_threads": 2, "data": "photos", "epochs": 10}
    return settings.with_values(Config(), {**given, **values})


def account(
    *ledgers: tuple[LedgerRow, ...],
    config: Config | None,
    status: Any = "done",
    state: str | None = None,
    attempts: tuple[Attempt, ...] | None = None,
    gauges: tuple[GaugeRow, ...] = (),
    opened: dict[str, Any] | None = None,
    why: str | None = None,
    pack_seconds: float | None = None,
    **values: Any,
) -> Account:
    """The account of a run with these ledgers and settings, as it would be gathered."""
    whole = Attempt(started_at=NOW, host="h1", world=len(ledgers) or 1, ended_at=NOW + 600, status=status)
    record = RunRecord(status=status, attempts=attempts or (whole,), data=DATA if opened is None else opened, why=why)
    found = Evidence(
        folder=Path("runs/one"), state=state or status, rows={rows[-1].rank: rows for rows in ledgers if rows},
        gauges=gauges, record=record, config=config, profile=EIGHT_CORES,
    )  # fmt: skip
    steps = STEPS_AN_EPOCH * config.train.epochs if config is not None else None
    return Account(
        name="one", at=NOW + 1000, evidence=found, verdict=verdict.judge(found), steps=steps,
        cost=cost.of(found, pack_seconds=pack_seconds, now=NOW + 1000),
        **{"checkpoints": (Saved(step=1000, at=NOW, parts=PARTS, names=("latest", "best")),), **values},
    )  # fmt: skip


def plain(
    held: Sequence[tuple[float, float]], trained: Sequence[tuple[float, float]] | None = None, **values: Any
) -> Account:
    """A run of one process with these losses and accuracies after its epochs; it is done, unless it is told else."""
    keys = {name for group in vars(Config()).values() for name in vars(group)}
    config = settings_of(**{"epochs": len(held), **{name: values.pop(name) for name in keys & values.keys()}})
    rows = in_time(ledger(STEP, lines=len(held) * 2, steps=50))
    return account(rows, config=config, **{**learned(held, trained, config=config), **values})


def empty() -> Account:
    """A folder in which nothing can be read."""
    found = Evidence(folder=Path("runs/none"), state="not known: record.json can't be read", rows={})
    return Account(
        name="none", at=NOW, evidence=found, verdict=verdict.judge(found),
        cost=cost.of(found, pack_seconds=None, now=NOW),
    )  # fmt: skip


def unreadable(path: str) -> Event:
    """An event of a sample that could not be read."""
    return Event(at=NOW, kind="unreadable", what=f"{path}: torn; the next readable sample takes its place")


def wobble(number: int) -> float:
    """A little noise that is the same every time."""
    return math.sin(7.0 * number) / 100


def curve(epochs: int, *, pace: float, loss: float = 0.5, top1: float = 90.0) -> Scores:
    """Losses and accuracies that come near to their ends, the faster the higher the pace."""
    left = [math.exp(-pace * epoch) for epoch in range(1, epochs + 1)]
    return [(loss + 2 * rest + wobble(n) / 10, top1 - 80 * rest + wobble(n)) for n, rest in enumerate(left)]


CONVERGED = curve(20, pace=0.7)
IMPROVING = curve(10, pace=0.1)
TRAINING = [(max(2.5 - 0.15 * epoch, 0.05), 10 + 4.0 * epoch) for epoch in range(1, 21)]
OVERFITTED = [(abs(epoch - 8) * 0.1 + 1 + wobble(epoch), min(40 + 5.0 * epoch, 80)) for epoch in range(1, 21)]


def answers(found: Account) -> dict[str, Question]:
    """Every answer by its key; all questions come, in their order."""
    given = asked(found)
    assert [question.key for question in given] == KEYS
    for question in given:
        assert question.answer.startswith("Can't tell: ") != question.is_known
        assert question.answer.endswith(".") and question.asked.endswith("?")
        assert all(line and "None" not in line and "nan" not in line for line in (*question.evidence, question.answer))
    return {question.key: question for question in given}


def told(question: Question, part: str) -> bool:
    """Whether a line of the evidence says something."""
    return any(part in line for line in question.evidence)
