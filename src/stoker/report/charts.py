"""Charts of a run: pure functions from rows to Vega-Lite. None where there is nothing to draw.

Every chart is as wide as its place, holds its data, and has a title, a unit on every axis and tooltips. `look` gives it
colours for light and dark pages, or makes a picture of it.
"""

from collections.abc import Sequence
from typing import Any

from stoker.plan.history import Past
from stoker.records import MetricRow
from stoker.report import look
from stoker.report.drawing import (
    POINTS,
    SIZES,
    TIMES,
    Data,
    chunks,
    fitting,
    framed,
    lines_of,
    short,
    spread,
    thinned_text,
)
from stoker.report.heat_map import matrix
from stoker.report.ledger_charts import ledger, step_times, throughput
from stoker.report.look import Chart
from stoker.report.questions.traffic import Pair
from stoker.units import percent_text, seconds_text

__all__ = [
    "ledger", "losses", "matrix", "planned", "rates", "scores", "step_times", "throughput", "traffic",
]  # fmt: skip

TRAIN, HELD_OUT = "train", "held-out"
# Warm is held-out and cool is train, in every chart.
SERIES = {
    "held-out top-1": look.VERMILION,
    "held-out top-5": look.ORANGE,
    "train top-1": look.BLUE,
    "train top-5": look.SKY,
}


def losses(training: Sequence[MetricRow], evaluations: Sequence[MetricRow]) -> Chart | None:
    """The loss while training and on held-out samples, step by step, with the lowest marked."""
    import altair as alt

    data = Data()
    trained, held = _points(training, "loss", TRAIN), _points(evaluations, "loss", HELD_OUT)
    if not trained and not held:
        return None
    y = alt.Y("mean:Q", title="loss (nats a sample)", scale=alt.Scale(zero=False))
    colour = alt.Color(
        "series:N", scale=alt.Scale(domain=[TRAIN, HELD_OUT], range=[look.BLUE, look.VERMILION]), legend=alt.Legend()
    )
    layers = _lines(data, trained, held, y=y, colour=colour)
    told = []
    if held:
        low = min(held, key=lambda point: point["mean"])
        layers.append(_ring(data, low, y))
        told.append(f"lowest held-out loss {low['mean']:.4g} {_place(low)}")
    return framed(alt.layer(*layers), data=data, title="Loss", subtitle=[*told, thinned_text(trained)])


def scores(training: Sequence[MetricRow], evaluations: Sequence[MetricRow]) -> Chart | None:
    """The share of samples that were right, while training and held-out, with the best marked."""
    import altair as alt

    data = Data()
    trained = [p for k, name in ((1, "train top-1"), (5, "train top-5")) for p in _points(training, f"top{k}", name)]
    held = [p for k in (1, 5) for p in _points(evaluations, f"top{k}", f"held-out top-{k}")]
    if not trained and not held:
        return None
    seen = [name for name in SERIES if any(point["series"] == name for point in (*trained, *held))]
    y = alt.Y("mean:Q", title="right (% of samples)", scale=alt.Scale(domainMax=100, nice=False, zero=True))
    colour = alt.Color(
        "series:N", scale=alt.Scale(domain=seen, range=[SERIES[name] for name in seen]), legend=alt.Legend(columns=2)
    )
    layers = _lines(data, trained, held, y=y, colour=colour)
    told = []
    first = [point for point in held if point["series"] == "held-out top-1"]
    if first:
        best = max(first, key=lambda point: point["mean"])
        layers.append(_ring(data, best, y))
        told.append(f"best held-out top-1 {best['mean']:.4g} % {_place(best)}")
    if trained:
        told.append("train: on augmented samples, while the network changes")
        told.append(thinned_text(trained))
    return framed(alt.layer(*layers), data=data, title="Scores", subtitle=told)


def rates(training: Sequence[MetricRow]) -> Chart | None:
    """The learning rate of each step."""
    import altair as alt

    known = [row for row in training if row.lr is not None]
    if not known:
        return None
    # The last of each group: a mean would be a rate that no step had.
    rows = [
        {"step": group[-1].step, "epoch": group[-1].epoch, "rate": short(group[-1].lr or 0.0)}
        for group in chunks(known)
    ]
    data = Data()
    line = data.chart(rows).mark_line(color=look.GREEN, point=len(rows) == 1)
    chart = line.encode(
        _step(),
        alt.Y("rate:Q", title="learning rate (of a step)", axis=alt.Axis(format="~g")),
        tooltip=[*_where(), alt.Tooltip("rate:Q", title="learning rate", format=".4~g")],
    )
    return framed(chart, data=data, title="Learning rate", height=180)


