"""The run folder: the name of every file in it, and how they are written so that a kill leaves them whole."""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker import locks, records, settings, units
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import MetricRow, RunRecord

ROOT = Path("runs")
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Run:
    """A folder that holds all there is to know about a run."""

    folder: Path

    @property
    def config(self) -> Path:
        """the settings as asked for"""
        return self.folder / "config.json"

    @property
    def machine(self) -> Path:
        """the hardware of the last start"""
        return self.folder / "machine.json"

    @property
    def code(self) -> Path:
        """version, commit, local changes and packages of the last start"""
        return self.folder / "code.json"

    @property
    def classes(self) -> Path:
        """the names of the classes, in the order of the network's outputs"""
        return self.folder / "classes.json"

    @property
    def ledger(self) -> Path:
        """where the time of the first process went"""
        return self.ledger_of(0)

    def ledger_of(self, rank: int) -> Path:
        """where the time of a process went"""
        return self.folder / (f"ledger.{rank}.jsonl" if rank else "ledger.jsonl")

    def gauges_of(self, rank: int) -> Path:
        """what the machine of a process showed meanwhile"""
        return self.folder / (f"gauges.{rank}.jsonl" if rank else "gauges.jsonl")

    @property
    def plan(self) -> Path:
        """what it was expected to take, and what it took"""
        return self.folder / "plan.json"

    @property
    def metrics(self) -> Path:
        """what was learned"""
        return self.folder / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """what happened on the way"""
        return self.folder / "events.jsonl"

    @property
    def record(self) -> Path:
        """what became of it"""
        return self.folder / "record.json"

    @property
    def checkpoints(self) -> Path:
        """one folder a checkpoint, named by its step"""
        return self.folder / "checkpoints"

    @property
    def lock(self) -> Path:
        """held by the process that trains"""
        return self.folder / "lock"

    @property
    def exhibits(self) -> Path:
        """what the task shows: a file of JSON each, with its pictures beside it"""
        return self.folder / "exhibits"

    @property
    def report(self) -> Path:
        """all of it on one page; its twin in Markdown has the same name and another ending"""
        return self.folder / "report.html"

    def pointer(self, name: str) -> Path:
        """a small text file that names a checkpoint: latest, best, epoch_N"""
        return self.folder / name


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file so that a reader, or a kill at any moment, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise full(path, error) if error.errno in FULL else error from None
    sync(path.parent)


def sync(path: Path) -> None:
    """Make what was written to a file, or renamed inside of a folder, last through a power cut."""
    if not path.exists():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, row: Any) -> None:
    """Add a record to a file of lines, in one write."""
    try:
        with open(path, "ab") as file:
            size = file.tell()
            try:
                file.write(records.line(row).encode() + b"\n")
                file.flush()
            except OSError:
                os.truncate(path, size)  # a torn line would spoil the next one
                raise
    except OSError as error:
        raise full(path, error) if error.errno in FULL else error from None


def full(path: Path, error: OSError, *, size: int | None = None) -> Problem:
    """What to say when the disk is full."""
    needed = f" of {units.bytes_text(size)}" if size else ""
    free = units.bytes_text(shutil.disk_usage(path.parent).free)
    return Problem(
        f"the disk is full: {path}{needed} could not be written ({error.strerror}; {free} free)",
        fix="free some space and start the same command again: it goes on from the last whole checkpoint",
    )


def tidy(run: Run) -> None:
    """Remove what a kill left half-written: temporary files, and the torn last line of a file of lines."""
    places = (run.folder, run.checkpoints, run.exhibits)
    for left in (*(one for place in places for one in place.glob(".*.tmp")), *run.checkpoints.glob(".*.old")):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    for path in (*run.folder.glob("ledger*.jsonl"), *run.folder.glob("gauges*.jsonl"), run.events):
        if path.exists() and is_torn(path):
            text = path.read_bytes()
            write_whole(path, text[: text.rfind(b"\n") + 1])


