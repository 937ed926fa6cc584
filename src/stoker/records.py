"""What is written down: one dataclass for each kind of line or file, each with a version.

Stages meet only in these records: whoever reads a run needs nothing of what wrote it.
"""

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from stoker.errors import Problem

Row = TypeVar("Row")
Status = Literal["running", "stopped", "done", "diverged", "oom", "timeout", "failed"]

# Per interval and rank; then per run. Together they are the wall clock.
INTERVAL_BUCKETS = (
    "data_wait", "transfer", "compute", "host", "comm", "peer_wait",
    "optimizer", "checkpoint", "eval", "logging", "other",
)  # fmt: skip
RUN_BUCKETS = ("setup", "compile", "restore", "lost", "rollback", "down")
BUCKETS = INTERVAL_BUCKETS + RUN_BUCKETS
Seconds = dict[str, float | None]
"""seconds by bucket; None is "not measured", never 0"""


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """A line of metrics.jsonl: what was learned. It holds no times, so that a resumed run writes the same bytes."""

    kind: Literal["train", "eval"]
    epoch: int
    step: int
    samples: int
    """samples these scores are a mean over"""
    lr: float | None
    """rate of the last step; None for an evaluation"""
    scores: dict[str, float]
    version: int = 1


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """A line of ledger.jsonl: where the time of some steps went, and of the whole run up to here."""

    at: float
    rank: int
    world: int
    attempt: int
    step: int
    steps: int
    samples: int
    seconds: Seconds
    totals: Seconds
    read_seconds: float
    """thread-seconds that the loader's threads spent on reading in this interval"""
    decode_seconds: float
    device: str
    write_seconds: float = 0.0
    """of a core, that the thread which writes checkpoints used"""
    host: str = ""
    """name of the machine"""
    threads: int = 0
    """decode threads"""
    pure_seconds: float | None = None
    """of a step's forward, backward and update on a GPU that does not wait for its work to come"""
    sent_bytes: int = 0
    """of gradients in a step"""
    version: int = 1


@dataclass(frozen=True, kw_only=True)
class GaugeRow:
    """A line of gauges.jsonl: what the machine showed over some seconds. What could not be measured is None."""

    at: float
    rank: int
    host: str
    seconds: float
    """since the sample before, or since sampling began: what every rate and share here is a mean over"""
    gpus: list[dict[str, Any]] | None
    """each with index (as nvidia-smi counts), name, busy_percent, memory_used_bytes, memory_bytes, power_w,
    power_limit_w, clock_mhz, clock_max_mhz, temperature_c and throttle, the reasons why its clock is held down; all as
    they are at that moment. None where the driver gives no answer, as on a machine without GPUs"""
    cpu_percent: float | None
    """of the cores allotted to this process, kept busy by anyone who shares them"""
    process_cpu_percent: float | None
    """of the same cores, kept busy by this process alone, without its children"""
    memory_used_bytes: int | None
    """resident in this process and its children; pages they share count once for each"""
    memory_available_bytes: int | None
    disk_read_bytes_per_second: float | None
    """by every process from the disks of this machine; a network file system is none"""
    disk_write_bytes_per_second: float | None
    process_read_bytes_per_second: float | None
    """by this process from storage of any kind; what the page cache held is not counted"""
    network: dict[str, dict[str, float | None]] | None
    """sent_bytes_per_second and received_bytes_per_second by interface, without the loopback"""
    iowait_percent: float | None
    """of all the machine's cores, idle with a disk still to answer"""
    version: int = 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """A line of events.jsonl: something that a person may want to know later."""

    at: float
    kind: str
    what: str
    version: int = 1


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of a run."""

    started_at: float
    host: str
    world: int
    ended_at: float | None = None
    status: Status = "running"


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """record.json: what became of a run."""

    status: Status
    attempts: tuple[Attempt, ...] = ()
    fixed: dict[str, Any] = field(default_factory=dict)
    """settings left to Stoker, as fixed at the first start"""
    data: dict[str, Any] = field(default_factory=dict)
    """what the data was: fingerprint, counts, bytes"""
    resumed_from: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    why: str | None = None
    """what ended the run, where it is not done"""
    version: int = 1


def line(row: Any) -> str:
    """A record as one line of JSON. A number that is not finite becomes null: JSON has no NaN."""
    return json.dumps(finite(dataclasses.asdict(row)), separators=(",", ":"))


def finite(value: Any) -> Any:
    """The same value with None in the place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_lines(path: Path, kind: type[Row]) -> list[Row]:
    """The whole lines of a file; a torn last line, left by a kill, is passed over."""
    if not path.exists():
        return []
    return list(parsed(path.read_text().splitlines(), kind, path))


def parsed(texts: Iterable[str], kind: type[Row], path: Path) -> Iterable[Row]:
    """Each text as a record; a version that this program does not know is refused."""
    for text in texts:
        try:
            values = json.loads(text)
        except ValueError:
            continue
        yield built(values, kind, path)


def built(values: dict[str, Any], kind: type[Row], path: Path) -> Row:
    """A record from its JSON form."""
    expected = kind.__dataclass_fields__["version"].default  # type: ignore[attr-defined]
    if values.get("version") != expected:
        raise Problem(
            f"{path} holds version {values.get('version')} of {kind.__name__}; this Stoker reads version {expected}",
            fix="use the Stoker that wrote it: the version is in the run's code.json",
        )
    known = {item.name for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if values.keys() - known:
        raise Problem(
            f"{path} holds {', '.join(sorted(values.keys() - known))}, which this Stoker does not know",
            fix="use the Stoker that wrote it: the version is in the run's code.json",
        )
    return kind(**values)


def read_record(path: Path) -> RunRecord:
    """record.json as a value."""
    values = json.loads(path.read_text())
    values["attempts"] = tuple(Attempt(**attempt) for attempt in values.get("attempts", ()))
    return built(values, RunRecord, path)
