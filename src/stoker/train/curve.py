"""The picture of a learning-rate range test: loss against rate, with the rates that matter marked."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import Problem

if TYPE_CHECKING:
    from stoker.train.range_test import RangeTest

# Okabe and Ito's colours, which people with any colour vision tell apart; the purple is darker, to be read.
BLUE, SKY, VERMILION, GREEN, PURPLE = "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#AA4488"
INK, GREY, PALE = "#1E2228", "#5B626C", "#E5E7EB"
WIDTH, HEIGHT, ROW = 700, 400, 19
# Rates nearer to each other than this share one mark.
SAME = 1.03


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A rate that matters."""

    name: str
    rate: float
    colour: str
    dash: tuple[int, ...]


def check_place(path: Path) -> None:
    """Refuse to begin what could not be drawn in the end."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise Problem(f"the curve can't be drawn: {error}", fix="pip install altair vl-convert-python") from None
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise Problem(f"{path} can't be written: {error}", fix="start in a folder that you may write to") from None


def draw(test: "RangeTest") -> None:
    """Write the picture of a test to its place, as a PNG with two pixels a point."""
    chart(test).save(str(test.picture), format="png", scale_factor=2)


def chart(test: "RangeTest") -> Any:
    """The picture as a chart: a point for each step's loss, a line for their mean, a rule for each mark."""
    import altair as alt

    marked = marks(test)
    low, high = span(test, rows=len(marked))
    reached = [*test.rates, *(mark.rate for mark in marked)]
    rate = alt.X(
        "rate:Q",
        scale=alt.Scale(type="log", nice=False, domain=[min(reached), max(reached)]),
        axis=alt.Axis(title=f"learning rate of a step of {test.batch:,} samples", format="~g", values=tens(reached)),
    )
    loss = alt.Y(
        "loss:Q",
        scale=alt.Scale(domain=[low, high], nice=False, zero=False),
        axis=alt.Axis(title="training loss (nats a sample)"),
    )
    each = alt.InlineData(values=[{"rate": r, "loss": value} for r, value in zip(test.rates, test.losses)])
    mean = alt.InlineData(values=[{"rate": r, "loss": value} for r, value in zip(test.rates, test.smoothed)])
    points = alt.Chart(each).mark_circle(size=28, color=SKY, opacity=0.8, clip=True).encode(rate, loss)
    line = alt.Chart(mean).mark_line(color=BLUE, strokeWidth=3, clip=True).encode(rate, loss)
    rules = [part for row, mark in enumerate(marked) for part in drawn(mark, row)]
    words = alt.TitleParams(
        "Learning-rate range test",
        subtitle=["points: loss of each step; line: mean of the steps around it", test.ended],
    )
    return (
        alt.layer(points, *rules, line)
        .properties(width=WIDTH, height=HEIGHT, title=words, padding=14, background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=14, titleFontSize=15, labelColor=INK, titleColor=INK, gridColor=PALE,
                        titleFontWeight="normal", titlePadding=10)
        .configure_title(fontSize=18, subtitleFontSize=14, subtitleColor=GREY, color=INK, anchor="start", offset=12)
    )  # fmt: skip


def tens(rates: list[float]) -> list[float]:
    """The powers of ten between the lowest and the highest rate."""
    lowest, highest = math.ceil(math.log10(min(rates))), math.floor(math.log10(max(rates)))
    return [10.0**power for power in range(lowest, highest + 1)]


def drawn(mark: Mark, row: int) -> list[Any]:
    """The line of a mark, and its name on the right of its upper end: lines of higher rates begin below that."""
    import altair as alt

    named = alt.InlineData(values=[{"rate": mark.rate, "name": f"{mark.name} {mark.rate:.2g}"}])
    at, top = alt.X("rate:Q"), alt.value(row * ROW)
    rule = alt.Chart(named).mark_rule(color=mark.colour, strokeWidth=2, strokeDash=list(mark.dash))
    text = alt.Chart(named).mark_text(
        color=mark.colour, fontSize=14, fontWeight="bold", align="left", dx=6, baseline="top"
    )
    return [rule.encode(at, y=top, y2=alt.value(HEIGHT)), text.encode(at, y=top, text="name:N")]


def marks(test: "RangeTest") -> list[Mark]:
    """The rates that matter, the lowest first; those that are the same share a name."""
    found: list[Mark] = []
    for name, rate, colour, dash in (
        ("steepest fall", test.steepest, VERMILION, (1, 0)),
        ("valley", test.valley, GREEN, (10, 3)),
        ("setting", test.setting, INK, (4, 4)),
        ("rule", test.rule, PURPLE, (2, 3)),
    ):
        if rate is None:
            continue
        same = next((m for m in found if max(m.rate / rate, rate / m.rate) < SAME), None)
        if same is None:
            found.append(Mark(name=name, rate=rate, colour=colour, dash=dash))
        else:
            found[found.index(same)] = Mark(
                name=f"{same.name} = {name}", rate=same.rate, colour=same.colour, dash=same.dash
            )
    return sorted(found, key=lambda mark: mark.rate)


def span(test: "RangeTest", *, rows: int) -> tuple[float, float]:
    """The lowest and highest loss that are drawn: the fall and the beginning of the rise, and room for names above."""
    if not test.losses:
        return 0.0, 1.0
    lowest, first = min(test.smoothed), max(test.smoothed[: test.smoothed.index(min(test.smoothed)) + 1])
    fall = max(first - lowest, 0.05 * abs(first), 1e-6)
    low = max(min(test.losses), lowest - fall) - 0.05 * fall
    high = min(max(test.losses), first + 0.8 * fall) + 0.05 * fall
    room = (rows + 0.5) * ROW / HEIGHT
    return low, low + (high - low) / (1 - room)
