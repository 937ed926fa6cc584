"""Charts of the gauges: what the machine showed while the run went on."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker.records import GaugeRow
from stoker.report import drawing, look
from stoker.report.drawing import SIZES, TIMES, Cut, Data, Unit, chunks, fitting, framed, short, spread
from stoker.report.look import Chart

# A line is broken where so many samples are missing, and the time is left out where it is also so long.
GAP_SAMPLES, GAP_SECONDS = 4, 60.0
PERCENT = (Unit(name="%", size=1.0),)
RATES = tuple(Unit(name=f"{unit.name}/s", size=unit.size) for unit in SIZES)
HEIGHT = 170


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A row of gauges at its time, without the time in which the run was down."""

    row: GaugeRow
    up_seconds: float
    part: int
    """of the run, between gaps"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a chart: what some gauge showed at each sample. None where it showed nothing."""

    name: str
    colour: str
    readings: list[tuple[Sample, float | None]]
    sources: int = 1
    """machines or GPUs that are told of at any time; their mean is drawn"""


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """What a chart of gauges shows."""

    title: str
    what: str
    """on the axis, before the unit"""
    units: tuple[Unit, ...]
    lines: list[Line]
    told: str = ""
    most: float | None = None
    """end of the axis, where it has one"""


@dataclass(frozen=True, kw_only=True)
class Course:
    """All samples, from the start to the end, and where time is left out."""

    samples: list[Sample] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)


def gauges(rows: Sequence[GaugeRow]) -> dict[str, Chart]:
    """A chart by name for each gauge that was measured: GPU busy, GPU memory, CPU, memory, disk, network."""
    whole = course(rows)
    drawn = {name: _drawn(gauge, whole) for name, gauge in (_gpu_gauges(whole) | _machine_gauges(whole)).items()}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def _gpu_gauges(whole: Course) -> dict[str, Gauge]:
    sizes = [gpu.get("memory_bytes") or 0 for sample in whole.samples for gpu in sample.row.gpus or ()]
    return {
        "GPU busy": Gauge(
            title="GPU busy", what="busy", units=PERCENT, most=100.0, lines=_gpus(whole, "busy_percent"),
            told="a kernel ran, however small: a sign of life, not of use",
        ),
        "GPU memory": Gauge(
            title="GPU memory", what="in use", units=SIZES, most=max(sizes, default=0) or None,
            lines=_gpus(whole, "memory_used_bytes"),
        ),
    }  # fmt: skip


def _machine_gauges(whole: Course) -> dict[str, Gauge]:
    cpu = [
        _line(whole, "all processes", look.BLUE, "cpu_percent"),
        _line(whole, "this process", look.GREEN, "process_cpu_percent"),
        _line(whole, "idle, disk to answer", look.ORANGE, "iowait_percent"),
    ]
    memory = [
        _line(whole, "used by the run", look.BLUE, "memory_used_bytes"),
        _line(whole, "still available", look.GREY, "memory_available_bytes"),
    ]
    disk = [
        _line(whole, "read", look.GREEN, "disk_read_bytes_per_second"),
        _line(whole, "written", look.PURPLE, "disk_write_bytes_per_second"),
        _line(whole, "read by this process", look.YELLOW, "process_read_bytes_per_second"),
    ]
    network = [
        _network(whole, "received", look.GREEN, "received_bytes_per_second"),
        _network(whole, "sent", look.PURPLE, "sent_bytes_per_second"),
    ]
    return {
        "CPU": Gauge(title="CPU", what="of the cores", units=PERCENT, most=100.0, lines=cpu),
        "memory": Gauge(title="Memory", what="memory", units=SIZES, lines=memory),
        "disk": Gauge(title="Disk", what="disk", units=RATES, lines=disk),
        "network": Gauge(title="Network", what="network", units=RATES, lines=network),
    }


def course(rows: Sequence[GaugeRow]) -> Course:
    """The samples of all machines by time; where there was none for long, that time is left out."""
    whole = Course()
    usual_seconds = _usual_seconds(rows)
    up_seconds, last_at, part = 0.0, None, 0
    for row in sorted(rows, key=lambda row: row.at):
        gap_seconds = row.at - row.seconds - last_at if last_at is not None else 0.0
        part += gap_seconds > GAP_SAMPLES * usual_seconds
        if last_at is None:
            up_seconds = row.seconds
        elif gap_seconds > max(GAP_SECONDS, GAP_SAMPLES * usual_seconds):
            whole.cuts.append(Cut(name="gap", up_seconds=up_seconds, down_seconds=gap_seconds))
            up_seconds += row.seconds
        else:
            up_seconds += row.at - last_at
        last_at = row.at
        whole.samples.append(Sample(row=row, up_seconds=up_seconds, part=part))
    return whole


