"""A comparison as people read it in a terminal: as many columns as there is room for, the ones that matter first."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from stoker.report.comparison import Comparison, ended
from stoker.report.comparison.columns import APART, BY_KEY, COLUMNS, Column, shared, text
from stoker.report.comparison.repeats import Cell
from stoker.shown import console

# A file or a pipe has no edge.
WIDE = 1000
GAP = 2
LONGEST = 28
"""characters of a column of words, which is wrapped from there on"""
FEW = 20
"""lines up to which columns that do not fit follow in a table of their own"""
ABOVE = 7
"""what all lines share is said above the table up to this rank"""
STYLES = {"done": "green", "running": "cyan", "stopped": "yellow", "killed": "yellow"}


def comparison(value: Comparison) -> None:
    """Runs side by side, then why some of them ended early."""
    out = console()
    if not out.is_terminal:
        out.width = WIDE
    same = shared(value.cells, COLUMNS)
    above = [f"{BY_KEY[key].title} {said}" for key, said in same.items() if BY_KEY[key].rank <= ABOVE]
    if above:
        out.print(f"all      {', '.join(above)}", markup=False)
    if value.target_percent is not None:
        out.print(f"target   {value.target_percent:g} % top-1", markup=False)
    parts = portions(value.cells, width=out.width, same=same)
    shown_parts = parts if len(value.cells) <= FEW else parts[:1]
    for part in shown_parts:
        out.print(table(value.cells, part))
        out.print()
    for cell in value.cells:
        if why := ended(cell.first):
            out.print(Text.assemble((cell.name, "bold"), f": {why}"))
    if any(text(cell, column) is None for cell in value.cells for part in shown_parts for column in part):
        out.print("-        was not measured, or is not there")
    if any(len(cell.runs) > 1 for cell in value.cells):
        out.print("±        standard deviation over n repeats, which are alike in everything but the seed")
    if hidden := [column.title for part in parts[len(shown_parts) :] for column in part if column.key != "run"]:
        out.print(f"no room  for {', '.join(hidden)}: a wider terminal and --format html have them", markup=False)


def portions(cells: Sequence[Cell], *, width: int, same: dict[str, str]) -> list[list[Column]]:
    """The columns in portions that fit into a width, what matters most in the first. Each begins with the run."""
    asked = [
        column for column in COLUMNS
        if column.key not in same and column.key not in APART and any(text(cell, column) for cell in cells)
        and not (column.key == "repeats" and all(len(cell.runs) == 1 for cell in cells))
    ]  # fmt: skip
    run, parts = BY_KEY["run"], [[BY_KEY["run"]]]
    for column in sorted(asked, key=lambda column: column.rank):
        if column is run:
            continue
        fits = (part for part in parts if taken([*part, column], cells) <= width)
        if (part := next(fits, None)) is not None:
            part.append(column)
        else:
            parts.append([run, column])
    return [sorted(part, key=COLUMNS.index) for part in parts]


def taken(columns: Sequence[Column], cells: Sequence[Cell]) -> int:
    """Characters that a table of these columns takes."""
    return sum(column_width(column, cells) + GAP for column in columns) - GAP


def column_width(column: Column, cells: Sequence[Cell]) -> int:
    """Characters that a column takes."""
    longest = max(cell_len(text(cell, column) or "-") for cell in cells)
    return max(cell_len(column.title), longest if column.is_number else min(longest, LONGEST))


def table(cells: Sequence[Cell], chosen: Sequence[Column]) -> Table:
    """The table itself. What comes from runs is text, never markup."""
    found = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for column in chosen:
        width = column_width(column, cells)
        found.add_column(column.title, justify="right" if column.is_number else "left", overflow="fold",
                         no_wrap=column.is_number, min_width=width, max_width=width)  # fmt: skip
    for cell in cells:
        found.add_row(*(shown(cell, column) for column in chosen), style="dim" if cell.first.is_reported else None)
    return found


def shown(cell: Cell, column: Column) -> Text:
    """One field."""
    said = text(cell, column)
    if said is None:
        return Text("-", style="dim")
    if column.key == "state" and not cell.first.is_reported:
        return Text(said, style=STYLES.get(said, "red"))
    return Text(said, style="bold" if column.key == "run" else "")
