"""A report as Markdown, for those who read it where HTML is not shown: the same blocks in the same order."""

import re
from collections.abc import Iterable, Mapping

from stoker.report import blocks
from stoker.report.blocks import Block, Report

SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
# What would begin a heading, a list or a rule at the start of a line.
LEADING = re.compile(r"^(#{1,6}|[-+=]+|\d{1,9}[.)])(?=\s|$)")


def text(report: Report, *, pictures: Mapping[str, str]) -> str:
    """The whole report. `pictures` are the paths, from the Markdown's own folder, of charts and pictures by name."""
    told = f": {safe(report.told)}" if report.told else ""
    parts = [f"# {safe(report.name)}", safe(report.what), f"**{safe(report.state)}**{told}"]
    if report.next is not None:
        parts += command(report.next)
    parts += overview(report)
    parts += ["## Verdict", f"**{safe(report.sentence)}**", *all_of(report.verdict, pictures, level=3)]
    for facts in report.facts:
        parts += [f"## {safe(facts.title)}", rows_text(("", ""), [(name, safe(value)) for name, value in facts.pairs])]
    for section in report.sections:
        parts.append(f"## {safe(section.title)}")
        if section.text:
            parts.append(safe(section.text))
        parts += all_of(section.blocks, pictures, level=3)
    return "\n\n".join((*parts, "---", safe(report.made))) + "\n"


def safe(words: object) -> str:
    """Text that can't be markup, on one line: the only way for any text into the report."""
    line = " ".join(str(words).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A web address would become a link by itself, and @name would call someone.
    line = line.replace("://", ":&#47;/").replace("@", "&#64;").replace("www.", "www&#46;")
    return LEADING.sub(lambda found: f"{found[1][:-1]}\\{found[1][-1]}", SPECIAL.sub(r"\\\1", line))


def overview(report: Report) -> Iterable[str]:
    """Result, time and cost."""
    rows = [(safe(card.title), f"**{safe(card.value)}**", safe("; ".join(card.lines))) for card in report.cards]
    yield rows_text(("", "", ""), rows)


def all_of(found: Iterable[Block], pictures: Mapping[str, str], *, level: int) -> list[str]:
    """Some blocks, one after another."""
    return [line for each in found for line in block(each, pictures, level=level)]


def block(value: Block, pictures: Mapping[str, str], *, level: int) -> list[str]:
    """Any block."""
    mark = "#" * level
    match value:
        case blocks.Words():
            return [safe(value.text)]
        case blocks.Points():
            return points(value.items)
        case blocks.Command():
            return command(value)
        case blocks.Table():
            return table(value)
        case blocks.Chart():
            title = [f"{mark} {safe(value.title)}"] if value.has_title else []
            return [*title, *chart(value, pictures)]
        case blocks.Pictures():
            return seen(value, pictures)
        case blocks.Quote():
            return [fenced(value.text)]
        case blocks.Answer():
            return answer(value, pictures, mark)
        case blocks.Shares():
            return [
                ", ".join(f"{safe(part.name)} **{safe(part.text)}**" for part in value.parts) + f" of {safe(value.of)}"
            ]
        case blocks.Folded():
            inner = all_of(value.blocks, pictures, level=level + 1)
            return [f"<details><summary>{safe(value.title)}</summary>", *inner, "</details>"]
        case blocks.Group():
            told = [safe(value.text)] if value.text else []
            return [f"{mark} {safe(value.title)}", *told, *all_of(value.blocks, pictures, level=level + 1)]


def points(items: Iterable[str]) -> list[str]:
    """Things that stand beside each other."""
    listed = "\n".join(f"- {safe(item)}" for item in items)
    return [listed] if listed else []


def command(value: blocks.Command) -> list[str]:
    """Something to type."""
    return [safe(value.what) + ":", fenced(value.text, language="sh")]


def fenced(words: str, *, language: str = "") -> str:
    """Text as it is, in a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{words}\n{fence}"


def rows_text(columns: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[int] = ()) -> str:
    """A table of text that is safe already."""
    columns, numbers = tuple(columns), set(right)
    rule = ["---:" if place in numbers else "---" for place in range(len(columns))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, rule, *rows))


def table(value: blocks.Table) -> list[str]:
    """A table."""
    rows = [tuple(map(safe, row)) for row in value.rows]
    note = [safe(value.note)] if value.note else []
    return [rows_text(map(safe, value.columns), rows, value.right), *note]


def chart(value: blocks.Chart, pictures: Mapping[str, str]) -> list[str]:
    """A chart as a picture."""
    caption = [safe(value.caption)] if value.caption else []
    shown = [f"![{safe(value.title)}]({pictures[value.name]})"] if value.name in pictures else []
    return [*caption, *shown]


def seen(value: blocks.Pictures, pictures: Mapping[str, str]) -> list[str]:
    """Pictures, as they lie in the run's folder."""
    known = [(each, pictures[str(each.path)]) for each in value.pictures if str(each.path) in pictures]
    rows = [(f"![{safe(each.caption)}]({path})", safe(each.caption)) for each, path in known]
    return [*([rows_text(("", ""), rows)] if rows else []), *([safe(value.note)] if value.note else [])]


def answer(value: blocks.Answer, pictures: Mapping[str, str], mark: str) -> list[str]:
    """A question, its answer, what this rests on, and its chart."""
    known = safe(value.answer) if value.is_known else f"*Can't tell.* {safe(value.answer)}"
    drawn = chart(value.chart, pictures) if value.chart is not None else []
    return [f"{mark} {safe(value.asked)}", known, *points(value.evidence), *drawn]
