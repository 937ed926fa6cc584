"""Charts of the ledger: where the time went, how fast samples went by, how long steps took."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.machine.evidence import STEP_BUCKETS
from stoker.records import LedgerRow
from stoker.report import drawing, look
from stoker.report.drawing import TIMES, Cut, Data, chunks, fitting, framed, short, spread
from stoker.report.look import Chart
from stoker.units import seconds_text

# What is counted for the whole run, and still happens at a certain time.
BEGINNING = ("setup", "compile", "restore")
INTERVALS = 160
BARS = 40
ROW = 24


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A line of the ledger at its time, without the time in which the run was down."""

    start_seconds: float
    """for which the run had been up"""
    end_seconds: float
    at: float
    attempt: int
    step: int
    steps: int
    samples: int
    seconds: dict[str, float]
    """since the line before, by bucket; what was not measured is not there, what is not known here is in `other`"""

    @property
    def stepping_seconds(self) -> float:
        """without checkpoints, evaluations and the start"""
        return sum(self.seconds.get(bucket, 0.0) for bucket in STEP_BUCKETS)


@dataclass(frozen=True, kw_only=True)
class Course:
    """The ledger of a process, from its start to its end."""

    intervals: tuple[Interval, ...]
    cuts: tuple[Cut, ...]
    not_measured: tuple[str, ...]
    """buckets that some line has no time for"""


def course(rows: Sequence[LedgerRow]) -> Course:
    """The lines of the first process one after the other, and where it was started again."""
    rank = min((row.rank for row in rows), default=0)
    mine = [row for row in rows if row.rank == rank]
    found: list[Interval] = []
    cuts: list[Cut] = []
    up_seconds = 0.0
    for before, row in zip((None, *mine), mine):
        seconds = _known(before, row)
        took = sum(seconds.values())
        if before is not None and row.attempt == before.attempt:
            took = max(row.at - before.at, 0.0)
        elif before is not None:
            down_seconds = max(row.at - before.at - took, 0.0)
            cuts.append(Cut(name="restart", up_seconds=up_seconds, down_seconds=down_seconds))
        found.append(
            Interval(start_seconds=up_seconds, end_seconds=up_seconds + took, at=row.at, attempt=row.attempt,
                     step=row.step, steps=row.steps, samples=row.samples, seconds=seconds)
        )  # fmt: skip
        up_seconds += took
    missing = {bucket for row in mine for bucket, value in row.seconds.items() if value is None}
    return Course(
        intervals=tuple(found),
        cuts=tuple(cuts),
        not_measured=tuple(bucket for bucket in look.COLOURS if bucket in missing),
    )


def _known(before: LedgerRow | None, row: LedgerRow) -> dict[str, float]:
    """What was measured between two lines, with what belongs to the start of the run."""
    totals = before.totals if before is not None else {}
    grown = {bucket: (row.totals.get(bucket) or 0.0) - (totals.get(bucket) or 0.0) for bucket in BEGINNING}
    found: dict[str, float] = {}
    for bucket, value in (*row.seconds.items(), *grown.items()):
        if value is not None and value > 0:
            name = bucket if bucket in look.COLOURS else "other"
            found[name] = found.get(name, 0.0) + value
    return found


def _groups(intervals: Sequence[Interval], *, most: int) -> list[Sequence[Interval]]:
    """Intervals in few enough groups, none with two starts of the run in it."""
    starts = sorted({one.attempt for one in intervals})
    size = max(math.ceil(len(intervals) / most), 1)
    parts = [[one for one in intervals if one.attempt == start] for start in starts]
    return [group for part in parts for group in chunks(part, most=math.ceil(len(part) / size))]


def ledger(rows: Sequence[LedgerRow]) -> Chart | None:
    """Where the time went, as the run went on: the share of each bucket, stacked."""
    import altair as alt

    whole = course(rows)
    unit = fitting(whole.intervals[-1].end_seconds if whole.intervals else 0.0, TIMES)
    seen = [bucket for bucket in look.COLOURS if any(one.seconds.get(bucket) for one in whole.intervals)]
    found = []
    for group in _groups(whole.intervals, most=INTERVALS):
        sums = {bucket: sum(one.seconds.get(bucket, 0.0) for one in group) for bucket in seen}
        taken = sum(sums.values())
        start, end = group[0].start_seconds / unit.size, group[-1].end_seconds / unit.size
        if taken > 0 and end > start:
            shares = {bucket: round(100 * seconds / taken, 3) for bucket, seconds in sums.items()}
            place = {"from": short(start), "to": short(end), "step": group[-1].step, "at": round(group[-1].at * 1000)}
            found.append({**place, **shares})
    if not found:
        return None
    data, x = Data(), drawing.time_axis("from", unit)
    scale = alt.Scale(domain=seen, range=[look.COLOURS[bucket] for bucket in seen])
    legend = alt.Legend(columns=3, symbolType="square", symbolStrokeWidth=0)
    # Without a stroke of their own colour, the page would shine through between bars that touch.
    bars = data.chart(found).transform_fold([*seen], as_=["bucket", "share"]).mark_bar(
        orient="vertical", strokeWidth=0.7
    ).encode(
        x,
        alt.X2("to:Q"),
        alt.Y("share:Q", title="share of the time (%)", stack="zero", scale=alt.Scale(domain=[0, 100])),
        alt.Color("bucket:N", scale=scale, legend=legend),
        stroke=alt.Stroke("bucket:N", scale=scale, legend=legend),
        order=alt.Order("place:Q"),
        tooltip=[alt.Tooltip("bucket:N"), alt.Tooltip("share:Q", title="share (%)", format=".1f"),
                 alt.Tooltip("step:Q", title="up to step", format=","), drawing.clock_tip()],
    ).transform_calculate(place=f"indexof({seen!r}, datum.bucket)")  # fmt: skip
    told = [_not_measured_text(whole.not_measured), drawing.cuts_text(whole.cuts)]
    layers = alt.layer(bars, *drawing.cut_rules(data, whole.cuts, unit, x))
    return framed(layers, data=data, title="Where the time went", subtitle=told)


