"""The chart of a matrix: which class is taken for which."""

from collections.abc import Sequence
from typing import Any

from stoker.records import Exhibit
from stoker.report.drawing import Data, framed
from stoker.report.look import Chart

LABEL_CHARS = 18
# With more classes than this, numbers no longer fit into cells.
NUMBERED = 12
# Of the largest number: cells of more are so strong that their numbers are written in the colour of the paper.
STRONG = 0.36


def matrix(exhibit: Exhibit) -> Chart | None:
    """A heat map of counts: true classes from top to bottom, the right answers in blue, the others in orange."""
    import altair as alt

    names = labels(exhibit.columns)
    cells: list[dict[str, Any]] = [
        {"true": names[i], "predicted": names[j], "count": value, "right": i == j}
        for i, row in enumerate(exhibit.rows[: len(names)])
        for j, value in enumerate(row[: len(names)])
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if not cells:
        return None
    data = Data()
    is_small = len(names) <= NUMBERED
    # One scale for both, so that equal strength is an equal count; the root shows the few among the many.
    most = max(*(cell["count"] for cell in cells), 1)
    # In the middle of a scale of roots lies a quarter.
    ticks = sorted({0, round(most / 4), most})
    x, y = _axes(names, alt)
    tips = [alt.Tooltip("true:N"), alt.Tooltip("predicted:N"), alt.Tooltip("count:Q", title="samples", format=",")]
    layers = []
    for name, is_right, colours in (("right", True, "heatmap"), ("wrong", False, "ramp")):
        scale = alt.Scale(type="sqrt", range=colours, domain=[0, most])
        legend = None if is_small else alt.Legend(title=f"{name} (samples)", gradientLength=110, values=ticks)
        chart = data.chart(_bare(cell) for cell in cells if cell["right"] == is_right)
        colour = alt.Color("count:Q", scale=scale, legend=legend)
        layers.append(chart.mark_rect(style="tile").encode(x, y, colour, tooltip=tips))
    for style, is_strong in (("on_strong", True), ("on_weak", False)):
        told = [_bare(cell) for cell in cells if cell["count"] and (cell["count"] > STRONG * most) == is_strong]
        if is_small and told:
            layers.append(data.chart(told).mark_text(style=style).encode(x, y, text="count:Q", tooltip=tips))
    whole = alt.layer(*layers).resolve_scale(color="independent")
    return framed(
        whole,
        title=exhibit.title,
        subtitle=["blue: right; orange: wrong; stronger: more samples"],
        height=min(len(names) * (32 if is_small else 16), 640),
        data=data,
    )


def _axes(names: list[str], alt: Any) -> tuple[Any, Any]:
    """The predicted class from left to right, and the true one from top to bottom."""
    axis = alt.Axis(labelAngle=-45, labelOverlap=False) if len(names) <= NUMBERED else alt.Axis(labelAngle=-90)
    scale = alt.Scale(domain=names, padding=0)
    return (
        alt.X("predicted:N", title="predicted (class)", sort=None, scale=scale, axis=axis),
        alt.Y("true:N", title="true (class)", sort=None, scale=scale),
    )


def _bare(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cell.items() if key != "right"}


def labels(columns: Sequence[str]) -> list[str]:
    """Names short enough for an axis, and still different from each other."""
    found: dict[str, None] = {}
    for name in columns:
        text = " ".join(str(name).split()) or "(no name)"
        # The end of a name tells as much as its beginning.
        half = LABEL_CHARS // 2
        label = base = text if len(text) <= LABEL_CHARS else f"{text[:half]}…{text[1 - half :]}"
        number = 1
        while label in found:
            number += 1
            label = f"{base} ({number})"
        found[label] = None
    return list(found)