def _usual_seconds(rows: Sequence[GaugeRow]) -> float:
    """How far apart the samples of a machine lie. Of a long run only some may be given."""
    apart = []
    for host in {row.host for row in rows}:
        times = sorted(row.at for row in rows if row.host == host)
        apart += [after - before for before, after in itertools.pairwise(times)]
    return statistics.median(apart) if apart else 0.0


def _line(whole: Course, name: str, colour: str, gauge: str) -> Line:
    hosts = len({sample.row.host for sample in whole.samples})
    readings = [(sample, getattr(sample.row, gauge)) for sample in whole.samples]
    return Line(name=name, colour=colour, readings=readings, sources=hosts)


def _network(whole: Course, name: str, colour: str, direction: str) -> Line:
    """What all interfaces of a machine did together; nothing where one of them was not measured."""
    readings: list[tuple[Sample, float | None]] = []
    for sample in whole.samples:
        rates = [card.get(direction) for card in (sample.row.network or {}).values()]
        known = [rate for rate in rates if rate is not None]
        readings.append((sample, sum(known) if known and len(known) == len(rates) else None))
    return Line(name=name, colour=colour, readings=readings, sources=len({one.row.host for one in whole.samples}))


def _gpus(whole: Course, gauge: str) -> list[Line]:
    """A line for each GPU, or one for all where they are more than can be told apart."""
    hosts = {sample.row.host for sample in whole.samples}
    found: dict[str, list[tuple[Sample, float | None]]] = {}
    for sample in whole.samples:
        for gpu in sample.row.gpus or ():
            name = f"GPU {gpu.get('index')}" + (f" of {sample.row.host}" if len(hosts) > 1 else "")
            found.setdefault(name, []).append((sample, gpu.get(gauge)))
    if len(found) <= len(look.LINES):
        return [Line(name=name, colour=colour, readings=found[name]) for name, colour in zip(sorted(found), look.LINES)]
    together = sorted((one for readings in found.values() for one in readings), key=lambda one: one[0].row.at)
    return [Line(name=f"{len(found)} GPUs", colour=look.BLUE, readings=together, sources=len(found))]


def _drawn(gauge: Gauge, whole: Course) -> Chart | None:
    import altair as alt

    values = [value for line in gauge.lines for _, value in line.readings if value is not None]
    if not values:
        return None
    unit, time = fitting(gauge.most or max(values), gauge.units), fitting(whole.samples[-1].up_seconds, TIMES)
    points = [point for line in gauge.lines for point in _points(line, unit, time, of=len(gauge.lines))]
    most = max(gauge.most, *values) / unit.size if gauge.most is not None else None
    scale = alt.Scale(zero=True) if most is None else alt.Scale(domain=[0, short(most)], nice=False)
    data = Data()
    chart = drawing.over_time(
        data,
        points,
        unit=time,
        y=alt.Y("mean:Q", title=f"{gauge.what} ({unit.name})", scale=scale),
        colours={line.name: line.colour for line in gauge.lines},
        cuts=whole.cuts,
        since="time since the first sample",
    )
    sources = max(line.sources for line in gauge.lines)
    told = [
        gauge.told,
        f"mean of {sources:,}, with a band from the least to the most" if sources > 1 else "",
        drawing.thinned_text(points, "samples", is_banded=len(gauge.lines) <= drawing.BANDS) if sources == 1 else "",
        drawing.cuts_text(whole.cuts),
    ]
    return framed(chart, data=data, title=gauge.title, subtitle=told, height=HEIGHT)


def _points(line: Line, unit: Unit, time: Unit, *, of: int) -> list[dict[str, Any]]:
    """A line as few enough points; the more lines a chart has, the fewer."""
    known = [(sample, value) for sample, value in line.readings if value is not None]
    parts = sorted({sample.part for sample, _ in known})
    most = max(drawing.POINTS // max(of, 1), 60)
    found = []
    for part in parts:
        mine = [one for one in known if one[0].part == part]
        for group in chunks(mine, most=max(most * len(mine) // len(known), 1), least=line.sources):
            values = spread(value / unit.size for _, value in group)
            if values is not None:
                last = group[-1][0]
                place = {"time": short(last.up_seconds / time.size), "at": round(last.row.at * 1000), "part": part}
                found.append({**place, "series": line.name, **values})
    return found