def throughput(rows: Sequence[LedgerRow]) -> Chart | None:
    """Samples a second while steps are taken, over all processes."""
    import altair as alt

    whole = course(rows)
    stepping = [one for one in whole.intervals if one.steps > 0 and one.stepping_seconds > 0]
    if not stepping:
        return None
    unit = fitting(stepping[-1].end_seconds, TIMES)
    points = []
    for group in _groups(stepping, most=drawing.POINTS):
        values = spread(one.samples / one.stepping_seconds for one in group)
        assert values is not None
        # Of all samples in all their time: a mean of rates would count short lines as much as long ones.
        rate = sum(one.samples for one in group) / sum(one.stepping_seconds for one in group)
        middle = (group[0].start_seconds + group[-1].end_seconds) / 2 / unit.size
        place = {"time": short(middle), "at": round(group[-1].at * 1000), "part": group[-1].attempt}
        points.append({**place, **values, "series": "samples a second", "mean": short(rate)})
    y = alt.Y("mean:Q", title="throughput (samples/s)", scale=alt.Scale(zero=True))
    data = Data()
    chart = drawing.over_time(data, points, unit=unit, y=y, colours={"samples a second": look.BLUE}, cuts=whole.cuts)
    told = [
        "all processes; checkpoints and evaluations left out",
        drawing.thinned_text(points),
        drawing.cuts_text(whole.cuts),
    ]
    return framed(chart, data=data, title="Throughput", subtitle=told, height=200)


def step_times(rows: Sequence[LedgerRow]) -> Chart | None:
    """How long steps took: a histogram over the lines of the ledger, each of which tells a mean."""
    import altair as alt

    stepping = [one for one in course(rows).intervals if one.steps > 0]
    times = sorted((one.stepping_seconds / one.steps, one.steps) for one in stepping)
    if not times or times[-1][0] <= 0:
        return None
    high = min(times[-1][0], 2 * _quantile(times, 0.99))
    unit = fitting(high, TIMES)
    width = _nice(max(high - times[0][0], high / 20) / BARS)
    counts: dict[int, int] = {}
    for seconds, steps in times:
        if seconds <= high:
            counts[math.floor(seconds / width)] = counts.get(math.floor(seconds / width), 0) + steps
    bars = [
        {"from": short(n * width / unit.size), "to": short((n + 1) * width / unit.size), "steps": count}
        for n, count in sorted(counts.items())
    ]
    x = alt.X("from:Q", bin="binned", title=f"time of a step ({unit.name})", scale=alt.Scale(zero=False, nice=False))
    data = Data()
    chart = data.chart(bars).mark_bar(color=look.BLUE, orient="vertical", binSpacing=1).encode(
        x,
        alt.X2("to:Q"),
        alt.Y("steps:Q", title="steps (count)", axis=alt.Axis(tickMinStep=1)),
        tooltip=[alt.Tooltip("from:Q", title=f"from ({unit.name})", format=".4~g"),
                 alt.Tooltip("to:Q", title=f"to ({unit.name})", format=".4~g"),
                 alt.Tooltip("steps:Q", title="steps", format=",")],
    )  # fmt: skip
    middle, slow = _quantile(times, 0.5), _quantile(times, 0.95)
    beyond = sum(steps for seconds, steps in times if seconds > high)
    told = [
        f"median {seconds_text(middle)}; 95 % of steps take up to {seconds_text(slow)}",
        f"each line of the ledger is a mean of up to {max(steps for _, steps in times):,} steps",
        f"not drawn: {beyond:,} that took longer, up to {seconds_text(times[-1][0])}" if beyond else "",
    ]
    median = drawing.rules(data, [(middle / unit.size, "median")], x)
    return framed(alt.layer(chart, *median), data=data, title="Time of a step", subtitle=told, height=180)


def _quantile(times: Sequence[tuple[float, int]], share: float) -> float:
    """The time that so large a share of the steps does not go beyond."""
    left = share * sum(steps for _, steps in times)
    for seconds, steps in times:
        left -= steps
        if left <= 1e-9:
            return seconds
    return times[-1][0]


def _nice(width: float) -> float:
    """The next wider of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= width * (1 - 1e-9))


def _not_measured_text(buckets: Sequence[str]) -> str:
    return f"not measured: {', '.join(buckets)}" if buckets else ""