def traffic(pairs: Sequence[Pair]) -> Chart | None:
    """Step time against what the machine sent and received meanwhile: a point for some steps of a process."""
    import altair as alt

    if not pairs:
        return None
    size = fitting(max(pair.bytes_per_second for pair in pairs), SIZES)
    time = fitting(max(pair.step_seconds for pair in pairs), TIMES)
    ranks = sorted({pair.rank for pair in pairs})
    # A scatter is thinned by leaving points out: a mean of two clouds would lie between them.
    shown = [
        group[0]
        for rank in ranks
        for group in chunks([pair for pair in pairs if pair.rank == rank], most=max(2 * POINTS // len(ranks), 1))
    ]
    rows = [
        {"rate": short(p.bytes_per_second / size.size), "took": short(p.step_seconds / time.size),
         "process": f"process {p.rank}", "step": p.step, "steps": p.steps}
        for p in shown
    ]  # fmt: skip
    names = [f"process {rank}" for rank in ranks]
    few = 1 < len(names) <= len(look.LINES)
    colour: Any = alt.value(look.BLUE)
    if few:
        colour = alt.Color("process:N", scale=alt.Scale(domain=names, range=list(look.LINES[: len(names)])))
    data = Data()
    points = data.chart(rows).mark_circle(size=42, opacity=0.55).encode(
        alt.X("rate:Q", title=f"sent and received ({size.name}/s)"),
        alt.Y("took:Q", title=f"step ({time.name})", scale=alt.Scale(zero=False)),
        color=colour,
        tooltip=[
            alt.Tooltip("process:N"), alt.Tooltip("step:Q", title="step"),
            alt.Tooltip("steps:Q", title="mean of steps"),
            alt.Tooltip("took:Q", title=f"step ({time.name})", format=".4~g"),
            alt.Tooltip("rate:Q", title=f"traffic ({size.name}/s)", format=".4~g"),
        ],
    )  # fmt: skip
    told = f"{len(rows):,} of {len(pairs):,} points are drawn" if len(rows) < len(pairs) else ""
    return framed(points, data=data, title="Step time against network traffic", subtitle=[told])


def planned(past: Past) -> Chart | None:
    """What was planned, with its bounds, and what it took."""
    import altair as alt

    unit = fitting(max(past.high_seconds, past.actual_seconds), TIMES)
    row = {
        "low": short(past.low_seconds / unit.size), "high": short(past.high_seconds / unit.size),
        "planned": short(past.planned_seconds / unit.size), "took": short(past.actual_seconds / unit.size),
        "told": f"{seconds_text(past.low_seconds)} to {seconds_text(past.high_seconds)}",
    }  # fmt: skip
    data = Data()
    one = data.chart([row])
    title = f"time without the start and interruptions ({unit.name})"
    tips = [
        alt.Tooltip("planned:Q", title=f"planned ({unit.name})", format=".4~g"),
        alt.Tooltip("told:N", title="bounds"),
        alt.Tooltip("took:Q", title=f"took ({unit.name})", format=".4~g"),
    ]
    x = alt.X("low:Q", title=title, scale=alt.Scale(zero=True))
    band = one.mark_bar(size=26, color=look.SKY, opacity=0.45, cornerRadius=3).encode(
        x, alt.X2("high:Q"), tooltip=tips
    )  # fmt: skip
    tick = one.mark_tick(color=look.BLUE, thickness=3, size=26).encode(
        alt.X("planned:Q", title=title), tooltip=tips
    )  # fmt: skip
    point = one.mark_point(
        shape="diamond", size=150, filled=True, color=look.GREEN if past.held else look.VERMILION, opacity=1
    ).encode(alt.X("took:Q", title=title), tooltip=tips)  # fmt: skip
    way = "longer" if past.error > 0 else "shorter"
    told = [
        f"diamond: took {seconds_text(past.actual_seconds)}, {percent_text(abs(past.error))} {way} than planned",
        f"tick: planned {seconds_text(past.planned_seconds)}",
        f"band: its bounds, {row['told']}",
    ]
    return framed(alt.layer(band, tick, point), data=data, title="Plan and actual time", subtitle=told, height=50)


def _points(rows: Sequence[MetricRow], score: str, series: str) -> list[dict[str, Any]]:
    """A score of some rows as few enough points; rows without it are passed over."""
    known = [row for row in rows if row.scores.get(score) is not None]
    found = []
    for group in chunks(known):
        values = spread(row.scores[score] for row in group)
        if values is not None:
            place = {"series": series, "step": group[-1].step, "epoch": group[-1].epoch}
            found.append({**place, **values})
    return found


def _lines(data: Data, trained: list[dict[str, Any]], held: list[dict[str, Any]], *, y: Any, colour: Any) -> list[Any]:
    """Train dashed with the band that thinning left; held-out with its points."""
    import altair as alt

    tips = [alt.Tooltip("series:N"), *_where(), alt.Tooltip("mean:Q", title="value", format=".4~g")]
    if lines_of(trained) > 1:
        tips += [alt.Tooltip("least:Q", format=".4~g"), alt.Tooltip("most:Q", format=".4~g")]
    layers: list[Any] = []
    before, after = data.chart(trained), data.chart(held)
    if lines_of(trained) > 1:
        low = alt.Y("least:Q", title=y["title"], scale=y["scale"])
        layers.append(before.mark_area(opacity=0.2).encode(_step(), low, alt.Y2("most:Q"), colour))
    if trained:
        alone = len(trained) <= 2
        layers.append(before.mark_line(strokeWidth=1.5, point=alone).encode(_step(), y, colour, tooltip=tips))
    if held:
        layers.append(
            after.mark_line(point=alt.OverlayMarkDef(size=max(8, min(34, 900 // len(held))))).encode(
                _step(), y, colour, tooltip=tips
            )
        )
    return layers


def _ring(data: Data, point: dict[str, Any], y: Any) -> Any:
    return data.chart([point]).mark_point(style="ring", size=150).encode(_step(), y)


def _step() -> Any:
    import altair as alt

    return alt.X("step:Q", title="step (updates)", scale=alt.Scale(nice=False))


def _where() -> list[Any]:
    import altair as alt

    return [alt.Tooltip("step:Q", title="step", format=","), alt.Tooltip("epoch:Q", title="epoch")]


def _place(point: dict[str, Any]) -> str:
    return f"(epoch {point['epoch']}, step {point['step']:,})"
