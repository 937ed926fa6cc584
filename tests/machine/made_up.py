"""Runs that never were: ledgers whose bottleneck is known, because it was put there."""

from pathlib import Path
from typing import Any

from stoker import settings
from stoker.config import Config
from stoker.machine.evidence import Evidence
from stoker.records import BUCKETS, Attempt, LedgerRow, RunRecord

EIGHT_CORES = {"cores": {"allotted": 8, "present": 8, "limited_by": None}}


def ledger(
    step: dict[str, float | None],
    *,
    lines: int = 6,
    steps: int = 10,
    batch: int = 64,
    rank: int = 0,
    world: int = 1,
    device: str = "cuda:0",
    host: str = "h1",
    threads: int = 4,
    attempt: int = 1,
    setup: float = 1.0,
    warm_up: float = 0.0,
    lost: float = 0.0,
    read: float = 0.0,
    decode: float = 0.0,
    sent_bytes: int = 0,
    pure_seconds: float | None = None,
) -> tuple[LedgerRow, ...]:
    """Lines of steps that take so many seconds in each bucket; the first line ends where training begins."""
    unmeasured = {bucket for bucket, value in step.items() if value is None}
    totals = dict.fromkeys(BUCKETS, 0.0) | {"setup": setup, "lost": lost}
    found = []
    for number in range(lines + 1):
        count = steps if number else 0
        seconds = {bucket: count * (value or 0.0) for bucket, value in step.items()}
        if number == 1:
            seconds["compute"] = seconds.get("compute", 0.0) + warm_up
        totals |= {bucket: totals[bucket] + value for bucket, value in seconds.items()}
        known = {bucket: None if bucket in unmeasured else value for bucket, value in seconds.items()}
        found.append(
            LedgerRow(
                at=100.0 * attempt + number,
                rank=rank,
                world=world,
                attempt=attempt,
                step=number * steps,
                steps=count,
                samples=count * batch,
                seconds=known,
                totals={b: None if b in unmeasured else value for b, value in totals.items()},
                read_seconds=count * read,
                decode_seconds=count * decode,
                device=device,
                host=host,
                threads=threads,
                sent_bytes=sent_bytes,
                pure_seconds=pure_seconds,
            )
        )
    return tuple(found)


def evidence(
    *ledgers: tuple[LedgerRow, ...],
    profile: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
    status: Any = "stopped",
    folder: Path = Path("runs/slow"),
    **values: Any,
) -> Evidence:
    """All that is known of a run with these ledgers and settings."""
    config = settings.with_values(Config(), {"resolution": 224, "compute_threads": 2, "data": "photos", **values})
    record = RunRecord(
        status=status,
        attempts=(Attempt(started_at=0.0, host="h1", world=1),),
        data={"train_samples": 64_000, "train_bytes": 64_000 * 30_000} if data is None else data,
        result=result or {},
    )
    return Evidence(
        folder=folder,
        state=status,
        rows={rows[-1].rank: rows for rows in ledgers},
        record=record,
        config=config,
        profile=EIGHT_CORES if profile is None else profile,
        plan=plan or {},
    )


STARVED = {"data_wait": 0.3, "transfer": 0.01, "compute": 0.15, "optimizer": 0.01, "host": 0.01}


def starved(**changes: Any) -> tuple[LedgerRow, ...]:
    """A GPU that waits for four decode threads: they are busy all the time, and need 1.88 s for a step's samples."""
    return ledger(STARVED, **{"decode": 1.8, "read": 0.08, **changes})


def over_a_slow_link(hosts: tuple[str, str] = ("h1", "h2"), **changes: Any) -> tuple[tuple[LedgerRow, ...], ...]:
    """Two hosts without a GPU whose 102.5 MB of gradients need 9.1 of 9.4 seconds."""
    step = {"data_wait": 0.0, "compute": 0.28, "optimizer": 0.02, "comm": 9.1, "peer_wait": 0.0, "host": None}
    shared = {"world": 2, "device": "cpu", "sent_bytes": 102_500_000, "threads": 1, "decode": 0.01, **changes}
    return tuple(ledger(step, rank=rank, host=hosts[rank], **shared) for rank in range(2))


def with_a_slow_one(**changes: Any) -> tuple[tuple[LedgerRow, ...], ...]:
    """Three hosts, of which the last computes for twice as long."""
    quick = {"compute": 0.5, "optimizer": 0.02, "comm": 0.05, "peer_wait": 0.5, "host": 0.0, "data_wait": 0.0}
    slow = {**quick, "compute": 1.0, "peer_wait": 0.0}
    shared = {"world": 3, "sent_bytes": 1_000_000, **changes}
    return tuple(ledger(slow if rank == 2 else quick, rank=rank, host=f"h{rank + 1}", **shared) for rank in range(3))
