"""A run in a notebook's cell while it trains: how far it is, what it says, and its curves, read from its folder."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from stoker import lines, units
from stoker.errors import Problem
from stoker.notebook.card import Card
from stoker.records import MetricRow
from stoker.report import charts, look, summary
from stoker.runs import Run
from stoker.watch import glance
from stoker.watch.detail import is_apart
from stoker.watch.ending import Ending
from stoker.watch.feed import Follower
from stoker.watch.history import History, joined_scores
from stoker.watch.transcript import transcript

LOOK_SECONDS = 2.0
# Drawing takes time from training: at most one part in so many.
DRAW_SHARE = 20
# How long the end of a run waits for its last picture.
PATIENCE_SECONDS = 10.0
WIDTH, SCALE = 440, 1.5
# Of a long file, so many lines at first, and then so much of what is new at a time.
MOST_ROWS, RECENT_BYTES = 2000, 1 << 20


class Live:
    """Shows a run in the cell that trains it, from a thread of its own. What goes wrong with that ends the showing."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder.resolve())
        self.failed: str | None = None
        """what ended the showing before the run"""
        self._follower = Follower(self.run, folder.name)
        self._metrics = Ending(self.run.metrics, last_bytes=RECENT_BYTES)
        self._last = (-1, False)
        """step of the last row, and whether that was an evaluation"""
        self._training: History[MetricRow] = History(joined_scores)
        self._evaluations: list[MetricRow] = []
        self._pictures: tuple[bytes, ...] = ()
        self._next_drawing = 0.0
        self._has_news = False
        self._handle: Any = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="notebook", daemon=True)

    def __enter__(self) -> Self:
        # From here, so that it comes into the cell that is being run.
        with self._noticed():
            self._show(Card(title=self.run.folder.name, state="starting", tone="busy"))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)

    def _follow(self) -> None:
        """Look at the run every so often, and once more when it has ended."""
        with self._noticed():
            while not self._over.wait(LOOK_SECONDS):
                self._show(self.card())
            self._show(self.card(is_last=True))

    @contextlib.contextmanager
    def _noticed(self) -> Iterator[None]:
        """Let what goes wrong end the showing, and nothing else."""
        try:
            yield
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
            with contextlib.suppress(Exception):
                # What was there before would look like a run that hangs.
                what = "the run goes on, but it can't be shown here"
                self._show(Card(title=self.run.folder.name, sentence=what, notes=(self.failed,)))

    def _show(self, card: Card) -> None:
        from IPython import display

        bundle = {"text/html": card.html, "text/plain": card.text}
        if self._handle is None:
            self._handle = display.display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)

    def card(self, *, is_last: bool = False) -> Card:
        """The run as it is now."""
        self._read()
        facts = self._follower.facts
        seen = glance.glance(facts)
        self._draw(is_last=is_last)
        state = "starting" if seen.state == "new" else seen.state
        tone = summary.TONES.get(state, "bad")
        share = seen.step / seen.steps if seen.steps else None
        told = [text for text in (facts.record.why if facts.record is not None else None, *facts.missing) if text]
        return Card(
            title=self.run.folder.name,
            state=state,
            tone=tone,
            sentence="loading libraries and data" if state == "starting" and not seen.step else "",
            progress=share,
            # When a run is done, its value says the rest in the same cell.
            facts=figures(seen) if is_last else (*figures(seen), *bests(seen)),
            code=transcript(facts.scores, facts.ledger, glance.route(facts))[-2:] if facts.scores else (),
            notes=tuple(told) if state not in ("done", "running") else (),
            pictures=self._pictures,
        )

    def _read(self) -> None:
        self._follower.look()
        is_first, found = self._metrics.read_bytes == 0, self._metrics.new()
        if is_first or found.restarted:
            # Of a long file, some lines with every evaluation tell the same.
            self._training, self._evaluations, self._last = History(joined_scores), [], (-1, False)
            rows = lines.sampled(self.run.metrics, MetricRow, MOST_ROWS, apart=is_apart).rows
        else:
            rows = lines.read(found.texts, MetricRow, self.run.metrics).rows
        for row in rows:
            place = (row.step, row.kind == "eval")
            if place <= self._last:
                continue  # it was written between two looks at the file
            self._last, self._has_news = place, True
            self._training.add(row) if row.kind == "train" else self._evaluations.append(row)

    def _draw(self, *, is_last: bool) -> None:
        """Draw the curves anew, where there is something new and it was not done just now."""
        if not self._has_news or (time.monotonic() < self._next_drawing and not is_last):
            return
        began = time.monotonic()
        rows = self._training.rows, self._evaluations
        specs = charts.losses(*rows), charts.scores(*rows)
        try:
            self._pictures = tuple(look.png(spec, width=WIDTH, scale=SCALE) for spec in specs if spec is not None)
        except Problem:
            self._pictures = ()  # without what draws them, the words are still worth a look
        self._has_news = False
        self._next_drawing = time.monotonic() + DRAW_SHARE * (time.monotonic() - began)


def figures(seen: glance.Glance) -> tuple[tuple[str, str], ...]:
    """What is to be known of a run at once; what is not known is left out."""
    facts = []
    if seen.steps:
        facts.append(("step", f"{seen.step:,} of {seen.steps:,}"))
    if seen.epoch is not None:
        facts.append(("epoch", f"{seen.epoch + 1} of {seen.epochs}"))
    if seen.samples_per_second is not None:
        facts.append(("samples/s", f"{seen.samples_per_second:,.0f}"))
    if seen.left_seconds is not None:
        facts.append(("left", units.seconds_text(seen.left_seconds) + (" as planned" if seen.is_planned else "")))
    if seen.wait_share is not None:
        facts.append(("waits for data", units.percent_text(seen.wait_share)))
    return tuple(facts)


def bests(seen: glance.Glance) -> tuple[tuple[str, str], ...]:
    """The best scores so far."""
    return tuple((f"best {name}", text) for name, text in summary.score_texts(seen.best).items())
