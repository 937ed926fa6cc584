"""One run looked at closely, part by part: what has changed since the last look. Of long files, a bounded part."""

import time
from collections import deque
from typing import Any

from stoker import lines
from stoker.machine import evidence, verdict
from stoker.machine.evidence import Evidence
from stoker.machine.verdict import Verdict
from stoker.records import Event, GaugeRow, LedgerRow, MetricRow
from stoker.runs import Run
from stoker.watch import glance, parts
from stoker.watch.dials import dials
from stoker.watch.ending import Ending, signature
from stoker.watch.glance import Facts
from stoker.watch.history import History, joined_ledger, joined_scores
from stoker.watch.transcript import transcript

RECENT_BYTES = 128 << 10
RECENT_ROWS = 120
SHOWN_LINES = 80
SHOWN_EVENTS = 60
MOST_EVALUATIONS = 300
MOST_PROCESSES = 64
# Least seconds between two of each part: charts and the verdict take some hundredths of a second to make.
PARTS = {
    "lines": 0.0, "ledger": 0.0, "gauges": 0.0, "events": 0.0, "checkpoints": 0.0, "logs": 0.0, "about": 0.0,
    "charts": 2.0, "why": 4.0,
}  # fmt: skip


class Detail:
    """Follows all files of one run."""

    def __init__(self, run: Run, *, charts: bool = True) -> None:
        self.run = run
        self._has_charts = charts
        self.training: History[MetricRow] = History(joined_scores)
        self.spent: History[LedgerRow] = History(joined_ledger)
        self.evaluations: list[MetricRow] = []
        self._scores = Ending(run.metrics, last_bytes=RECENT_BYTES)
        self._events = Ending(run.events, last_bytes=RECENT_BYTES)
        self._ledgers: dict[int, Ending] = {}
        self._gauges: dict[int, Ending] = {}
        self._recent_scores: deque[MetricRow] = deque(maxlen=SHOWN_LINES)
        self._recent: dict[int, deque[LedgerRow]] = {}
        self._readings: dict[int, deque[GaugeRow]] = {}
        self._told: deque[Event] = deque(maxlen=SHOWN_EVENTS)
        self._stale = set(PARTS)
        self._made: dict[str, float] = {}
        self._seen: dict[str, object] = {}

    def changes(self, facts: Facts) -> dict[str, Any]:
        """The parts that have changed, as JSON. Charts and the verdict come at most every few seconds."""
        self._read(facts)
        made: dict[str, Any] = {}
        for name, pause in PARTS.items():
            if name in self._stale and time.monotonic() - self._made.get(name, float("-inf")) >= pause:
                self._stale.discard(name)
                made.update(self._part(name, facts))
                self._made[name] = time.monotonic()
        return made

    def _part(self, name: str, facts: Facts) -> dict[str, Any]:
        if name == "charts":
            return parts.drawn(self.training.rows, self.evaluations, self.spent.rows) if self._has_charts else {}
        if name == "lines":
            return {name: transcript(self._recent_scores, self._recent.get(0, ()), glance.route(facts))}
        if name == "ledger":
            rows = self._recent.get(0)
            return {name: parts.shares(rows[-1]) if rows else None}
        if name == "why":
            return {name: parts.why(self.judged(facts))}
        if name == "gauges":
            return {name: dials(tuple(row for rank in sorted(self._readings) for row in self._readings[rank]))}
        if name == "events":
            return {name: [{"at": event.at, "kind": event.kind, "what": event.what} for event in self._told]}
        if name == "checkpoints":
            return {name: parts.saved(self.run)}
        if name == "logs":
            return {name: parts.logs(self.run.folder / "logs")}
        return {name: parts.about(facts)}

    def judged(self, facts: Facts) -> Verdict:
        """What limits the run, by its last steps and the totals of all."""
        return verdict.judge(
            Evidence(
                folder=self.run.folder,
                state=facts.state,
                rows={rank: tuple(rows) for rank, rows in self._recent.items() if rows},
                gauges=tuple(row for rows in self._readings.values() for row in rows),
                record=facts.record,
                config=facts.config,
                profile=evidence.read_json(self.run.machine),
                plan=evidence.read_json(self.run.plan),
                packed=evidence.packed(facts.config) if facts.config is not None else None,
            )
        )

    def _read(self, facts: Facts) -> None:
        """Read what is new in every file, and note which parts that makes stale."""
        if self._read_scores():
            self._stale |= {"lines", "charts"}
        if self._read_ledgers():
            self._stale |= {"lines", "charts", "ledger", "why"}
        if self._read_gauges():
            self._stale |= {"gauges", "why"}
        events = self._events.new()
        if events.restarted:
            self._told.clear()
        if events.texts or events.restarted:
            self._told.extend(lines.read(events.texts, Event, self.run.events).rows)
            self._stale.add("events")
        pointers = (self.run.checkpoints, self.run.pointer("latest"), self.run.pointer("best"))
        for name, now in (
            ("checkpoints", tuple(signature(path) for path in pointers)),
            ("logs", tuple((path, signature(path)) for path in parts.log_files(self.run.folder / "logs"))),
            ("about", (facts.record, facts.config, facts.missing)),
            ("why", facts.state),
        ):
            if name not in self._seen or self._seen[name] != now:
                self._seen[name] = now
                self._stale.add(name)

    def _read_scores(self) -> bool:
        is_first, found = not self._made, self._scores.new()
        rows = lines.read(found.texts, MetricRow, self.run.metrics).rows
        if found.restarted:
            self._recent_scores.clear()
        self._recent_scores.extend(rows)
        if is_first or found.restarted:
            # Of a million lines, some hundred with every evaluation tell the same.
            whole = lines.sampled(self.run.metrics, MetricRow, 4 * MOST_EVALUATIONS, apart=is_apart)
            self.training = History(joined_scores, (row for row in whole.rows if row.kind == "train"))
            self.evaluations = [row for row in whole.rows if row.kind == "eval"]
        else:
            last = self.training.rows[-1].step if self.training.rows else -1
            for row in rows:
                if row.kind == "eval":
                    self.evaluations.append(row)
                elif row.step > last:
                    self.training.add(row)
        if len(self.evaluations) > MOST_EVALUATIONS:
            self.evaluations = self.evaluations[1::2]
        return bool(rows) or found.restarted

    def _read_ledgers(self) -> bool:
        is_new = False
        for rank, path in evidence.ranked(self.run.folder, "ledger")[:MOST_PROCESSES]:
            ending = self._ledgers.setdefault(rank, Ending(path, last_bytes=RECENT_BYTES))
            kept = self._recent.setdefault(rank, deque(maxlen=RECENT_ROWS))
            found = ending.new()
            rows = lines.read(found.texts, LedgerRow, path).rows
            if found.restarted:
                kept.clear()
            kept.extend(rows)
            if rank == 0 and (not self.spent.rows or found.restarted):
                whole = lines.sampled(path, LedgerRow, 600, apart=lambda a, b: a.attempt != b.attempt)
                self.spent = History(joined_ledger, whole.rows)
            elif rank == 0:
                for row in rows:
                    self.spent.add(row)
            is_new = is_new or bool(rows) or found.restarted
        return is_new

    def _read_gauges(self) -> bool:
        is_new = False
        for rank, path in evidence.ranked(self.run.folder, "gauges")[:MOST_PROCESSES]:
            ending = self._gauges.setdefault(rank, Ending(path, last_bytes=RECENT_BYTES))
            kept = self._readings.setdefault(rank, deque(maxlen=RECENT_ROWS))
            found = ending.new()
            rows = lines.read(found.texts, GaugeRow, path).rows
            kept.extend(rows)
            is_new = is_new or bool(rows)
        return is_new


def is_apart(first: MetricRow, then: MetricRow) -> bool:
    """Whether an epoch ended between two rows: the first row after that is its evaluation."""
    return first.epoch != then.epoch
