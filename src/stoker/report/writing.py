"""The report of a run, written: one page that needs nothing else, and its twin in Markdown."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from stoker import runs
from stoker.errors import Problem
from stoker.report import account as accounts
from stoker.report import composition, cost, look, markdown, page, questions
from stoker.report.blocks import Answer, Block, Chart, Folded, Group, Pictures, Report
from stoker.runs import Run

# Points and pixels of a point; Markdown is read on wide screens.
WIDTH, SCALE = 720, 1.5


@dataclass(frozen=True, kw_only=True)
class Written:
    """A report on the disk."""

    html: Path
    markdown: Path | None
    """its twin, where it was asked for"""
    html_bytes: int
    missing: tuple[str, ...]
    """what could not be read, and what to do about it"""


def write(run: Run, *, dollars_per_hour: float | None = None, at: Path | None = None, has_twin: bool = True) -> Written:
    """Write the report of a run, in whatever state it is: into its folder, or where `at` says.

    The price is for runs whose settings do not say what an hour costs.
    The twin in Markdown needs each chart as a picture of its own, which takes some seconds.
    """
    account = accounts.gather(run)
    account = replace(account, cost=cost.offered(account.cost, dollars_per_hour))
    report = composition.report(account, questions.asked(account))
    place = at if at is not None else run.report
    twin = place.with_suffix(".md")
    if twin == place:
        raise Problem(f"{place} is the name of the page's twin in Markdown", fix="give a name that ends in .html")
    text = encoded(page.page(report))
    try:
        runs.write_whole(place, text)
        if has_twin:
            runs.write_whole(twin, encoded(markdown.text(report, pictures=paths(report, twin))))
    except OSError as error:
        raise Problem(f"the report {place} can't be written: {error}", fix="give another place with --to") from None
    return Written(html=place, markdown=twin if has_twin else None, html_bytes=len(text), missing=account.missing)


def encoded(text: str) -> bytes:
    """Text as bytes; what is no character (a file name of another coding) is shown as a question mark."""
    return text.encode("utf-8", "replace")


def paths(report: Report, twin: Path) -> dict[str, str]:
    """Draw the charts beside the Markdown, and say where they and the pictures are, as seen from there."""
    folder = twin.with_suffix("")
    every = [block for section in report.sections for block in flat(section.blocks)]
    found: dict[str, str] = {}
    for chart in (block for block in every if isinstance(block, Chart)):
        picture = folder / f"{chart.name}.png"
        runs.write_whole(picture, look.png(chart.spec, scale=SCALE, width=WIDTH))
        found[chart.name] = linked(picture, twin)
    for block in every:
        if isinstance(block, Pictures):
            found |= {str(seen.path): linked(seen.path, twin) for seen in block.pictures}
    return found


def linked(path: Path, twin: Path) -> str:
    """A path as a link from the Markdown's folder."""
    return quote(os.path.relpath(path, twin.parent).replace(os.sep, "/"))


def flat(found: Iterable[Block]) -> Iterator[Block]:
    """Blocks with those inside of them."""
    for block in found:
        yield block
        if isinstance(block, Folded | Group):
            yield from flat(block.blocks)
        elif isinstance(block, Answer) and block.chart is not None:
            yield block.chart
