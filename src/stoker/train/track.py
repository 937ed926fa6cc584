"""A run's figures for other programs to show. Training never waits for them, and never ends with them.

Needs no torch. A thread hands the figures over; what fails there ends the tracking and nothing else. What a tracker
holds of a run is kept beside it: a run that goes on gives it no step twice, and one that is tracked from now on gives
it all that was learned before.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from stoker import records, settings, units
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import LedgerRow, MetricRow, Status
from stoker.runs import Run
from stoker.train import outlets
from stoker.train.outlets import Entry, Held, Writer

# Batches that may wait. Whoever is so far behind does not come back.
MOST_WAITING = 10_000
# Steps that are handed over together; MLflow takes 1,000 figures at a time, and a step has up to 14.
TOGETHER = 60
# How long the end of a run waits for what is not handed over yet: the first use of a database takes seconds. Whoever
# was asked to stop may be killed soon, and what is missing comes with the next start.
PATIENCE_SECONDS, HURRY_SECONDS = 30.0, 5.0


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """The place that a run goes on from. What it learned before is in its metrics."""

    step: int
    rollbacks: int
    at: float = field(default_factory=time.time)
    """of what was learned before as well: what comes later must not look earlier"""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Entries to hand over, after what was learned before where a run begins to go on."""

    entries: Sequence[Entry]
    begins: Beginning | None = None


class Tracker:
    """Hands the figures of a run to one program, once it is opened. Only `close` ever waits for it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.kind, self._values = "off", flat(Config())
        self._batches: queue.Queue[Batch | Status] = queue.Queue(MOST_WAITING)
        self._failed: str | None = None
        self._is_told = False
        self._thread: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        """all that is written, and how much of the run that is"""
        return self.run.folder / "track" / self.kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        goes_on = isinstance(error[1], KeyboardInterrupt) or getattr(error[1], "goes_on", False)
        self.close("stopped" if goes_on else "failed")

    def open(self, kind: str, config: Config) -> str:
        """Begin to track, and say where. A Problem where the package is not installed."""
        check(kind)
        self.kind, self._values = kind, flat(config)
        # A daemon: a package that does not answer must not keep a process whose time is over.
        self._thread = threading.Thread(target=self._work, name=f"track {kind}", daemon=True)
        self._thread.start()
        database = outlets.database(self.folder)
        shown = {
            "tensorboard": f"look at it with: tensorboard --logdir {self.folder}",
            "wandb": f"upload it with: wandb sync {self.folder}/*run-*",
            # The package that writes has no pages.
            "mlflow": f"look at it with: pip install mlflow, then mlflow ui --backend-store-uri {database}",
        }
        return f"{kind}, in {self.folder}; {shown[kind]}"

    def begin(self, *, step: int, rollbacks: int, best: dict[str, float] | None) -> None:
        """Take up a run from a step: at a start, and where it may have gone back."""
        self._hand_over(Batch(entries=bests(best), begins=Beginning(step=step, rollbacks=rollbacks)))

    def row(self, row: MetricRow, *, best: dict[str, float] | None = None) -> None:
        """Scores of some training, or of an evaluation, with the best so far and the step they were at."""
        self._hand_over(Batch(entries=[entry_of(row), *bests(best)]))

    def pace(self, row: LedgerRow) -> None:
        """Speed and shares of time of some steps. What was not measured is left out."""
        known = {bucket: value for bucket, value in row.seconds.items() if value is not None}
        whole = sum(known.values())
        training = whole - known.get("eval", 0.0) - known.get("checkpoint", 0.0)
        if row.steps and training > 0:
            figures = {f"share/{bucket}": value / whole for bucket, value in known.items()}
            figures["pace/samples_per_second"] = row.samples / training
            self._hand_over(Batch(entries=[Entry(kind="pace", step=row.step, figures=figures, at=row.at)]))

    def problems(self) -> Iterator[str]:
        """What ended the tracking, told once."""
        if self._failed is not None and not self._is_told:
            self._is_told = True
            yield f"{self.kind} gets no more figures, and the run goes on without it: {self._failed}"

    def close(self, status: Status, *, seconds: float | None = None) -> None:
        """Hand over what is left, for some seconds at most, and say how the run ended."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        patience = PATIENCE_SECONDS if status == "done" else HURRY_SECONDS
        if seconds is not None:
            patience = min(seconds, patience)
        ends = time.monotonic() + patience
        with contextlib.suppress(queue.Full):
            self._batches.put(status, timeout=patience)
        thread.join(max(0.0, ends - time.monotonic()))
        if thread.is_alive():
            self._failed = self._failed or f"the last were not taken within {units.seconds_text(patience)}"

    def _hand_over(self, batch: Batch) -> None:
        if self._thread is None or self._failed is not None:
            return
        try:
            self._batches.put_nowait(batch)
        except queue.Full:
            self._failed = f"{MOST_WAITING:,} lines wait for it"

    def _work(self) -> None:
        """Hand batches over in the order they come, until the run ends or the tracker fails, in whatever way."""
        try:
            held = self._read()
            writer = self._opened(held)
            has_begun = False
            while isinstance(batch := self._batches.get(), Batch) and self._failed is None:
                if (begins := batch.begins) is not None:
                    if has_gone_back(held, begins, has_begun=has_begun):
                        writer.close("failed")
                        held = another(held)
                        writer = self._opened(held)
                    held.rollbacks, has_begun = begins.rollbacks, True
                    self._write(writer, held, learned(self.run, until=begins.step, at=begins.at))
                self._write(writer, held, batch.entries)
            writer.close("failed" if isinstance(batch, Batch) else batch)
            held.is_closed = True
            self._keep(held)
        except Exception as error:
            said = (str(error).strip().splitlines() or [""])[0]
            self._failed = f"{type(error).__name__}: {said}"

    def _write(self, writer: Writer, held: Held, entries: Iterable[Entry]) -> None:
        news = (entry for entry in entries if entry.step > held.steps.get(entry.kind, -1))
        while some := list(itertools.islice(news, TOGETHER)):
            writer.write(some)
            held.steps |= {entry.kind: entry.step for entry in some}
            self._keep(held)

    def _opened(self, held: Held) -> Writer:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = self.run.folder.resolve().name + (f"-{held.part}" if held.part > 1 else "")
        writer: Writer = outlets.WRITERS[self.kind](self.folder.resolve(), name, self._values, held)
        held.id, held.is_new, held.is_closed = writer.id, False, False
        self._keep(held)
        return writer

    def _read(self) -> Held:
        path = self.folder / "held.json"
        if not path.exists():
            return Held(id=secrets.token_hex(4))
        held = Held(**json.loads(path.read_text()))
        is_whole = held.is_closed or outlets.WRITERS[self.kind].outlives_kill
        return held if is_whole else another(held)

    def _keep(self, held: Held) -> None:
        """Write down what the tracker holds. Not synced: it must outlive a kill, and a power cut costs a line."""
        path = self.folder / "held.json"
        path.with_suffix(".tmp").write_text(json.dumps(dataclasses.asdict(held)))
        os.replace(path.with_suffix(".tmp"), path)


