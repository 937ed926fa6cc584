"""The commands that show runs: each parses, calls api and prints the value."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from stoker import api, comparison_shown, units
from stoker.api import looks
from stoker.errors import Problem
from stoker.report import comparison
from stoker.report.comparison import page as comparison_page
from stoker.runs import ROOT, write_whole
from stoker.shown import answer, console

RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
RunFolders = Annotated[tyro.conf.Positional[list[Path]], tyro.conf.arg(metavar="RUNS")]


def report(
    run: RunFolder, /, *, dollars_per_hour: float | None = None, to: Path | None = None, json: bool = False
) -> int:
    """Write all there is to know of a run as one page, with charts and answers

    Args:
        run: the run's folder or name; it may be running, done, killed or resumed
        dollars_per_hour: what an hour costs on all its machines together, where its settings do not say
        to: where the page goes, an .html file; its twin in Markdown goes beside it
        json: print where they are as JSON
    """
    return answer(api.report(run, dollars_per_hour=dollars_per_hour, to=to), json=json, show=written)


def written(value: Any) -> None:
    """Where a report is."""
    out = console()
    out.print(f"page     {value.html} ({units.bytes_text(value.html_bytes)}; needs no network)", markup=False)
    if value.markdown is not None:
        out.print(f"twin     {value.markdown}", markup=False)
    for what in value.missing:
        out.print(f"missing  {what}", markup=False)


def compare(
    runs: RunFolders = [],  # noqa: B006
    /,
    *,
    target: float | None = None,
    beside: Path | None = None,
    dollars_per_hour: float | None = None,
    format: Literal["table", "markdown", "csv", "html"] = "table",  # noqa: A002
    to: Path | None = None,
    json: bool = False,
) -> int:
    """Set runs side by side: what they reached, how fast, at what cost, on what

    Args:
        runs: run folders, names under runs/, or folders that hold runs; without any, all under runs/
        target: also say when a held-out top-1 of so many percent was reached, and what it cost
        beside: a CSV of what others reported, to be shown beside
        dollars_per_hour: what an hour costs, for runs whose settings do not say
        format: a table for the terminal, Markdown, CSV, or a page that sorts and filters
        to: a file to write it to, in the format that its ending says
        json: print the answer as JSON
    """
    found = api.compare(runs, target=target, beside=beside, dollars_per_hour=dollars_per_hour)
    kind = FORMATS.get(to.suffix, "") if to is not None else format
    if not kind:
        raise Problem(f"{to} ends in nothing that is known", fix=f"let it end in one of {', '.join(FORMATS)}")
    if json or kind == "table":
        return answer(found, json=json, show=comparison_shown.comparison)
    text = {"markdown": comparison.markdown, "csv": comparison.csv, "html": comparison_page.html}[kind](found)
    if to is None:
        print(text, end="")
        return 0
    try:
        write_whole(to, text)
    except OSError as error:
        raise Problem(f"{to} can't be written: {error}", fix="give another place with --to") from None
    print(to)
    return 0


FORMATS = {".md": "markdown", ".csv": "csv", ".html": "html"}


def watch(
    runs: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUNS")] = ROOT,
    /,
    *,
    host: str = looks.HOST,
    port: int = looks.PORT,
    token: str | None = None,
    terminal: bool = False,
) -> int:
    """Show all runs under a folder as they go, on a live page or in the terminal

    Args:
        runs: the folder that holds the runs, or a run's
        host: the address to listen on; any other than this machine's own needs a token
        port: the port to listen on
        token: what a browser must know to be let in; auto makes one, which others can't read in the process list
        terminal: show them in this terminal instead of a page
    """
    api.watch(runs, host=host, port=port, token=token, terminal=terminal)
    return 0
