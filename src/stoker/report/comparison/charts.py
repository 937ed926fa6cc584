"""Charts of a comparison: pure functions from its lines to Vega-Lite. None where there is nothing to draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker.report import look
from stoker.report.comparison.columns import BY_KEY, text
from stoker.report.comparison.repeats import SCALINGS, Cell, Scaling, alike, efficiency
from stoker.report.drawing import TIMES, fitting, framed, short
from stoker.report.look import Chart

# Beyond this, bars are lines and names can't be read.
MOST_BARS, MOST_NAMES = 30, 12
BAR_HEIGHT = 26
NAME_CHARS = 22
OTHERS = "others"
LINES = "lines: standard deviation over repeats"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Lines that differ by the number of processes alone."""

    scaling: Scaling
    cells: tuple[Cell, ...]


def accuracy(cells: Sequence[Cell]) -> Chart | None:
    """Top-1 against what it took: dollars where all have a price, else time. A line is a spread."""
    import altair as alt

    scored = [c for c in cells if c.mean("top1_percent") is not None and c.mean("wall_seconds") is not None]
    if len(scored) < 2:
        return None
    by_cost = all(cell.mean("dollars") for cell in scored)
    unit = fitting(max(cell.mean("wall_seconds") or 0.0 for cell in scored), TIMES)
    key, size = ("dollars", 1.0) if by_cost else ("wall_seconds", unit.size)
    series = names([cell.first.model or "not known" for cell in scored])
    points = [
        {**ends(cell, "top1_percent", 1.0, "y"), **ends(cell, key, size, "x"), "model": model, **told(cell)}
        for cell, model in zip(scored, series, strict=True)
    ]
    chart = alt.Chart(alt.InlineData(values=points))
    x = alt.X("x:Q", title="cost (dollars)" if by_cost else f"time ({unit.name})", scale=alt.Scale(zero=False))
    y = alt.Y("y:Q", title="top-1 (%)", scale=alt.Scale(zero=False))
    colour = coloured("model", series)
    tips = tooltips("top1_percent", "wall_seconds", "dollars", "samples_per_second")
    dots = chart.mark_point(filled=True, size=110, opacity=0.9).encode(x, y, colour, tooltip=tips)
    up = chart.mark_rule(strokeWidth=1.5).encode(x, alt.Y("y_low:Q"), alt.Y2("y_high:Q"), colour)
    across = chart.mark_rule(strokeWidth=1.5).encode(alt.X("x_low:Q"), alt.X2("x_high:Q"), y, colour)
    title = "Accuracy and what it cost" if by_cost else "Accuracy and how long it took"
    return framed(alt.layer(up, across, dots, *labels(points, x, y)), title=title, subtitle=[LINES], height=280)


def labels(points: Sequence[dict[str, Any]], x: Any, y: Any) -> list[Any]:
    """The names of points, where these are few: on the side of each on which there is room."""
    import altair as alt

    if len(points) > MOST_NAMES:
        return []
    middle = (min(point["x"] for point in points) + max(point["x"] for point in points)) / 2
    found = []
    for sign in (1, -1):
        mine = [point for point in points if (point["x"] <= middle) == (sign == 1)]
        if mine:
            chart = alt.Chart(alt.InlineData(values=mine))
            text = chart.mark_text(
                style="aside", align="left" if sign == 1 else "right", dx=9 * sign, dy=-9, tooltip=False, limit=150
            )
            found.append(text.encode(x, y, alt.Text("_run:N")))
    return found


def speeds(cells: Sequence[Cell]) -> Chart | None:
    """Samples a second of each line, the fastest first, with the spread over repeats."""
    import altair as alt

    known = [cell for cell in cells if cell.mean("samples_per_second") is not None]
    cut = f"the fastest {MOST_BARS} of {len(known)}" if len(known) > MOST_BARS else ""
    known = sorted(known, key=lambda cell: -(cell.mean("samples_per_second") or 0.0))[:MOST_BARS]
    if len(known) < 2:
        return None
    labels = distinct([bar_name(cell) for cell in known])
    values = [
        {"name": label, "source": source(cell), **ends(cell, "samples_per_second", 1.0, "x"), **told(cell)}
        for label, cell in zip(labels, known, strict=True)
    ]
    chart = alt.Chart(alt.InlineData(values=values))
    y = alt.Y("name:N", title=None, sort=labels, axis=alt.Axis(labelLimit=170, ticks=False, domain=False))
    x = alt.X("x:Q", title="training (samples/s)", scale=alt.Scale(zero=True))
    colours = {"measured": look.BLUE, "reported": look.GREY}
    used = {name: shade for name, shade in colours.items() if any(value["source"] == name for value in values)}
    scale = alt.Scale(domain=list(used), range=list(used.values()))
    colour = alt.Color("source:N", scale=scale, legend=alt.Legend(columns=1) if len(used) > 1 else None)
    tips = tooltips("samples_per_second", "machine", "model", "batch", "processes", "dtype")
    bars = chart.mark_bar(height=14, cornerRadiusEnd=3).encode(x, y, colour, tooltip=tips)
    lines = chart.mark_rule(style="ink").encode(alt.X("x_low:Q"), alt.X2("x_high:Q"), y)
    return framed(alt.layer(bars, lines), title="Speed", subtitle=[cut, LINES],
                  height=BAR_HEIGHT * len(values))  # fmt: skip


