"""A report as one HTML file that needs nothing else: no network, no server, no fonts."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from stoker import records
from stoker.report import blocks, look
from stoker.report.blocks import Block, Report


def page(report: Report) -> str:
    """The whole page."""
    vega, own = look.script(), beside("page.js")
    allowed = " ".join(f"'sha256-{hashed(text)}'" for text in (vega, own))
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"
    looks = {"light": look.LIGHT, "dark": look.DARK}
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{safe(report.name)}: report</title>
<style>{beside("page.css")}</style>
</head>
<body>
<a class="skip" href="#first">To the report</a>
{navigation(report)}
<main id="first">
{first_screen(report)}
{"".join(map(section, report.sections))}
</main>
<footer>{safe(report.made)}</footer>
<noscript><p class="quiet noscript">The charts need JavaScript; all words and tables are here without it.</p></noscript>
{data("looks", looks)}
<script>{vega}</script>
<script>{own}</script>
</body>
</html>
"""


def safe(text: object) -> str:
    """Text that can't be markup: the only way for any text into the page."""
    return html.escape(str(text), quote=True)


def beside(name: str) -> str:
    """A file that lies beside this module."""
    return (files("stoker.report") / name).read_text(encoding="utf-8")


def hashed(script: str) -> str:
    """The hash by which the page's policy knows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def data(name: str, value: Any) -> str:
    """A value for the page's script, which nothing in it can leave."""
    text = json.dumps(records.finite(value), separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{safe(name)}">{text}</script>'


def navigation(report: Report) -> str:
    """The bar above: the run's name, and a way to each section."""
    links = "".join(f'<li><a href="#{safe(s.key)}">{safe(short(s.title))}</a></li>' for s in report.sections)
    home = f'<a class="home" href="#first">{safe(report.name)}</a>'
    return f'<nav aria-label="Sections"><div>{home}<ul>{links}</ul></div></nav>'


def short(title: str) -> str:
    """The first word of a title that says what it is about."""
    return {"Questions and answers": "Questions", "The machine meanwhile": "Machine",
            "What the network sees and answers": "Exhibits"}.get(title, title)  # fmt: skip


def first_screen(report: Report) -> str:
    """What, where, result, time, cost, state and verdict."""
    told = f'<span class="told">{safe(report.told)}</span>' if report.told else ""
    again = command(report.next) if report.next is not None else ""
    inner = "".join(map(block, report.verdict))
    return f"""<header>
<h1>{safe(report.name)}</h1>
<p class="state"><span class="chip {report.tone}">{safe(report.state)}</span>{told}</p>
<p class="what">{safe(report.what)}</p>
{again}
</header>
<div class="cards">{"".join(map(card, report.cards))}</div>
<section class="panel verdict" aria-labelledby="verdict"><h2 id="verdict">Verdict</h2>
<p class="sentence">{safe(report.sentence)}</p>{inner}</section>
<div class="pair">{"".join(map(facts, report.facts))}</div>
"""


def card(value: blocks.Card) -> str:
    """A figure that matters."""
    lines = "".join(f"<li>{safe(line)}</li>" for line in value.lines)
    unknown = "" if value.is_known else " unknown"
    return (
        f'<section class="panel card{unknown}"><h2>{safe(value.title)}</h2>'
        f'<p class="figure">{safe(value.value)}</p><ul>{lines}</ul></section>'
    )


def facts(value: blocks.Facts) -> str:
    """Names and values of one subject."""
    pairs = "".join(f"<dt>{safe(name)}</dt><dd>{safe(text)}</dd>" for name, text in value.pairs)
    return f'<section class="panel"><h2>{safe(value.title)}</h2><dl>{pairs}</dl></section>'


def section(value: blocks.Section) -> str:
    """A section with its heading."""
    text = f'<p class="quiet">{safe(value.text)}</p>' if value.text else ""
    inner = "".join(map(block, value.blocks))
    return (
        f'<section class="part" id="{safe(value.key)}"><h2>{safe(value.title)}</h2>{text}'
        f'<div class="blocks">{inner}</div></section>'
    )


def block(value: Block) -> str:
    """Any block."""
    match value:
        case blocks.Words():
            return f"<p>{safe(value.text)}</p>"
        case blocks.Points():
            return points(value.items)
        case blocks.Command():
            return command(value)
        case blocks.Table():
            return table(value)
        case blocks.Chart():
            return f'<div class="panel chart{" wide" if value.is_wide else ""}">{chart(value)}</div>'
        case blocks.Pictures():
            return pictures(value)
        case blocks.Quote():
            return f'<pre tabindex="0">{safe(value.text)}</pre>'
        case blocks.Answer():
            return answer(value)
        case blocks.Shares():
            return shares(value)
        case blocks.Folded():
            inner = "".join(map(block, value.blocks))
            return f"<details><summary>{safe(value.title)}</summary>{inner}</details>"
        case blocks.Group():
            text = f'<p class="quiet">{safe(value.text)}</p>' if value.text else ""
            inner = "".join(map(block, value.blocks))
            return f'<section class="panel group"><h3>{safe(value.title)}</h3>{text}{inner}</section>'


def points(items: Iterable[str]) -> str:
    """Things that stand beside each other."""
    listed = "".join(f"<li>{safe(item)}</li>" for item in items)
    return f'<ul class="points">{listed}</ul>' if listed else ""


def command(value: blocks.Command) -> str:
    """Something to type."""
    typed = f'<pre tabindex="0"><code>{safe(value.text)}</code></pre>'
    return f'<div class="command"><p>{safe(value.what)}</p>{typed}</div>'


def table(value: blocks.Table) -> str:
    """A table that scrolls in its own box where it is too wide."""

    def cell(place: int, text: str, colour: str | None) -> str:
        kinds = ["num"] * (place in value.right) + ["code"] * (place in value.code)
        attribute = f' class="{" ".join(kinds)}"' if kinds else ""
        mark = f'<i class="mark" style="background:{safe(colour)}"></i>' if colour and place == 0 else ""
        return f"<td{attribute}>{mark}{safe(text)}</td>"

    head = "".join(
        f'<th scope="col"{" class=num" if place in value.right else ""}>{safe(name)}</th>'
        for place, name in enumerate(value.columns)
    )
    colours = value.colours or (None,) * len(value.rows)
    body = "".join(
        f"<tr>{''.join(cell(place, text, colour) for place, text in enumerate(row))}</tr>"
        for row, colour in zip(value.rows, colours, strict=True)
    )
    note = f'<p class="quiet note">{safe(value.note)}</p>' if value.note else ""
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="table" tabindex="0">{whole}</div>{note}'


def chart(value: blocks.Chart) -> str:
    """A place that the page's script draws into, with its words and its data."""
    words = [f'<strong id="chart-{safe(value.name)}">{safe(value.title)}</strong>'] if value.has_title else []
    words += [f"<span>{safe(value.caption)}</span>"] if value.caption else []
    caption = f"<figcaption>{' '.join(words)}</figcaption>" if words else ""
    label = ". ".join(text for text in (value.title, value.caption) if text)
    place = f'<div class="plot" role="img" aria-label="{safe(label)}" data-chart="{safe(value.name)}"></div>'
    return f"<figure>{caption}{place}{data('spec-' + value.name, value.spec)}</figure>"


def pictures(value: blocks.Pictures) -> str:
    """Pictures with what they show, inside of the page."""
    shown = "".join(
        f'<figure><img loading="lazy" alt="{safe(seen.caption)}" '
        f'src="data:image/{safe(seen.kind)};base64,{base64.b64encode(seen.data).decode()}">'
        f"<figcaption>{safe(seen.caption)}</figcaption></figure>"
        for seen in value.pictures
    )
    note = f'<p class="quiet note">{safe(value.note)}</p>' if value.note else ""
    return f'<div class="pictures">{shown}</div>{note}'


def answer(value: blocks.Answer) -> str:
    """A question, its answer and what this rests on, beside its chart."""
    chip = "" if value.is_known else '<span class="chip plain">can&#x27;t tell</span> '
    see = ""
    if value.see is not None:
        see = f'<p class="quiet note"><a href="#chart-{safe(value.see.name)}">Chart: {safe(value.see.title)}</a></p>'
    drawn = chart(value.chart) if value.chart is not None else ""
    kinds = "panel answer" + ("" if value.is_known else " unknown")
    if value.chart is not None:
        kinds += " wide" if value.chart.is_wide else " drawn"
    return (
        f'<section class="{kinds}" id="question-{safe(value.key)}"><div><h3>{safe(value.asked)}</h3>'
        f"<p>{chip}{safe(value.answer)}</p>{see}</div>{drawn}{points(value.evidence)}</section>"
    )


def shares(value: blocks.Shares) -> str:
    """Parts of a whole as one bar, with their names below."""
    bar, names = [], []
    for part in value.parts:
        name, text, colour = safe(part.name), safe(part.text), safe(part.colour)
        bar.append(f'<i style="flex-grow:{part.share:.4f};background:{colour}" title="{name}: {text}"></i>')
        names.append(f'<li><i class="mark" style="background:{colour}"></i>{name} <b>{text}</b></li>')
    names.append(f"<li>of {safe(value.of)}</li>")
    return f'<div class="bar" aria-hidden="true">{"".join(bar)}</div><ul class="legend">{"".join(names)}</ul>'