def check(kind: str) -> None:
    """Refuse a tracker whose packages are not installed. Imports nothing."""
    missing = [name for name in outlets.PACKAGES.get(kind, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise Problem(
            f"--track {kind} needs {' and '.join(missing)}, which is not installed",
            fix="pip install 'stoker[track]', or leave --track out",
        )


def has_gone_back(held: Held, begins: Beginning, *, has_begun: bool) -> bool:
    """Whether a tracker holds steps that were done again in another way.

    Steps that a killed process had done come out the same again, unless the run was taken back meanwhile.
    """
    is_beyond = max(held.steps.values(), default=-1) > begins.step
    return bool(held.steps) and (held.rollbacks != begins.rollbacks or (has_begun and is_beyond))


def learned(run: Run, *, until: int, at: float) -> Iterator[Entry]:
    """What the metrics of a run say up to a step. Read line by line, since there may be millions."""
    if run.metrics.exists():
        with run.metrics.open() as lines:
            rows = records.parsed(lines, MetricRow, run.metrics)
            yield from (dataclasses.replace(entry_of(row), at=at) for row in rows if row.step <= until)


def another(held: Held) -> Held:
    """A run of the tracker's own to begin anew with, beside one that is not what happened."""
    return Held(id=secrets.token_hex(4), part=held.part + 1)


def entry_of(row: MetricRow) -> Entry:
    """A line of metrics as an entry. What is no number is left out."""
    figures = {**row.scores, "lr": row.lr, "epoch": row.epoch}
    known = {f"{row.kind}/{name}": float(value) for name, value in records.finite(figures).items() if value is not None}
    return Entry(kind=row.kind, step=row.step, figures=known)


def bests(best: dict[str, float] | None) -> list[Entry]:
    """The best scores so far as an entry of the step they were at, where there are any."""
    if best is None:
        return []
    figures = {f"best/{name}": float(value) for name, value in best.items() if name != "step"}
    return [Entry(kind="best", step=int(best["step"]), figures=figures)]


def flat(config: Config) -> dict[str, bool | int | float | str]:
    """Every setting by its bare name, in the kinds of values that all trackers take."""
    return {
        setting.name: setting.value if isinstance(setting.value, bool | int | float | str) else str(setting.value)
        for setting in settings.listed(config)
    }
