"""Runs side by side: machine, model, batch, processes and precision -> accuracy, speed, use, time and cost."""

import csv as csvs
import io
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker import runs
from stoker.errors import Problem
from stoker.report import account
from stoker.report.comparison import beside as reported
from stoker.report.comparison import repeats
from stoker.report.comparison import row as comparison_row
from stoker.report.comparison.columns import APART, BY_KEY, COLUMNS, DEFINITIONS, Column, raw, shared, text
from stoker.report.comparison.repeats import Cell
from stoker.report.comparison.row import Row
from stoker.report.markdown import rows_text, safe
from stoker.runs import Run

# A run has its settings, and one of these besides: other programs have a config.json, too.
SIGNS = ("record.json", "ledger.jsonl", "metrics.jsonl")
# A text that begins like this is a formula for a spreadsheet that opens the file.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs side by side. Figures are means over repeats, with their standard deviation and number."""

    at: float
    """when it was made, in seconds since 1970"""
    cells: tuple[Cell, ...]
    """a line each: a run, or several that are repeats of each other; then what was reported"""
    target_percent: float | None = None
    """top-1 that times and costs were asked for"""
    dollars_per_hour: float | None = None
    """of runs whose settings have no price"""
    beside: str | None = None
    """the file with reported figures"""
    definitions: dict[str, str] = field(default_factory=lambda: dict(DEFINITIONS))
    """what the columns mean"""
    version: int = 1


def compare(
    folders: Sequence[Path],
    *,
    target: float | None = None,
    beside: Path | None = None,
    dollars_per_hour: float | None = None,
) -> Comparison:
    """Set runs side by side: run folders, names under runs/, and folders that hold runs; all under runs/ without any.

    A run that failed or can't be read stays a line that says so.
    """
    if target is not None and not 0 < target <= 100:
        raise Problem(f"the target is {target:g}", fix="give a top-1 in percent, such as 75")
    told = reported.cells(beside) if beside is not None else ()
    rows = [read(run, target=target, dollars_per_hour=dollars_per_hour) for run in found(folders)]
    cells = repeats.scaled((*repeats.grouped(named(rows)), *told))
    return Comparison(
        at=time.time(),
        cells=trimmed(cells),
        target_percent=target,
        dollars_per_hour=dollars_per_hour,
        beside=str(beside) if beside is not None else None,
    )


def read(run: Run, *, target: float | None, dollars_per_hour: float | None) -> Row:
    """The row of a run; where it can't be read, one that says why."""
    try:
        gathered = account.gather(run)
    except Problem as problem:
        return comparison_row.unread(run.folder, problem.what)
    except OSError as error:
        return comparison_row.unread(run.folder, f"{error.filename or run.folder} can't be read: {error.strerror}")
    # What is wrong with what was asked for is no fault of a run.
    return comparison_row.row(gathered, target=target, dollars_per_hour=dollars_per_hour)


def found(folders: Sequence[Path]) -> list[Run]:
    """The runs that are asked for, each once, in their order; those of a folder by name."""
    if not folders and not runs.ROOT.is_dir():
        raise Problem(f"there is no folder {runs.ROOT}/ with runs here", fix="start one with: stoker train demo")
    several: dict[Path, Run] = {}
    for folder in folders or (runs.ROOT,):
        place = next((p for p in (folder, runs.ROOT / folder) if Run(p).config.exists()), None)
        mine = [Run(place)] if place is not None else [run for p in (folder, runs.ROOT / folder) for run in below(p)]
        if not mine:
            # Says what runs there are.
            runs.open_run(folder)
        several |= {run.folder.resolve(): run for run in mine if run.folder.resolve() not in several}
    return list(several.values())


def below(folder: Path) -> Iterator[Run]:
    """Every run inside of a folder; what lies inside of a run is its own."""
    for place, folders, files in os.walk(folder):
        if "config.json" in files and any(sign in files for sign in SIGNS):
            folders.clear()
            yield Run(Path(place))
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def named(rows: Sequence[Row]) -> list[Row]:
    """The same rows; those that share a name are called by their folders."""
    names = [row.name for row in rows]
    return [replace(row, name=row.folder or row.name) if names.count(row.name) > 1 else row for row in rows]


def trimmed(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The same lines, of whose packages and settings only those are kept that differ between runs."""
    measured = [row for cell in cells for row in cell.runs if not row.is_reported]
    packages = differing([row.software.packages for row in measured if row.software.packages])
    chosen = differing([row.settings for row in measured if row.settings])

    def trim(row: Row) -> Row:
        if row.is_reported:
            return row
        software = replace(row.software, packages=kept(row.software.packages, packages))
        return replace(row, software=software, settings=kept(row.settings, chosen))

    return tuple(replace(cell, runs=tuple(trim(row) for row in cell.runs)) for cell in cells)


def kept(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Some of the values, by name."""
    return {name: values[name] for name in sorted(names) if name in values}


def differing(dictionaries: Sequence[dict[str, Any]]) -> set[str]:
    """The names whose values are not the same everywhere."""
    names = {name for one in dictionaries for name in one}
    return {name for name in names if any(one.get(name) != dictionaries[0].get(name) for one in dictionaries)}


def markdown(comparison: Comparison) -> str:
    """The comparison as a table in Markdown, with what ended the runs that are not done, and what the columns mean."""
    cells, same = comparison.cells, shared(comparison.cells, COLUMNS)
    columns = [c for c in COLUMNS if c.key not in (*same, *APART) and any(text(cell, c) for cell in cells)]
    rows = [[safe(said) if (said := text(cell, column)) else "-" for column in columns] for cell in cells]
    numbers = [place for place, column in enumerate(columns) if column.is_number]
    all_of_them = [f"- {safe(BY_KEY[key].title)}: {safe(said)}" for key, said in same.items()]
    early = [f"- **{safe(cell.name)}**: {safe(why)}" for cell in cells if (why := ended(cell.first))]
    told = [f"- {safe(column.title)}: {safe(means(comparison, column))}" for column in columns if column.meaning]
    parts = [
        ["The same for all:", "", *all_of_them] if all_of_them else [],
        [rows_text([safe(column.title) for column in columns], rows, numbers)],
        early,
        ["A dash was not measured, or is not there. ± is the standard deviation over repeats."],
        told,
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def ended(row: Row) -> str:
    """What ended a run that is not done, in one line; empty where it is done."""
    why = " ".join((row.why or "").split())
    return why if not why or why.startswith(row.status) else f"{row.status}, {why}"


def means(comparison: Comparison, column: Column) -> str:
    """What a column means, in words."""
    if column.key in ("target_seconds", "target_dollars") and comparison.target_percent is not None:
        return f"{column.meaning} ({comparison.target_percent:g} %)"
    return column.meaning


def csv(comparison: Comparison) -> str:
    """The comparison as CSV (RFC 4180): plain numbers, units in the header, empty where nothing was measured."""
    out = io.StringIO()
    writer = csvs.writer(out, lineterminator="\r\n")
    writer.writerow(name for column in COLUMNS for name in raw(None, column))
    for cell in comparison.cells:
        writer.writerow(harmless(value) for column in COLUMNS for value in raw(cell, column).values())
    return out.getvalue()


def harmless(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula: a text that begins like one gets a quote before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
