"""What is new of every run under a folder: one reader for all who look, which opens only what has changed."""

import hashlib
import os
from collections import OrderedDict, deque
from collections.abc import Iterable
from pathlib import Path

from stoker import lines, locks, records, runs, settings
from stoker.errors import Problem
from stoker.machine import evidence
from stoker.records import LedgerRow, MetricRow, RunRecord
from stoker.report.account import EVALUATION
from stoker.runs import Run
from stoker.watch import glance
from stoker.watch.board import PART, RUN, Board
from stoker.watch.detail import Detail
from stoker.watch.ending import Ending, signature
from stoker.watch.glance import Facts, Glance

# Of a run in the list, so much of each file is read at first, and so many rows are kept.
LIST_BYTES = 32 << 10
RECENT_ROWS = 24
RECENT_SCORES = 2
RECENT_EVALUATIONS = 100
# Details of runs that nobody looks at just now, for when somebody does again.
DETAILS_KEPT = 4
# What odd files make of code that reads them. Anything else is a bug of ours.
ODD = (
    OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, AssertionError, RecursionError, Problem,
)  # fmt: skip


class Follower:
    """Follows the few files of one run that its line in the list is made of."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.id = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:12]
        self.ledger_file = Ending(run.ledger, last_bytes=LIST_BYTES)
        self.scores_file = Ending(run.metrics, last_bytes=LIST_BYTES)
        self.facts = Facts(folder=run.folder, name=name, state="", is_held=False)
        self._rows: deque[LedgerRow] = deque(maxlen=RECENT_ROWS)
        self._training: deque[MetricRow] = deque(maxlen=RECENT_SCORES)
        self._evaluations: deque[MetricRow] = deque(maxlen=RECENT_EVALUATIONS)
        self._seen: tuple[int, int, int] | str | None = "never"

    @property
    def read_bytes(self) -> int:
        """that were read of files of lines"""
        return self.ledger_file.read_bytes + self.scores_file.read_bytes

    def look(self) -> bool:
        """Read what is new. Returns whether anything may be. A run that is not running costs one stat."""
        seen = signature(self.run.record)
        is_new = seen != self._seen
        record = self.facts.record
        if not is_new and (record is None or record.status != "running"):
            return False
        self._seen = seen
        is_held = locks.is_held(self.run.lock)
        has_lines = self._read_lines()
        if is_new:
            self._read_files()
        if not is_new and not has_lines and is_held == self.facts.is_held:
            return False
        self.facts = Facts(
            folder=self.run.folder, name=self.name, state=evidence.state_text(self.run, self.facts.record),
            is_held=is_held, record=self.facts.record, config=self.facts.config, plan=self.facts.plan,
            ledger=tuple(self._rows), scores=in_order(self._training, self._evaluations), missing=self.facts.missing,
        )  # fmt: skip
        return True

    def _read_lines(self) -> bool:
        spent, scored = self.ledger_file.new(), self.scores_file.new()
        if spent.restarted:
            self._rows.clear()
        if scored.restarted:
            self._training.clear()
            self._evaluations.clear()
        # Of hundreds of runs, lines that would not be kept are not parsed either.
        trained = [text for text in scored.texts if EVALUATION not in text][-RECENT_SCORES:]
        evaluated = [text for text in scored.texts if EVALUATION in text]
        self._rows.extend(lines.read(spent.texts[-RECENT_ROWS:], LedgerRow, self.run.ledger).rows)
        self._training.extend(lines.read(trained, MetricRow, self.run.metrics).rows)
        self._evaluations.extend(lines.read(evaluated, MetricRow, self.run.metrics).rows)
        return any((spent.texts, scored.texts, spent.restarted, scored.restarted))

    def _read_files(self) -> None:
        """Read what is small and seldom changes."""
        record: RunRecord | None = None
        config, missing = None, []
        try:
            record = records.read_record(self.run.record)
        except ODD as error:
            missing.append(f"record.json: {error.what if isinstance(error, Problem) else error}")
        try:
            config = settings.with_values(runs.read_config(self.run), record.fixed if record is not None else {})
        except ODD as error:
            missing.append(f"config.json: {error.what if isinstance(error, Problem) else error}")
        self.facts = Facts(
            folder=self.run.folder, name=self.name, state="", is_held=self.facts.is_held, record=record,
            config=config, plan=evidence.read_json(self.run.plan), missing=tuple(missing),
        )  # fmt: skip


def in_order(training: Iterable[MetricRow], evaluations: Iterable[MetricRow]) -> tuple[MetricRow, ...]:
    """Rows of scores as they were written: an evaluation comes after the training before it."""
    return tuple(sorted((*training, *evaluations), key=lambda row: (row.step, row.kind != "train")))


def under(folder: Path, known: Iterable[str] = ()) -> dict[str, Path]:
    """The runs of a folder by name: itself, what lies in it, or in a folder of it. Known ones are not looked into."""
    if (folder / "config.json").exists():
        return {folder.resolve().name: folder}
    found, known = {}, set(known)
    for name in folders(folder):
        if name in known or (folder / name / "config.json").exists():
            found[name] = folder / name
            continue
        for inner in folders(folder / name):
            both = f"{name}/{inner}"
            if both in known or (folder / name / inner / "config.json").exists():
                found[both] = folder / name / inner
    return found


def folders(folder: Path) -> list[str]:
    """The names of the folders in a folder; none where it is not there."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError:
        return []


