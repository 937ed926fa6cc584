"""What a person sees while a run trains: a line every so many steps, and a bar with rate and time left."""

import time
from dataclasses import dataclass
from types import TracebackType

from stoker import progress, units
from stoker.data.order import Route
from stoker.records import MetricRow, Seconds

MOVE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """What a step line shows beside the scores: some steps and where their time went."""

    steps: int
    seconds: Seconds

    @property
    def step_seconds(self) -> float:
        """mean time of a step, without evaluation and checkpoints"""
        rest = ("eval", "checkpoint")
        return sum(value or 0.0 for bucket, value in self.seconds.items() if bucket not in rest) / self.steps

    @property
    def wait_seconds(self) -> float:
        """mean time of a step that went by waiting for data"""
        return (self.seconds["data_wait"] or 0.0) / self.steps


class Mean:
    """A running mean, weighted."""

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def add(self, value: float, weight: float) -> float:
        """Take in a value; returns the mean so far."""
        self.total += value * weight
        self.weight += weight
        return self.total / self.weight


class Screen:
    """The terminal of one run. Shows nothing where `show` is false: in all processes but the first, say."""

    def __init__(self, *, show: bool, route: Route) -> None:
        self.show, self.route = show, route
        self._bar = progress.bar(unit=" samples/s", transient=True)
        self._task = self._bar.add_task("training", total=route.steps, rate="-")
        self._epoch = -1
        self._done, self._moved_at = 0, 0.0
        self._means: dict[str, Mean] = {}

    def __enter__(self) -> "Screen":
        if self.show:
            self._bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.show:
            self._bar.stop()

    def begin(self, epoch: int, position: int) -> None:
        """Set the bar to where a run goes on from."""
        self._done, self._epoch = self.route.step(epoch, position), -1
        self._bar.reset(self._task, total=self.route.steps, completed=self.route.step(epoch, position), rate="-")

    def say(self, text: str) -> None:
        """A line of plain text above the bar; only a terminal has an edge to wrap it at."""
        if self.show:
            out = self._bar.console
            out.print(text, highlight=False, markup=False, soft_wrap=not out.is_terminal)

    def step(self, step: int) -> None:
        """Move the bar, a few times a second: working its speed out costs more than a step needs."""
        self._done = step
        now = time.monotonic()
        if not self.show or (now - self._moved_at < MOVE_SECONDS and step < self.route.steps):
            return
        self._moved_at = now
        speed = self._bar.tasks[0].speed
        rate = f"{speed * self.route.stage(max(0, self._epoch)).batch:.0f}" if speed else "-"
        self._bar.update(self._task, completed=step, rate=rate)

    def line(self, row: MetricRow, pulse: Pulse) -> None:
        """A step line: step time, data wait and scores, each with its mean over the epoch in brackets."""
        if not self.show:
            return
        if row.epoch != self._epoch:
            self._epoch, self._means = row.epoch, {}
        steps = self.route.pace(row.epoch).steps
        done = self._done - self.route.step(row.epoch, 0)
        cells = [
            f"Epoch [{row.epoch}][{done:>{len(str(steps))}}/{steps}]",
            self._cell("Time", pulse.step_seconds, pulse.steps, ".3f"),
            self._cell("Data", pulse.wait_seconds, pulse.steps, ".3f"),
            self._cell("Loss", row.scores["loss"], row.samples, ".4f"),
            *(self._cell(n.title(), v, row.samples, ".2f") for n, v in row.scores.items() if n != "loss"),
            f"lr {row.lr:.4g}",
        ]
        self.say("  ".join(cells))

    def _cell(self, name: str, value: float, weight: float, form: str) -> str:
        mean = self._means.setdefault(name, Mean()).add(value, weight)
        return f"{name} {value:{form}} ({mean:{form}})"

    def evaluation(self, row: MetricRow, *, is_best: bool, bad: int) -> None:
        """A line with the scores on the held-out samples."""
        scores = "  ".join(f"{name.title()} {value:.4g}" for name, value in row.scores.items())
        best = "  best so far" if is_best else ""
        left_out = f"  ({bad} unreadable samples left out)" if bad else ""
        self.say(f"Epoch [{row.epoch - 1}] held out  {scores}  ({row.samples} samples){best}{left_out}")

    def ledger(self, seconds: Seconds) -> None:
        """The ledger so far, as a table."""
        if self.show:
            self._bar.console.print(ledger_table(seconds))


def ledger_table(seconds: Seconds) -> "object":
    """Where the time went, largest first, with what could not be measured named as such."""
    from rich.table import Table

    whole = sum(value or 0.0 for value in seconds.values())
    table = Table("where the time went", "time", "share", title=None, box=None, header_style="bold", pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for bucket, value in sorted(seconds.items(), key=lambda item: -(item[1] or 0.0)):
        if value:
            table.add_row(bucket, units.seconds_text(value), units.percent_text(value / whole))
    table.add_row("together", units.seconds_text(whole), units.percent_text(1.0 if whole else 0.0), style="bold")
    missing = ", ".join(bucket for bucket, value in seconds.items() if value is None)
    if missing:
        table.caption = f"not measured: {missing}"
        table.caption_justify = "left"
    return table
