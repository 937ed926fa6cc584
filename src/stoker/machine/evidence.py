"""What a run has left behind that tells where its time went: read from its files, whatever state they are in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker import lines, locks, records, runs, settings
from stoker.config import Config
from stoker.errors import Problem
from stoker.machine import intervals
from stoker.machine.usage import Usage, means
from stoker.records import GaugeRow, LedgerRow, RunRecord, Seconds

# Fewer steps than this say more about the start than about the run.
ENOUGH_STEPS = 20
# What a step is made of; checkpoints and evaluations come now and then.
STEP_BUCKETS = ("data_wait", "transfer", "compute", "host", "comm", "peer_wait", "optimizer", "logging", "other")
# Lines of a file that are read, where there are more: enough for every chart, and read in a moment.
MOST_ROWS = 4000


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known of a run, as it was found."""

    folder: Path
    state: str
    """what the run is doing, in words"""
    rows: dict[int, tuple[LedgerRow, ...]]
    """the ledger of each process; a long one over longer intervals than it was written"""
    gauges: tuple[GaugeRow, ...] = ()
    """of all processes; many are thinned"""
    record: RunRecord | None = None
    config: Config | None = None
    """the settings, with those that were left to Stoker"""
    profile: dict[str, Any] = field(default_factory=dict)
    """the machine of the last start; empty where it is not known"""
    plan: dict[str, Any] = field(default_factory=dict)
    """what was tried and predicted before the run"""
    packed: dict[str, Any] | None = None
    """how the data was packed; None where it is no pack, or out of reach"""
    missing: tuple[str, ...] = ()
    """what could not be read, and what to do about it"""

    @property
    def world(self) -> int:
        """processes of the last start"""
        return max((rows[-1].world for rows in self.rows.values()), default=1)

    @property
    def totals(self) -> Seconds:
        """seconds of the whole run by bucket, as the first process counts them"""
        return self.rows[min(self.rows)][-1].totals if self.rows else {}

    @property
    def steps(self) -> int:
        """steps that the ledger tells of"""
        return sum(row.steps for row in self.rows[min(self.rows)]) if self.rows else 0

    @property
    def is_done(self) -> bool:
        """whether the run has come to its end"""
        return self.record is not None and self.record.status == "done"

    @property
    def tried(self) -> dict[str, float]:
        """speed-ups of a step that were measured before the run, by setting"""
        found = self.plan.get("tried")
        known = found.items() if isinstance(found, dict) else ()
        return {name: float(gain) for name, gain in known if gain and records.fits(gain, float)}


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What a step takes a process once it is under way."""

    rank: int
    host: str
    device: str
    steps: int
    """that this is a mean over"""
    batch: float
    """samples of a step, over all processes"""
    seconds: dict[str, float]
    """of a step, by bucket; what was not measured is not there"""
    now_and_then: dict[str, float]
    """seconds of checkpoints and evaluations, as a step's part of them"""
    read_seconds: float
    """of all decode threads together"""
    decode_seconds: float
    threads: int
    """that decode; 0 where it is not known"""
    sent_bytes: int
    pure_seconds: float | None
    crowd_seconds: float = 0.0
    """of a step, that writing checkpoints on the network's own cores has taken from it; counted as checkpoints"""

    @property
    def step_seconds(self) -> float:
        """a step from its start to the next one's"""
        return sum(self.seconds.values())

    @property
    def whole_seconds(self) -> float:
        """a step with its part of checkpoints and evaluations"""
        return self.step_seconds + sum(self.now_and_then.values())


def gather(run: runs.Run) -> Evidence:
    """Everything that a run's files say about its time. What is not there or can't be read is listed as missing."""
    missing: list[str] = []
    rows: dict[int, tuple[LedgerRow, ...]] = {}
    for rank, path in ranked(run.folder, "ledger"):
        ledger = lines.sampled(path, LedgerRow, MOST_ROWS, apart=intervals.apart)
        missing += ledger.told
        if ledger.rows:
            rows[rank] = intervals.widened(ledger.rows) if ledger.is_thinned else ledger.rows
    shown = [lines.sampled(path, GaugeRow, MOST_ROWS) for _, path in ranked(run.folder, "gauges")]
    missing += [told for found in shown for told in found.told]
    gauges = tuple(row for found in shown for row in found.rows)
    # Of an earlier start with more processes, files are left that nobody writes to now.
    world = max(rows.values(), key=lambda mine: mine[-1].at)[-1].world if rows else 1
    rows = {rank: mine for rank, mine in rows.items() if rank < world}
    if rows and len(rows) < world:
        missing.append(f"the ledgers of {world - len(rows)} of {world} processes: bring their files into {run.folder}")
    record = config = None
    try:
        record = records.read_record(run.record)
    except (OSError, ValueError, RecursionError, Problem) as error:
        missing.append(f"what became of the run, because {reason(error)}")
    try:
        config = settings.with_values(runs.read_config(run), record.fixed if record is not None else {})
    except (ValueError, RecursionError, Problem) as error:
        missing.append(f"the settings, because {reason(error)}")
    profile, plan = read_json(run.machine, missing), read_json(run.plan, missing)
    return Evidence(
        folder=run.folder,
        state=state_text(run, record),
        rows=rows,
        gauges=gauges,
        record=record,
        config=config,
        profile=profile,
        plan=plan,
        packed=packed(config) if config is not None else None,
        missing=tuple(missing),
    )


