"""A small panel for a notebook, as HTML and as plain text. Every text in it is escaped.

Styles stand in the elements: viewers that show a notebook without running it drop style sheets. Colours of text are the
notebook's own, so that it looks right in light and dark themes.
"""

import base64
import html
from dataclasses import dataclass

from stoker.report.blocks import Part, Tone

# Of the word that says how things stand: dark enough for white letters on them.
TONES: dict[Tone, str] = {"good": "#00694b", "busy": "#0b5c94", "bad": "#a13d00", "plain": "#5b626c"}
EDGE = "rgba(128,128,128,.3)"
BOX = f"border:1px solid {EDGE};border-radius:10px;padding:12px 16px;max-width:980px;margin:4px 0;line-height:1.45"
MONO = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px"
QUIET = "opacity:.72"
# Rows of a table that are shown; a notebook is no place for thousands.
MOST_ROWS = 24


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of texts; the columns from `right` on are numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: int = 1


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a value says of itself."""

    title: str
    state: str = ""
    tone: Tone = "plain"
    sentence: str = ""
    progress: float | None = None
    """share of the way that is done"""
    facts: tuple[tuple[str, str], ...] = ()
    bar: tuple[Part, ...] = ()
    table: Table | None = None
    code: tuple[str, ...] = ()
    """lines to be read letter by letter: commands, and what a terminal would show"""
    notes: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()
    """as PNG, with their own background"""

    @property
    def html(self) -> str:
        """the panel"""
        head = f'<span style="font-weight:600;font-size:15px">{safe(self.title)}</span>'
        if self.state:
            chip = f"background:{TONES[self.tone]};color:#fff;border-radius:99px;padding:1px 10px;font-size:12px"
            head += f' <span style="{chip};font-weight:600;margin-left:8px">{safe(self.state)}</span>'
        parts = [f"<div>{head}</div>"]
        if self.progress is not None:
            parts.append(progress(self.progress))
        if self.sentence:
            parts.append(f'<div style="margin-top:6px">{safe(self.sentence)}</div>')
        parts += [facts(self.facts)] if self.facts else []
        parts += [bar(self.bar)] if self.bar else []
        parts += [table(self.table)] if self.table is not None and self.table.rows else []
        parts += [f'<pre style="{MONO};margin:8px 0 0;white-space:pre-wrap;background:none;color:inherit;padding:0">'
                  f"{safe(line)}</pre>" for line in self.code]  # fmt: skip
        parts += [f'<div style="margin-top:6px;{QUIET};font-size:13px">{safe(note)}</div>' for note in self.notes]
        if self.pictures:
            parts.append(f'<div style="margin-top:8px">{"".join(map(picture, self.pictures))}</div>')
        return f'<div class="stoker" style="{BOX}">{"".join(parts)}</div>'

    @property
    def text(self) -> str:
        """the same in plain letters, for viewers without HTML"""
        lines = [f"{self.title}: {self.state}" if self.state else self.title]
        lines += [f"{self.progress:.0%} done"] if self.progress is not None else []
        lines += [self.sentence] if self.sentence else []
        lines += [f"{name}: {value}" for name, value in self.facts]
        lines += [", ".join(f"{part.name} {part.text}" for part in self.bar)] if self.bar else []
        if self.table is not None:
            lines += ["  ".join(row) for row in (self.table.columns, *self.table.rows[:MOST_ROWS])]
        return "\n".join([*lines, *self.code, *self.notes])


def safe(text: object) -> str:
    """Text that can't be markup: the only way for any text into a panel."""
    return html.escape(str(text), quote=True)


def progress(share: float) -> str:
    """How far something is."""
    done = f"width:{min(max(share, 0.0), 1.0):.2%};height:100%;background:#1F7FBF;border-radius:99px"
    track = "background:rgba(128,128,128,.25);height:8px;border-radius:99px;overflow:hidden;margin:10px 0 2px"
    return f'<div style="{track}" role="progressbar" aria-valuenow="{share:.0%}"><div style="{done}"></div></div>'


def facts(pairs: tuple[tuple[str, str], ...]) -> str:
    """Names and values beside each other, as many in a line as fit."""
    cells = "".join(
        f'<span style="display:inline-block;margin:0 22px 2px 0"><span style="{QUIET}">{safe(name)}</span> '
        f'<span style="font-variant-numeric:tabular-nums;font-weight:600">{safe(value)}</span></span>'
        for name, value in pairs
    )
    return f'<div style="margin-top:6px">{cells}</div>'


def bar(parts: tuple[Part, ...]) -> str:
    """Parts of a whole as one bar, with their names below."""
    pieces = "".join(
        f'<span style="flex:{part.share:.4f} 1 0;background:{safe(part.colour)}" '
        f'title="{safe(part.name)}: {safe(part.text)}"></span>'
        for part in parts
    )
    mark = "display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:5px"
    names = "".join(
        f'<span style="display:inline-block;margin-right:16px"><span style="{mark};background:{safe(part.colour)}">'
        f"</span>{safe(part.name)} <b>{safe(part.text)}</b></span>"
        for part in parts
    )
    whole = "display:flex;height:14px;border-radius:4px;overflow:hidden;gap:1px;margin:10px 0 6px"
    return f'<div style="{whole}">{pieces}</div><div style="font-size:13px">{names}</div>'


def table(value: Table) -> str:
    """A table that scrolls in its own box where it is too wide."""
    line = f"border:0;border-bottom:1px solid {EDGE};padding:3px 14px 3px 0;background:none;white-space:nowrap"

    def cell(kind: str, place: int, text: str) -> str:
        align = "right" if place >= value.right else "left"
        weight = "600" if kind == "th" else "400"
        return f'<{kind} style="{line};text-align:{align};font-weight:{weight}">{safe(text)}</{kind}>'

    def row(kind: str, texts: tuple[str, ...]) -> str:
        return f'<tr style="background:none">{"".join(cell(kind, n, text) for n, text in enumerate(texts))}</tr>'

    body = "".join(row("td", texts) for texts in value.rows[:MOST_ROWS])
    left = len(value.rows) - MOST_ROWS
    more = f'<div style="{QUIET};font-size:13px">... and {left:,} more</div>' if left > 0 else ""
    style = "border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:0"
    whole = f'<table style="{style}"><thead>{row("th", value.columns)}</thead><tbody>{body}</tbody></table>'
    return f'<div style="overflow-x:auto;margin-top:8px">{whole}</div>{more}'


def picture(png: bytes) -> str:
    """A picture that lies in the notebook."""
    data = base64.b64encode(png).decode()
    # Two in a row where there is room; white paper in dark notebooks too.
    style = "width:calc(50% - 4px);min-width:300px;max-width:100%;background:#fff;padding:6px;box-sizing:border-box"
    return f'<img alt="" style="{style};border-radius:6px;margin:4px 4px 0 0" src="data:image/png;base64,{data}">'
