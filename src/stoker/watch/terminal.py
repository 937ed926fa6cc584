"""The live page's twin for a terminal: all runs in a table, and below it the one that goes on, closely."""

import contextlib
import os
import re
import select
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import runs, units
from stoker.errors import Problem
from stoker.report import look
from stoker.watch.board import Board
from stoker.watch.detail import Detail
from stoker.watch.feed import Feed, Follower
from stoker.watch.glance import LIVE, Glance

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

POLL_SECONDS = 1.0
STYLES = {
    "running": "bold cyan", "starting": "cyan", "done": "green", "stopped": "yellow", "killed": "yellow",
    "timeout": "yellow", "new": "yellow", "failed": "bold red", "oom": "bold red", "diverged": "bold red",
    "unreadable": "bold red",
}  # fmt: skip
NARROW = 120
MEANS = re.compile(r" \([0-9.]+\)")
DASH = "-"


class Scene:
    """What is on the screen: the runs, and all parts of the newest that goes on."""

    def __init__(self, folder: Path) -> None:
        self.feed = Feed(folder, Board())
        self.parts: dict[str, Any] = {}
        self._detail: Detail | None = None

    def look(self) -> None:
        """Read what is new."""
        self.feed.poll()
        chosen = self.chosen
        if chosen is None:
            self._detail, self.parts = None, {}
            return
        if self._detail is None or self._detail.run != chosen.run:
            self._detail, self.parts = Detail(chosen.run, charts=False), {}
        self.parts |= self._detail.changes(chosen.facts)

    @property
    def ordered(self) -> list[tuple[Follower, Glance]]:
        """the runs that go on first, then the newest"""
        found = [(one, self.feed.glances[one.id]) for one in self.feed.followers.values()]
        return sorted(found, key=lambda pair: (pair[1].state not in LIVE, -(pair[1].heard_at or pair[1].began_at or 0)))

    @property
    def chosen(self) -> Follower | None:
        """the run to look at closely"""
        ordered = self.ordered
        return ordered[0][0] if ordered else None