class Feed:
    """Keeps a board up to date with what the files of all runs say."""

    def __init__(self, folder: Path, board: Board) -> None:
        self.folder, self.board = folder, board
        self.followers: dict[str, Follower] = {}
        """by name"""
        self.glances: dict[str, Glance] = {}
        """by id"""
        self._details: OrderedDict[str, Detail] = OrderedDict()

    def poll(self, looked_at: Iterable[str] = ()) -> None:
        """Look at all runs, and closely at those that somebody looks at."""
        found = under(self.folder, self.followers)
        for name in self.followers.keys() - found.keys():
            self._forget(self.followers.pop(name))
        for name, path in found.items():
            if name not in self.followers:
                self.followers[name] = Follower(Run(path), name)
        looked = set(looked_at)
        for follower in self.followers.values():
            try:
                is_new = follower.look()
                if is_new:
                    self._show(follower, glance.glance(follower.facts))
            except ODD as error:
                self._show(follower, unreadable(follower, error))
                continue
            if follower.id in looked:
                self._look_closely(follower, looking=len(looked))

    def _show(self, follower: Follower, seen: Glance) -> None:
        self.glances[follower.id] = seen
        self.board.put(f"{RUN}/{follower.id}", {**vars(seen), "id": follower.id})

    def _look_closely(self, follower: Follower, *, looking: int) -> None:
        detail = self._details.get(follower.id)
        if detail is None:
            detail = self._details[follower.id] = Detail(follower.run)
        self._details.move_to_end(follower.id)
        while len(self._details) > max(DETAILS_KEPT, looking):
            self._details.popitem(last=False)
        try:
            parts = detail.changes(follower.facts)
        except ODD as error:
            parts = {"trouble": f"a part of this run can't be read: {error}"}
        for name, value in parts.items():
            self.board.put(f"{PART}/{follower.id}/{name}", value)

    def _forget(self, follower: Follower) -> None:
        self.glances.pop(follower.id, None)
        self._details.pop(follower.id, None)
        self.board.drop(f"{RUN}/{follower.id}")
        self.board.drop(f"{PART}/{follower.id}/")


def unreadable(follower: Follower, error: BaseException) -> Glance:
    """The line of a run whose files make no sense."""
    said = error.what if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
    return glance.glance(
        Facts(folder=follower.run.folder, name=follower.name, state=f"unreadable: {said}", is_held=False)
    )
