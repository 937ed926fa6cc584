"""A comparison as one HTML file that needs nothing else, whose table sorts and filters."""

import time
from collections.abc import Sequence
from dataclasses import replace

from stoker import units
from stoker.report import look, showcase
from stoker.report.blocks import Chart
from stoker.report.comparison import Comparison, ended, means
from stoker.report.comparison import charts as comparison_charts
from stoker.report.comparison.columns import BY_KEY, COLUMNS, Column, shared, text, value
from stoker.report.comparison.repeats import Cell
from stoker.report.page import beside, block, data, hashed, safe

# Columns with few values that one wants to see one of.
CHOICES = ("state", "model", "machine", "dtype")
TONES = {"done": "good", "running": "busy", "stopped": "busy", "killed": "bad"}
LONGEST = 40
"""characters of a choice"""


def html(comparison: Comparison) -> str:
    """The whole page."""
    scripts = (look.script(), beside("page.js"), beside("comparison/page.js"))
    allowed = " ".join(f"'sha256-{hashed(script)}'" for script in scripts)
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"
    count = units.count_text(sum(len(c.runs) for c in comparison.cells if not c.first.is_reported), "run")
    title = f"{count} side by side"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{safe(title)}</title>
<style>{beside("page.css")}{beside("comparison/page.css")}</style>
</head>
<body class="comparison">
<a class="skip" href="#table">To the table</a>
<main>
<header><h1>{safe(title)}</h1>{"".join(f'<p class="what">{safe(line)}</p>' for line in subtitle(comparison))}</header>
{filters(comparison.cells)}
{table(comparison)}
<div class="blocks">{"".join(map(block, drawn(comparison.cells)))}</div>
{meanings(comparison)}
</main>
<footer>Made by Stoker on {time.strftime("%Y-%m-%d %H:%M", time.localtime(comparison.at))}</footer>
{data("looks", {"light": look.LIGHT, "dark": look.DARK})}
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def subtitle(comparison: Comparison) -> list[str]:
    """What all lines have in common, and what was asked for."""
    same = shared(comparison.cells, COLUMNS)
    told = "; ".join(f"{BY_KEY[key].title} {said}" for key, said in same.items())
    lines = [f"The same for all: {told}" if told else ""]
    reported = sum(cell.first.is_reported for cell in comparison.cells)
    if comparison.target_percent is not None:
        lines.append(f"Target: {comparison.target_percent:g} % top-1")
    if reported:
        lines.append(f"{units.count_text(reported, 'line')} from {comparison.beside}, as reported there")
    return [line for line in lines if line]


def drawn(cells: Sequence[Cell]) -> list[Chart]:
    """The charts there is something to draw in."""
    made = {
        "accuracy": comparison_charts.accuracy(cells),
        "scaling": comparison_charts.scaling(cells),
        "speeds": comparison_charts.speeds(cells),
    }
    found = [showcase.chart(name, spec) for name, spec in made.items() if spec is not None]
    # The last of an odd number has a row of its own.
    return [replace(one, is_wide=len(found) % 2 == 1 and one is found[-1]) for one in found]


def filters(cells: Sequence[Cell]) -> str:
    """A box to type into, and a choice for each column with few values."""
    choices = []
    for key in CHOICES:
        column = BY_KEY[key]
        found = sorted({said for cell in cells if (said := text(cell, column))})
        if len(found) < 2:
            continue
        options = "".join(f'<option value="{safe(one)}">{safe(short(one))}</option>' for one in found)
        choices.append(f'<label>{safe(column.title)}<select data-key="{key}"><option value="">all</option>{options}'
                       "</select></label>")  # fmt: skip
    return f"""<form class="filters" role="search" aria-label="Filter the table">
<label class="words">filter<input type="search" placeholder="words that a line must have" autocomplete="off"></label>
{"".join(choices)}
<p class="quiet" role="status"></p>
</form>"""


def short(words: str) -> str:
    """Words that fit into a choice."""
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def table(comparison: Comparison) -> str:
    """The table, in a box of its own that scrolls both ways."""
    cells, same = comparison.cells, shared(comparison.cells, COLUMNS)
    columns = [
        column for column in COLUMNS
        if column.key not in (*same, "why") and any(text(cell, column) for cell in cells)
    ]  # fmt: skip
    fastest = max((cell.mean("samples_per_second") or 0.0 for cell in cells), default=0.0)
    # These have a bar below the number.
    most = {"top1_percent": 100.0, "samples_per_second": fastest}
    head = "".join(heading(comparison, column) for column in columns)
    body = "".join(line(cell, columns, most) for cell in cells)
    return f"""<div class="panel sheet" tabindex="0" role="region" aria-label="The runs" id="table">
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
<p class="none quiet" hidden>No line has all of that.</p></div>"""


def heading(comparison: Comparison, column: Column) -> str:
    """A column's head: a button that sorts by it."""
    meant = means(comparison, column)
    kind = ' class="num"' if column.is_number else ""
    told = f' title="{safe(meant)}"' if meant else ""
    return f'<th scope="col"{kind} aria-sort="none" data-key="{column.key}"><button type="button"{told}>' \
           f"{safe(column.title)}</button></th>"  # fmt: skip


def line(cell: Cell, columns: Sequence[Column], most: dict[str, float]) -> str:
    """A row of the table."""
    kind = ' class="reported"' if cell.first.is_reported else ""
    return f"<tr{kind}>{''.join(field(cell, column, most) for column in columns)}</tr>"


def field(cell: Cell, column: Column, most: dict[str, float]) -> str:
    """One field: its text, and what it is sorted by."""
    said, sorted_by = text(cell, column), value(cell, column)
    by = f' data-value="{safe(sorted_by)}"' if sorted_by is not None else ""
    shown = safe(said) if said is not None else '<span class="quiet">-</span>'
    if column.key == "run":
        why = ended(cell.first)
        told = f'<p class="why">{safe(why)}</p>' if why else ""
        return f'<th scope="row"{by}>{shown}{told}</th>'
    if column.key == "state":
        shown = f'<span class="chip {tone(cell)}">{shown}</span>'
    if sorted_by is not None and most.get(column.key, 0.0) > 0:
        shown += f'<i class="meter"><b style="width:{100 * sorted_by / most[column.key]:.1f}%"></b></i>'
    if column.key in ("settings", "packages"):
        # These may be long; the lines of the table stay low, and the rest is scrolled to.
        return f'<td class="long"{by}><div tabindex="0">{shown}</div></td>'
    kind = ' class="num"' if column.is_number else ""
    return f"<td{kind}{by}>{shown}</td>"


def tone(cell: Cell) -> str:
    """How a state is coloured."""
    if cell.first.is_reported and cell.first.status == "done":
        return "plain"
    return TONES.get(cell.first.status, "bad")


def meanings(comparison: Comparison) -> str:
    """What the columns mean."""
    pairs = "".join(
        f"<dt>{safe(column.title)}</dt><dd>{safe(means(comparison, column))}</dd>"
        for column in COLUMNS
        if column.meaning and any(text(cell, column) for cell in comparison.cells)
    )
    said = "± is the standard deviation over repeats; - was not measured, or is not there."
    return f'<details class="panel"><summary>What the columns mean</summary><p>{said}</p><dl>{pairs}</dl></details>'