def ranked(folder: Path, name: str) -> list[tuple[int, Path]]:
    """The files of lines that each process has written: ledger.jsonl, ledger.1.jsonl, ..."""
    found = [(0, folder / f"{name}.jsonl")] if (folder / f"{name}.jsonl").exists() else []
    numbered = {path: path.name.split(".")[1] for path in folder.glob(f"{name}.*.jsonl")}
    return sorted([*found, *((int(rank), path) for path, rank in numbered.items() if rank.isdigit())])


def packed(config: Config) -> dict[str, Any] | None:
    """How the data was packed; None where it is no pack, or out of reach."""
    made = read_json(Path(config.data.data) / "pack.json").get("made")
    return made if isinstance(made, dict) else None


def reason(error: Exception) -> str:
    """Why something can't be read."""
    return error.what if isinstance(error, Problem) else str(error)


def read_json(path: Path, missing: list[str] | None = None) -> dict[str, Any]:
    """A file of JSON; empty where it is not there. What can't be read or holds something else is told as missing."""
    try:
        found = json.loads(path.read_bytes())
        if isinstance(found, dict):
            return found
        why = "it holds something else"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        why = f"it can't be read: {error}"
    if missing is not None:
        missing.append(f"{path.name}, because {why}")
    return {}


def state_text(run: runs.Run, record: RunRecord | None) -> str:
    """What a run is doing, in words."""
    if record is None:
        return "not known: record.json can't be read"
    if record.status == "running":
        return "running" if locks.is_held(run.lock) else "killed; the same command again goes on"
    return f"{record.status}: {record.why}" if record.why else record.status


def steady(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """The lines to judge steps by: of the last start that has enough of them, without its first if it can be spared."""
    for attempt in sorted({row.attempt for row in rows}, reverse=True):
        mine = [row for row in rows if row.attempt == attempt and row.steps > 0]
        if sum(row.steps for row in mine) >= ENOUGH_STEPS:
            later = mine[1:]
            return later if sum(row.steps for row in later) >= ENOUGH_STEPS else mine
    return [row for row in rows if row.steps > 0]


def pace(rows: Sequence[LedgerRow]) -> Pace | None:
    """What a step takes a process; None where no step was written down."""
    # What more or fewer processes took says little about these.
    rows = [row for row in rows if row.world == rows[-1].world]
    chosen = steady(rows)
    if not chosen:
        return None
    last, steps = chosen[-1], sum(row.steps for row in chosen)
    seconds = {
        bucket: sum(row.seconds.get(bucket) or 0.0 for row in chosen) / steps
        for bucket in STEP_BUCKETS
        if any(row.seconds.get(bucket) is not None for row in chosen)
    }
    # The first line of a start ends where training begins: the checkpoint in it is not one of those that come again.
    begun = [row for row in rows if row.attempt == last.attempt]
    begun = begun[1:] if begun[0].steps == 0 else begun
    all_steps = max(1, sum(row.steps for row in begun))
    now_and_then = {b: sum(row.seconds.get(b) or 0.0 for row in begun) / all_steps for b in ("checkpoint", "eval")}
    crowd = 0.0
    if not last.device.startswith("cuda"):
        # A second of writing takes a second of computing: 1.02 on two ARM cores (docs/benchmarks.md).
        crowd = sum(row.write_seconds for row in chosen) / steps
        crowd = min(crowd, seconds.get("compute", 0.0) / 2)
        seconds["compute"] = seconds.get("compute", 0.0) - crowd
        now_and_then["checkpoint"] += crowd
    pure = [row.pure_seconds for row in chosen if row.pure_seconds is not None]
    return Pace(
        rank=last.rank,
        host=last.host,
        device=last.device,
        steps=steps,
        batch=sum(row.samples for row in chosen) / steps,
        seconds=seconds,
        now_and_then=now_and_then,
        read_seconds=sum(row.read_seconds for row in chosen) / steps,
        decode_seconds=sum(row.decode_seconds for row in chosen) / steps,
        threads=last.threads,
        sent_bytes=last.sent_bytes,
        pure_seconds=pure[-1] if pure else None,
        crowd_seconds=crowd,
    )


def paces(evidence: Evidence) -> tuple[Pace, ...]:
    """What a step takes each process."""
    found = [pace(rows) for _, rows in sorted(evidence.rows.items())]
    return tuple(one for one in found if one is not None)


def usage(evidence: Evidence) -> Usage:
    """What the gauges showed while steps were taken, or at all where none tell of that time."""
    first = min((rows_of[0].at for rows in evidence.rows.values() if (rows_of := steady(rows))), default=0.0)
    return means([row for row in evidence.gauges if row.at >= first] or list(evidence.gauges))