def is_torn(path: Path) -> bool:
    """Whether a file of lines ends within one."""
    with open(path, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def cut_metrics(run: Run, *, step: int, evaluated: int) -> None:
    """Drop what a killed process had written beyond the checkpoint that training goes on from."""
    text = run.metrics.read_bytes() if run.metrics.exists() else b""
    end = text.rfind(b"\n") + 1
    while end:
        # Lines are in the order of steps: what is before one that is kept is kept as well.
        begin = text.rfind(b"\n", 0, end - 1) + 1
        rows = records.parsed([text[begin:end].decode(errors="replace")], MetricRow, run.metrics)
        if any(row.step <= step and (row.kind == "train" or row.epoch <= evaluated) for row in rows):
            break
        end = begin
    if end < len(text):
        with open(run.metrics, "r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())


def read_config(run: Run) -> Config:
    """The settings a run was started with."""
    return settings.read_file(run.config, Config())


def update_record(run: Run, **changes: Any) -> RunRecord:
    """Rewrite record.json with some fields changed."""
    record = dataclasses.replace(records.read_record(run.record), **changes)
    write_whole(run.record, json.dumps(records.finite(dataclasses.asdict(record)), indent=1))
    return record


def create(folder: Path, config: Config, *, resumed_from: str | None) -> Run:
    """A new run folder, or the one that is there already if it was made with the same identity settings."""
    run = Run(folder)
    try:
        if run.config.exists():
            with locks.held(run.lock):
                check_same(run, config, resumed_from=resumed_from)
                write_whole(run.config, settings.as_json(carried_on(run, config)))
                update_record(run, resumed_from=resumed_from)
            return run
        # What a kill may have left of a run that was not quite made yet is taken over.
        ours = {run.record, run.checkpoints, run.lock}
        if folder.exists() and any(p for p in folder.iterdir() if p not in ours and not p.name.startswith(".")):
            raise Problem(f"{folder} is not empty and is no run", fix="give another name with --name")
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        record = RunRecord(status="stopped", resumed_from=resumed_from)
        write_whole(run.record, json.dumps(dataclasses.asdict(record), indent=1))
        write_whole(run.config, settings.as_json(config))
    except OSError as error:
        raise Problem(f"the run folder {folder} can't be written: {error}", fix="give another with --name") from None
    return run


def carried_on(run: Run, config: Config) -> Config:
    """The settings a run goes on with: the identity it began with, and everything else as it is asked for now."""
    if not has_begun(run):
        return config
    moved = {"data": config.data.data}  # a path is only a name of the data
    return settings.with_values(settings.with_operational(read_config(run), config), moved)


def has_begun(run: Run) -> bool:
    """Whether a run has anything to lose: a line of metrics, or a checkpoint after its first step."""
    return run.metrics.exists() or any(int(p.name) > 0 for p in run.checkpoints.glob("[0-9]*"))


def check_same(run: Run, config: Config, *, resumed_from: str | None) -> None:
    """Refuse to go on with a run under settings that would change its result."""
    record = records.read_record(run.record)
    if not has_begun(run):
        return  # it was refused before its first step, so there is no result yet to change
    fixed = {s.name: s.value for s in settings.listed(settings.with_values(read_config(run), record.fixed))}
    changed = [
        d for d in settings.identity_differences(read_config(run), config)
        # A path is only a name of the data: what it holds is compared by fingerprint when it is opened.
        if d.name != "data" and fixed[d.name] != d.new
    ]  # fmt: skip
    if changed:
        listed = "\n".join(f"    {d.name}: {d.old} -> {d.new}" for d in changed)
        raise Problem(
            f"{run.folder} was started with other settings, and going on with these would change its result:\n{listed}",
            fix="give these settings their old values, or another name with --name (and --resume with a checkpoint of "
            "this run, to begin with its state)",
        )
    if resumed_from != record.resumed_from:
        raise Problem(
            f"{run.folder} was started from {record.resumed_from or 'scratch'}, not from {resumed_from or 'scratch'}",
            fix="leave --resume as it was, or give another name with --name",
        )


def unused(folder: Path) -> Path:
    """The folder itself if nothing is there, else the next free name beside it: nothing is written over."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def remove_untrained(folder: Path) -> None:
    """Remove a run that was refused before its first step: there is nothing in it to lose."""
    run = Run(folder)
    with contextlib.suppress(Problem), locks.held(run.lock):
        if not has_begun(run):
            shutil.rmtree(folder)


def open_run(folder: Path) -> Run:
    """An existing run folder."""
    for candidate in (folder, ROOT / folder):
        if Run(candidate).config.exists():
            return Run(candidate)
    known = sorted(str(p.parent) for p in ROOT.glob("*/config.json"))
    raise Problem(
        f"{folder} is no run: it has no config.json",
        fix=f"runs here are {', '.join(known)}" if known else "start one with: stoker train demo",
    )


def last_sign_of_life(run: Run) -> float | None:
    """When something was last written to a run, in seconds since 1970."""
    files = [run.ledger, run.metrics, run.events, *run.checkpoints.glob("*/*")]
    return max((f.stat().st_mtime for f in files if f.exists()), default=None)
