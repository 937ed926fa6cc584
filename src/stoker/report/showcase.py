"""Exhibits -> blocks of a report: matrices as charts, tables, pictures within a budget of bytes, text."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker import units
from stoker.records import Exhibit
from stoker.report.blocks import Block, Chart, Folded, Group, Pictures, Quote, Seen, Table, Words

# Pictures of a page, together. In a page a byte becomes one and a third.
MOST_BYTES = 2_400_000
MOST_PICTURES = 120
# Of a table, in sight, and folded.
FIRST_ROWS, MOST_ROWS = 12, 200
# A matrix of more classes is a picture only.
MOST_COLUMNS = 24
KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


def shown(exhibits: Iterable[Exhibit], folder: Path) -> Iterator[Block]:
    """What a task shows, with the pictures that lie beside it in a folder."""
    left = MOST_BYTES
    for number, exhibit in enumerate(exhibits):
        blocks: list[Block] = []
        if exhibit.kind == "matrix":
            blocks = list(matrix(exhibit, name=f"matrix-{number}"))
        elif exhibit.kind == "table":
            blocks = list(table(exhibit))
        elif exhibit.kind == "pictures":
            found = pictures(exhibit, folder, most_bytes=left)
            left -= sum(len(seen.data) for seen in found.pictures)
            blocks = [found]
        elif exhibit.text:
            blocks = [Quote(text=exhibit.text)]
        yield Group(title=exhibit.title, text=exhibit.caption, blocks=tuple(blocks) or (Words(text="It is empty."),))


def chart(name: str, spec: dict[str, Any]) -> Chart:
    """A chart whose title is no part of the drawing, so that it can be read, searched and wrapped."""
    rest = {key: value for key, value in spec.items() if key != "title"}
    given = spec.get("title") or ""
    title = given if isinstance(given, dict) else {"text": given}
    return Chart(
        name=name,
        title=str(title.get("text", "")),
        caption="; ".join(spec["usermeta"]["subtitle"]),
        spec=rest,
        is_wide=name in ("ledger", "planned") or name.startswith("matrix"),
    )


def matrix(exhibit: Exhibit, *, name: str) -> Iterator[Block]:
    """A heat map, and where it is small its numbers."""
    from stoker.report import charts

    spec = charts.matrix(exhibit)
    if spec is not None:
        drawn = chart(name, spec)
        yield replace(drawn, has_title=drawn.title != exhibit.title)
    if 0 < len(exhibit.columns) <= MOST_COLUMNS and len(exhibit.rows) == len(exhibit.columns):
        rows = tuple((name, *map(cell, row)) for name, row in zip(exhibit.columns, exhibit.rows))
        right = tuple(range(1, len(exhibit.columns) + 1))
        yield Folded(
            title="The numbers", blocks=(Table(columns=("", *map(cell, exhibit.columns)), rows=rows, right=right),)
        )


def table(exhibit: Exhibit) -> Iterator[Block]:
    """A table as it was written: its first rows, and more of them behind."""
    columns = tuple(map(cell, exhibit.columns))
    rows = tuple(tuple(map(cell, row)) for row in exhibit.rows[:MOST_ROWS])
    right = tuple(
        place for place in range(len(columns))
        if exhibit.rows and all(place < len(row) and is_number(row[place]) for row in exhibit.rows)
    )  # fmt: skip
    yield Table(columns=columns, rows=rows[:FIRST_ROWS], right=right)
    if len(rows) > FIRST_ROWS:
        left = len(exhibit.rows) - len(rows)
        note = f"{units.count_text(left, 'more row')} in exhibits/{exhibit.name}.json" if left else ""
        rest = Table(columns=columns, rows=rows[FIRST_ROWS:], right=right, note=note)
        yield Folded(title=f"{units.count_text(len(rest.rows), 'more row')}", blocks=(rest,))


def is_number(value: object) -> bool:
    """Whether a cell is a number, or not known."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def cell(value: object) -> str:
    """A value of a table as people read it."""
    if value is None:
        return "not measured"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def pictures(exhibit: Exhibit, folder: Path, *, most_bytes: int) -> Pictures:
    """The pictures that can be read, as many as fit."""
    found: list[Seen] = []
    unread = too_much = 0
    for picture in exhibit.pictures:
        path = folder / picture.file
        if not path.is_file():
            unread += 1
            continue
        size = path.stat().st_size
        if size > most_bytes or len(found) >= MOST_PICTURES:
            too_much += 1
            continue
        data = path.read_bytes()
        kind = next((name for start, name in KINDS.items() if data.startswith(start)), None)
        if kind is None:
            unread += 1
            continue
        most_bytes -= size
        found.append(Seen(path=path, kind=kind, data=data, caption=picture.caption))
    notes = []
    if too_much:
        notes.append(f"{units.count_text(too_much, 'more picture')} in {folder}, left out to keep this page small")
    if unread:
        notes.append(f"{units.count_text(unread, 'picture')} can't be read")
    return Pictures(pictures=tuple(found), note="; ".join(notes))