def scaling(cells: Sequence[Cell]) -> Chart | None:
    """Samples a second by the number of processes, and what they would be without any loss."""
    import altair as alt

    groups = scaling_groups(cells)
    if not groups:
        return None
    series = names(scaling_texts(groups))
    points, ideal = [], []
    for number, (group, name) in enumerate(zip(groups, series, strict=True)):
        for cell in group.cells:
            count, share = cell.first.processes or 1, efficiency(cell, group.cells)
            base = (cell.samples_per_second_per_process or 0.0) / (share or 1.0)
            figure = ends(cell, "samples_per_second", 1.0, "y")
            points.append({"processes": count, "series": name, "group": number, **figure, **told(cell)})
            ideal.append({"processes": count, "series": name, "group": number, "y": short(base * count)})
    counts = sorted({point["processes"] for point in points})
    x = alt.X("processes:Q", title="processes", scale=alt.Scale(type="log", base=2, nice=False),
              axis=alt.Axis(values=counts, format="d"))  # fmt: skip
    y = alt.Y("y:Q", title="training (samples/s)", scale=alt.Scale(zero=True))
    colour = coloured("series", series)
    tips = tooltips("samples_per_second", "scaling_efficiency", "scaling_kind", "processes", "batch", "machine",
                    "model", "dtype")  # fmt: skip
    chart, straight = alt.Chart(alt.InlineData(values=points)), alt.Chart(alt.InlineData(values=ideal))
    # Of those that share a colour, each has its own line.
    apart = alt.Detail("group:N")
    layers = [
        straight.mark_line(strokeDash=[4, 4], strokeWidth=1.5, opacity=0.6).encode(x, y, colour, apart),
        chart.mark_line().encode(x, y, colour, apart),
        chart.mark_rule(strokeWidth=1.5).encode(x, alt.Y("y_low:Q"), alt.Y2("y_high:Q"), colour),
        chart.mark_point(filled=True, size=90, opacity=1).encode(x, y, colour, tooltip=tips),
    ]
    dashed = ["dashed: what it would be without any loss"]
    return framed(alt.layer(*layers), title="Scaling", subtitle=dashed, height=280)


def scaling_groups(cells: Sequence[Cell]) -> list[Group]:
    """The lines by which scaling is told, together with those it is measured by, which may be in several groups."""
    return [
        Group(scaling=scaling, cells=tuple(group))
        for scaling in SCALINGS
        for group in alike(cells, scaling).values()
        if any(cell.scaling_kind == scaling for cell in group)
    ]


def ends(cell: Cell, key: str, size: float, axis: str) -> dict[str, float]:
    """A figure and one standard deviation to each side, as a chart's fields."""
    figure = cell.figures[key]
    assert figure is not None
    spread = figure.spread or 0.0
    low, high = max(figure.mean - spread, 0.0), figure.mean + spread
    return {axis: short(figure.mean / size), f"{axis}_low": short(low / size), f"{axis}_high": short(high / size)}


def told(cell: Cell) -> dict[str, Any]:
    """A line in words, for tooltips."""
    return {f"_{key}": text(cell, column) or "not measured" for key, column in BY_KEY.items() if key in TIPS}


TIPS = ("run", "machine", "model", "batch", "processes", "dtype", "top1_percent", "samples_per_second", "wall_seconds",
        "dollars", "scaling_efficiency", "scaling_kind")  # fmt: skip


def tooltips(*keys: str) -> list[Any]:
    """What is told of a line where the pointer rests: its name, and some columns."""
    import altair as alt

    return [alt.Tooltip(f"_{key}:N", title=BY_KEY[key].title) for key in ("run", *keys)]


def coloured(field: str, series: Sequence[str]) -> Any:
    """A colour for each series; the legend only where there are several."""
    import altair as alt

    domain = list(dict.fromkeys(series))
    legend = alt.Legend(columns=1, labelLimit=330) if len(domain) > 1 else None
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=domain, range=list(look.LINES[: len(domain)])), legend=legend)


def names(series: Sequence[str]) -> list[str]:
    """The names of series; beyond those that have a colour, all are called others."""
    own = list(dict.fromkeys(series))
    kept = own if len(own) <= len(look.LINES) else own[: len(look.LINES) - 1]
    return [name if name in kept else OTHERS for name in series]


def scaling_texts(groups: Sequence[Group]) -> list[str]:
    """What each group is, in words, without those that are the same for all."""
    parts = []
    for group in groups:
        row = group.cells[0].first
        is_each = group.scaling == SCALINGS[0]
        batch = f"{(row.batch or 0) / (row.processes or 1):g} each" if is_each else f"{row.batch} in all"
        parts.append((row.model, row.name if row.is_reported else row.device, row.dtype, batch))
    differ = [place for place in range(4) if len({part[place] for part in parts}) > 1]
    texts = [", ".join(str(part[place]) for place in differ if part[place]) or "measured" for part in parts]
    return distinct(texts)


def source(cell: Cell) -> str:
    """Where a line comes from."""
    return "reported" if cell.first.is_reported else "measured"


def bar_name(cell: Cell) -> str:
    """A line by a name that fits beside a bar."""
    row = cell.first
    name = cell.name if len(cell.name) <= NAME_CHARS else f"{cell.name[: NAME_CHARS - 1]}…"
    # Reported lines have no names of their own, only those of their machines.
    is_told = row.is_reported and row.atom and row.processes
    return f"{name}, {row.processes} x {row.atom:g}" if is_told else name


def distinct(series: Sequence[str]) -> list[str]:
    """The same names, those that came before with a number."""
    seen: dict[str, int] = {}
    found = []
    for name in series:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