def show(folder: Path, *, once: bool = False) -> None:
    """Show the runs under a folder in this terminal, until q or Ctrl-C; or print one frame."""
    from rich.console import Console
    from rich.live import Live

    if not folder.is_dir() and folder != runs.ROOT:
        raise Problem(f"{folder} is no folder", fix=f"give the folder that holds the runs: stoker watch {runs.ROOT}")
    console, scene = Console(highlight=False), Scene(folder)
    scene.look()
    if once or not console.is_terminal:
        console.print(frame(scene, folder, width=console.width, height=None))
        return
    with (
        contextlib.suppress(KeyboardInterrupt),
        keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(frame(scene, folder, width=console.width, height=console.height), refresh=True)
            if pressed(POLL_SECONDS) in ("q", "Q", "\x03"):
                return
            scene.look()


@contextlib.contextmanager
def keys() -> Iterator[Any]:
    """A function that waits some seconds for a key, without the need of Enter. Without a keyboard, it only waits."""
    if not sys.stdin.isatty():
        yield lambda seconds: time.sleep(seconds)
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return os.read(number, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(number)
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def frame(scene: Scene, folder: Path, *, width: int, height: int | None) -> "RenderableType":
    """One picture of the screen, no higher than it."""
    from rich.console import Group
    from rich.text import Text

    ordered = scene.ordered
    if not ordered:
        return Text(f"no runs under {folder} yet. Start one with: stoker train demo", style="dim")
    # Below the table stay some ten lines for one run.
    most = max(3, (height - 15 if height else 20))
    table = listed(ordered[:most], width=width)
    hidden = len(ordered) - most
    more = [Text(f"... and {units.count_text(hidden, 'run')} more", style="dim")] if hidden > 0 else []
    used = min(len(ordered), most) + 1 + len(more)
    return Group(table, *more, *closely(scene, width=width, height=height - used if height else None))


def listed(ordered: list[tuple[Follower, Glance]], *, width: int) -> "Table":
    """The table of runs."""
    from rich.table import Table
    from rich.text import Text

    is_wide = width >= NARROW
    table = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    table.add_column("run", ratio=1, no_wrap=True, overflow="ellipsis", min_width=8)
    names = ["state", "progress", "left", "loss", "score", "samples/s", "wait"]
    for name in names:
        table.add_column(name, justify="left" if name in ("state", "progress") else "right", no_wrap=True)
    for _, seen in ordered:
        share = seen.step / seen.steps if seen.steps else None
        score = seen.held_out.get("top1", seen.scores.get("top1"))
        left = units.seconds_text(seen.left_seconds) if seen.left_seconds is not None else DASH
        table.add_row(
            Text(printable(seen.name)),
            Text(seen.state, style=STYLES.get(seen.state, "")),
            bar(share, 12 if is_wide else 6, style=STYLES.get(seen.state, "")),
            left,
            number(seen.loss, ".3f"),
            number(score, ".1f") + (" %" if score is not None else ""),
            number(seen.samples_per_second, ",.0f"),
            DASH if seen.wait_share is None else f"{seen.wait_share:.0%}",
        )
    return table


def closely(scene: Scene, *, width: int, height: int | None) -> list["RenderableType"]:
    """The parts of one run, the most important first, as many as there is room for."""
    from rich.rule import Rule
    from rich.text import Text

    chosen, parts = scene.chosen, scene.parts
    assert chosen is not None
    seen = scene.feed.glances[chosen.id]
    share = seen.step / seen.steps if seen.steps else None
    left = f"{units.seconds_text(seen.left_seconds)} left" if seen.left_seconds is not None else seen.state
    steps = f"step {seen.step:,} of {seen.steps:,}" if seen.steps else units.count_text(seen.step, "step")
    epoch = f"  epoch {seen.epoch + 1} of {seen.epochs}" if seen.epoch is not None else ""
    head: list[RenderableType] = [Rule(Text(printable(seen.name), style="bold"), align="left", style="dim")]
    line = Text(no_wrap=True, overflow="ellipsis")
    said = f"  {steps}{epoch}  {left}"
    line.append_text(bar(share, max(10, width - len(said) - len(" 100 %")), style=STYLES.get(seen.state, "")))
    line.append(said)
    head.append(line)
    if parts.get("ledger"):
        head += [blocks(parts["ledger"], width), legend(parts["ledger"], width)]
    if parts.get("why"):
        head += [Text(line, style="bold") for line in textwrap.wrap(printable(parts["why"]["sentence"]), width)]
        head += [
            Text(f"  {one['gain']:.2f} x  {one['what']}", style="green", no_wrap=True, overflow="ellipsis")
            for one in parts["why"]["remedies"][:1]
        ]
    for host in (parts.get("gauges") or [])[:2]:
        said = "  ".join(f"{one['name']} {one['text']}" for one in host["dials"])
        head.append(Text(printable(f"{host['host']}  {said}"), style="dim", no_wrap=True, overflow="ellipsis"))
    notes = saved_and_told(parts)
    room = 12 if height is None else height - len(head) - len(notes)
    # A narrow terminal has no room for the means in brackets.
    texts = [one if width >= NARROW else MEANS.sub("", one) for one in parts.get("lines") or []]
    lines = [Text(printable(one), no_wrap=True, overflow="ellipsis") for one in texts]
    return [*head, *(lines[-room:] if room > 0 else []), *notes]


def saved_and_told(parts: dict[str, Any]) -> list["RenderableType"]:
    """The newest checkpoint and the last event, a line each."""
    from rich.text import Text

    said: list[RenderableType] = []
    kept = (parts.get("checkpoints") or {}).get("kept") or []
    if kept:
        age = units.seconds_text(max(time.time() - kept[0]["at"], 0.0))
        said.append(Text(f"checkpoint of step {kept[0]['step']:,}, {age} ago", style="dim"))
    for event in (parts.get("events") or [])[-1:]:
        when = time.strftime("%H:%M:%S", time.localtime(event["at"]))
        text = printable(f"{when} {event['kind']}: {event['what']}")
        said.append(Text(text, style="yellow", no_wrap=True, overflow="ellipsis"))
    return said


def bar(share: float | None, width: int, *, style: str) -> "Text":
    """A bar of blocks with its percentage."""
    from rich.text import Text

    if share is None:
        return Text(DASH)
    done = round(min(max(share, 0.0), 1.0) * width)
    text = Text()
    text.append("█" * done, style=style)
    text.append("░" * (width - done), style="dim")
    text.append(f" {int(share * 100):>3} %")
    return text


def blocks(shares: list[dict[str, Any]], width: int) -> "Text":
    """The ledger as one bar of coloured blocks."""
    from rich.text import Text

    text, place, whole = Text(no_wrap=True), 0.0, 0
    for one in stacked(shares):
        place += one["share"] * width
        text.append("█" * (round(place) - whole), style=look.COLOURS.get(one["bucket"], look.GREY))
        whole = round(place)
    return text


def legend(shares: list[dict[str, Any]], width: int) -> "Text":
    """What the blocks are, the largest first, in one line."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for one in sorted(shares, key=lambda share: -share["share"]):
        said = f"{one['bucket']} {one['share']:.0%}  "
        if len(text) + len(said) + 2 > width:
            break
        text.append("■ ", style=look.COLOURS.get(one["bucket"], look.GREY))
        text.append(said)
    return text


def stacked(shares: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of the charts."""
    order = list(look.COLOURS)
    return sorted(shares, key=lambda one: order.index(one["bucket"]) if one["bucket"] in order else len(order))


def number(value: float | None, form: str) -> str:
    """A number, or a dash where it is not known."""
    return DASH if value is None else f"{value:{form}}"


def printable(text: str) -> str:
    """Text of a run without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
