"""What is written down: one dataclass for each kind of line or file, each with a version.

Stages meet only in these records: whoever reads a run needs nothing of what wrote it.
"""

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
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
# No number that Stoker writes comes near to this; sums and products of these stay finite.
LARGEST = 2**63
MAYBE = float | None
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
class Picture:
    """A picture of an exhibit."""

    file: str
    """its name beside the exhibit"""
    caption: str


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A file exhibits/NAME.json: something that a task shows in a report, in a form that needs no task to be shown."""

    name: str
    title: str
    caption: str
    """what is seen, and of which samples and weights"""
    kind: Literal["table", "matrix", "pictures", "text"]
    columns: tuple[str, ...] = ()
    """of a table, or of a matrix, whose rows have the same names"""
    rows: tuple[tuple[Any, ...], ...] = ()
    pictures: tuple[Picture, ...] = ()
    text: str = ""
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
    fix = "use the Stoker that wrote it: the version is in the run's code.json"
    found, expected = values.get("version"), kind.__dataclass_fields__["version"].default  # type: ignore[attr-defined]
    if found != expected:
        raise Problem(f"{path} holds version {found} of {kind.__name__}; this Stoker reads version {expected}", fix=fix)
    unknown = values.keys() - {item.name for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise Problem(f"{path} holds {', '.join(sorted(unknown))}, which this Stoker does not know", fix=fix)
    return kind(**values)


def checked(values: Any, kind: type[Row], path: Path) -> Row:
    """A record from its JSON form, whatever that is. One that lacks a value, or has one of another type, is refused."""
    with understood(kind, path):
        row = built(values, kind, path)
        for name, declared in hints(kind).items():  # type: ignore[arg-type]
            if not fits(getattr(row, name), declared):
                raise ValueError(f"its {name} is of another type")
    return row


@contextlib.contextmanager
def understood(kind: type, path: Path) -> Iterator[None]:
    """Say what to do about JSON that is no record."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise Problem(
            f"{path} holds no {kind.__name__} ({str(error)[:200]})",
            fix=f"move {path} away, or bring back what Stoker wrote there",
        ) from None


@cache
def hints(kind: Any) -> dict[str, Any]:
    """The declared types of a record's fields."""
    return typing.get_type_hints(kind)


@cache
def shape(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a declared type is, and of what: list[int] is list, of int."""
    return typing.get_origin(kind) or kind, typing.get_args(kind)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of a declared type. Numbers are finite, or None in a dict (see `line`)."""
    if type(value) is float and (kind is float or kind == MAYBE):
        return -LARGEST < value < LARGEST  # most values, and so the quickest
    if kind is float or kind is int:
        return type(value) in (int, kind) and -LARGEST < value < LARGEST
    if kind is str or kind is bool or kind is type(None):
        return type(value) is kind
    if kind is Any:
        return True
    origin, members = shape(kind)
    if origin is Literal:
        return value in members
    if origin is types.UnionType or origin is typing.Union:
        return any(fits(value, member) for member in members)
    if origin is dict:
        kind = MAYBE if members[1] is float else members[1]
        return type(value) is dict and all(fits(item, kind) for item in value.values())
    if origin is list or origin is tuple:
        return type(value) is origin and all(fits(item, members[0]) for item in value)
    return all(fits(getattr(value, name), declared) for name, declared in hints(kind).items())


def read_record(path: Path) -> RunRecord:
    """record.json as a value."""
    with understood(RunRecord, path):
        values = json.loads(path.read_text())
        values["attempts"] = tuple(Attempt(**attempt) for attempt in values.get("attempts", ()))
        return checked(values, RunRecord, path)


def read_exhibit(path: Path) -> Exhibit:
    """A file of exhibits/ as a value. Its pictures lie beside it, and nowhere else."""
    with understood(Exhibit, path):
        values = json.loads(path.read_text())
        values["columns"] = tuple(values.get("columns", ()))
        values["rows"] = tuple(tuple(row) for row in values.get("rows", ()))
        values["pictures"] = tuple(Picture(**picture) for picture in values.get("pictures", ()))
        exhibit = checked(values, Exhibit, path)
        for picture in exhibit.pictures:
            if Path(picture.file).name != picture.file:
                raise ValueError(f"{picture.file!r} is not the name of a file beside it")
        return exhibit
