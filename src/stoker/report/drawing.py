"""What charts are drawn with: few enough points, units that fit, lines over time, and the frame that all have."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stoker.report.look import Chart
from stoker.units import seconds_text

Row = TypeVar("Row")
# More points than pixels say nothing more, and a page of many charts stays small.
POINTS = 400
HEIGHT = 240
# Longer lines would be cut off at the width of a phone, or leave no room for the chart.
SUBTITLE_CHARS, TITLE_CHARS = 58, 44
# Of names as short as this, four stand beside each other on a phone.
SHORT_NAME = 7
# Bands of more lines than this would hide each other.
BANDS = 3
# With more than this, their names would lie on each other.
NAMED = 4
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit that fits a span."""

    name: str
    size: float


TIMES = (
    Unit(name="milliseconds", size=1e-3),
    Unit(name="seconds", size=1.0),
    Unit(name="minutes", size=60.0),
    Unit(name="hours", size=3600.0),
    Unit(name="days", size=86400.0),
)
SIZES = tuple(Unit(name=name, size=1024.0**power) for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB")))


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A place where the axis of time leaves some time out."""

    name: str
    up_seconds: float
    """on the axis"""
    down_seconds: float
    """that are left out"""


class Data:
    """The rows of a chart by name. Altair gets the names alone: it would copy and check every row many times."""

    def __init__(self) -> None:
        """Begins without rows."""
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def chart(self, rows: Iterable[Mapping[str, Any]]) -> Any:
        """A chart of altair's over some rows."""
        import altair as alt

        name = f"rows{len(self.rows) + 1}"
        self.rows[name] = [dict(row) for row in rows]
        return alt.Chart(alt.NamedData(name))


def fitting(most: float, units: Sequence[Unit]) -> Unit:
    """The largest unit of which there are two or more, or the smallest."""
    return next((unit for unit in reversed(units) if abs(most) >= 2 * unit.size), units[0])


def chunks(rows: Sequence[Row], *, most: int = POINTS, least: int = 1) -> list[Sequence[Row]]:
    """Rows in groups of one size: at most so many groups, of at least so many rows; the last may be smaller."""
    size = max(math.ceil(len(rows) / most), least)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Mean, least and most of what was measured, and how many these were; None where nothing was."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    return {"mean": short(mean), "least": short(min(known)), "most": short(max(known)), "lines": len(known)}


def short(value: float) -> float:
    """A number with the six digits that a chart can show."""
    return float(f"{value:.6g}")


def lines_of(points: Iterable[Mapping[str, Any]]) -> int:
    """How many lines of a file a point stands for, at most."""
    return max((point["lines"] for point in points), default=1)


def thinned_text(points: Iterable[Mapping[str, Any]], what: str = "lines", *, is_banded: bool = True) -> str:
    """What a point stands for, where it stands for many lines."""
    count = lines_of(points)
    if count <= 1:
        return ""
    return f"each point is the mean of {count:,} {what}" + ("; band: least to most" if is_banded else "")


def cuts_text(cuts: Sequence[Cut]) -> str:
    """How often time is left out, and how much."""
    if not cuts:
        return ""
    count = cuts[0].name if len(cuts) == 1 else f"{len(cuts):,} {cuts[0].name}s"
    return f"dashed: {count}; {seconds_text(sum(cut.down_seconds for cut in cuts))} of down time left out"


def time_axis(field: str, unit: Unit, title: str = "time that the run was up") -> Any:
    """The axis of charts over time."""
    import altair as alt

    return alt.X(f"{field}:Q", title=f"{title} ({unit.name})", scale=alt.Scale(nice=False, zero=True))


def clock_tip() -> Any:
    """The wall clock, in tooltips of charts over time."""
    import altair as alt

    return alt.Tooltip("at:T", title="clock", format="%Y-%m-%d %H:%M:%S")


def rules(data: Data, named: Sequence[tuple[float, str]], axis: Any) -> list[Any]:
    """Thin dashed lines from top to bottom at some places, with their names where these have room."""
    import altair as alt

    if not named:
        return []
    values = [{"place": short(place), "name": name} for place, name in named]
    chart = data.chart(values)
    x = alt.X("place:Q", title=axis["title"], scale=axis["scale"])
    drawn = [chart.mark_rule(style="cut", tooltip=False).encode(x)]
    if len(named) <= NAMED:
        # The first is the paper around the letters of the second: they are read on any colour.
        for style in ("halo", "aside"):
            text = chart.mark_text(style=style, align="left", baseline="top", dx=4, dy=3, tooltip=False)
            drawn.append(text.encode(x, y=alt.value(0), text="name:N"))
    return drawn


def cut_rules(data: Data, cuts: Sequence[Cut], unit: Unit, axis: Any) -> list[Any]:
    """A line for each place where time is left out."""
    return rules(data, [(cut.up_seconds / unit.size, cut.name) for cut in cuts], axis)


def over_time(
    data: Data,
    points: Sequence[Mapping[str, Any]],
    *,
    unit: Unit,
    y: Any,
    colours: Mapping[str, str],
    cuts: Sequence[Cut] = (),
    since: str = "time that the run was up",
) -> Any:
    """Lines over time, each with the band that thinning left; broken where the run was down.

    A point has time, at (in milliseconds since 1970), part (of the run, between cuts), series, mean, least, most
    and lines.
    """
    import altair as alt

    x = time_axis("time", unit, since)
    seen = [name for name in colours if any(point["series"] == name for point in points)]
    columns = 4 if all(len(name) <= SHORT_NAME for name in seen) else 2
    legend = alt.Legend(columns=columns) if len(seen) > 1 else None
    colour = alt.Color("series:N", scale=alt.Scale(domain=seen, range=[colours[name] for name in seen]), legend=legend)
    tips = [
        alt.Tooltip("series:N"),
        alt.Tooltip("mean:Q", title=y["title"], format=".4~g"),
        alt.Tooltip("time:Q", title=f"time ({unit.name})", format=".4~g"),
        clock_tip(),
    ]
    base = data.chart(points)
    layers = []
    if lines_of(points) > 1 and len(seen) <= BANDS:
        low = alt.Y("least:Q", title=y["title"], scale=y["scale"])
        band = base.mark_area(opacity=0.2, tooltip=False)
        layers.append(band.encode(x, low, alt.Y2("most:Q"), colour, detail="part:N"))
    if lines_of(points) > 1:
        tips[2:2] = [alt.Tooltip("least:Q", format=".4~g"), alt.Tooltip("most:Q", format=".4~g")]
    layers.append(base.mark_line(strokeWidth=1.75, tooltip=False).encode(x, y, colour, detail="part:N"))
    # A line has one tooltip for its whole length; points that can't be seen have one each.
    lone = len(points) <= 2 * len(seen)
    layers.append(base.mark_circle(size=50, opacity=1 if lone else 0).encode(x, y, colour, tooltip=tips))
    return alt.layer(*layers, *cut_rules(data, cuts, unit, x))


def framed(
    chart: Any, *, title: str, subtitle: Iterable[str] = (), height: int = HEIGHT, data: Data | None = None
) -> Chart:
    """A chart of altair's as Vega-Lite: as wide as its place, with a title, and without settings."""
    import altair as alt

    name = title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"
    said = [text for text in subtitle if text]
    lines = [line for text in said for line in textwrap.wrap(text, SUBTITLE_CHARS)]
    whole = chart.properties(
        width="container",
        height=height,
        title=alt.TitleParams(name, subtitle=lines) if lines else alt.TitleParams(name),
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    spec: Chart = whole.to_dict()
    spec.pop("config", None)
    if data is not None:
        spec["datasets"] = data.rows
    # For whoever shows the words beside the chart: each text whole, not in lines.
    spec["usermeta"] = {"subtitle": said}
    # Any minor version draws these; a page would warn of another one than its own.
    spec["$schema"] = SCHEMA
    return spec
