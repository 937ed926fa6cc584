"""Bars for long work: how much is done, at what rate, and the time that is left. They go to stderr."""

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stoker import units

if TYPE_CHECKING:
    from rich.progress import Progress


# Between two lines where there is no terminal to draw a bar on.
LINE_SECONDS = 30.0


def bar(*, unit: str, transient: bool) -> "Progress":
    """A bar with rate and time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}" + unit),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=transient,
        # Redrawing costs the training thread's core; four times a second is enough for eyes.
        refresh_per_second=4,
    )


def say(text: str, *, show: bool) -> None:
    """A line about what takes time now."""
    if show:
        print(text, file=sys.stderr, flush=True)


def told(counts: Iterable[int], *, total: int | None, what: str) -> None:
    """The same in lines, for a file or a pipe: one at times, with how much is done, the rate and the time left."""
    began = last = time.monotonic()
    first = None
    for count in counts:
        first = count if first is None else first
        now = time.monotonic()
        if now - last >= LINE_SECONDS:
            last, rate = now, (count - first) / (now - began)
            left = f", {units.seconds_text((total - count) / rate)} left" if total and rate else ""
            out_of = f" of {total:,}" if total else ""
            print(f"{what}: {count:,}{out_of}, {rate:.0f}/s{left}", file=sys.stderr, flush=True)


def follow(counts: Iterable[int], *, total: int | None, what: str, show: bool) -> None:
    """Exhaust an iterator that yields how much is done so far, under a bar. A total of None is not known."""
    if not show:
        for _ in counts:
            pass
        return
    if not sys.stderr.isatty():
        told(counts, total=total, what=what)
        return
    with bar(unit="/s", transient=True) as drawn:
        task = drawn.add_task(what, total=total, rate="")
        for count in counts:
            drawn.update(task, completed=count)
            speed = drawn.tasks[0].speed
            drawn.update(task, rate=f"{speed:.0f}" if speed else "")
