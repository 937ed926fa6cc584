"""Rows of runs that never were, the charts that are drawn from them, and what tests look for in a chart."""

import functools
import math
import random
from collections.abc import Iterator
from typing import Any

from stoker.plan.history import Past
from stoker.records import BUCKETS, INTERVAL_BUCKETS, Exhibit, GaugeRow, LedgerRow, MetricRow
from stoker.report import charts
from stoker.report.gauge_charts import gauges
from stoker.report.look import Chart
from stoker.report.questions.traffic import Pair

BEGAN = 1_700_000_000.0
PAST = Past(
    run="r", limit="arithmetic", planned_seconds=3600.0, low_seconds=3000.0, high_seconds=4000.0,
    actual_seconds=4100.0, error=0.139, held=False,
)  # fmt: skip
PAIRS = tuple(Pair(rank=n % 2, step=n, steps=2, step_seconds=0.1 + n / 1e4, bytes_per_second=1e6 * n) for n in range(9))
HOSTILE = (
    "<script>alert(1)</script>", "\"quoted\" 'name'", "ünï 漢字 🐈", "x" * 200, "x" * 199 + "y", "a.b[0]\\n", "",
    "datum.true", "null", "\u2028line", "]]>", "{{mustache}}", "a,b;c", "count",
)  # fmt: skip


def trained(lines: int, **scores: Any) -> list[MetricRow]:
    """Lines of training, with some scores in the place of the usual ones."""
    return [
        MetricRow(
            kind="train", epoch=n // 10, step=2 * (n + 1), samples=64, lr=0.1 * (1 + math.cos(math.pi * n / lines)),
            scores={"loss": 3 * math.exp(-n / lines), "top1": 60 * n / lines, "top5": 90 * n / lines, **scores},
        )
        for n in range(lines)
    ]  # fmt: skip


def evaluated(epochs: int, **scores: Any) -> list[MetricRow]:
    """Evaluations, with some scores in the place of the usual ones."""
    return [
        MetricRow(
            kind="eval", epoch=n + 1, step=20 * (n + 1), samples=500, lr=None,
            scores={"loss": 2 + (n - 2) ** 2, "top1": 50.0 - (n - 2) ** 2, "top5": 80.0, **scores},
        )
        for n in range(epochs)
    ]  # fmt: skip


def ledger(
    lines: int, *, restart_at: int | None = None, down_seconds: float = 36000.0, rank: int = 0
) -> list[LedgerRow]:
    """Lines of two steps in a second, after a start of ten seconds; nothing is known of the host's time."""
    found: list[LedgerRow] = []
    at, totals = BEGAN, dict.fromkeys(BUCKETS, 0.0)
    for n in range(lines):
        if n in (0, restart_at):
            totals["setup"] += 10.0
            at += 10.0 + (down_seconds if n else 0.0)
        at += 1.0
        seconds = {"compute": 0.6, "optimizer": 0.1, "data_wait": 0.1, "eval": 0.2, "host": None}
        totals |= {bucket: totals[bucket] + value for bucket, value in seconds.items() if value is not None}
        found.append(
            LedgerRow(
                at=at, rank=rank, world=1, attempt=1 if restart_at is None or n < restart_at else 2, step=2 * (n + 1),
                steps=2, samples=64, seconds=dict.fromkeys(INTERVAL_BUCKETS, 0.0) | seconds,
                totals={**totals, "host": None}, read_seconds=0.0, decode_seconds=0.0, device="cpu",
            )
        )  # fmt: skip
    return found


def gauge_rows(
    samples: int, *, gpus: int | None = 2, hosts: tuple[str, ...] = ("a",), gap_at: int = -1
) -> list[GaugeRow]:
    """Samples of every five seconds, with ten hours between two of them."""
    chance = random.Random(1)
    return [
        GaugeRow(
            at=BEGAN + 5.0 * n + (36000.0 if 0 <= gap_at <= n else 0.0), rank=0, host=host, seconds=5.0,
            gpus=None if gpus is None else [
                {"index": index, "name": "G", "busy_percent": 90.0 - index, "memory_used_bytes": 10 * 1024**3,
                 "memory_bytes": 80 * 1024**3}
                for index in range(gpus)
            ],
            cpu_percent=chance.uniform(40, 60), process_cpu_percent=10.0, memory_used_bytes=3 * 1024**3,
            memory_available_bytes=20 * 1024**3, disk_read_bytes_per_second=1e6, disk_write_bytes_per_second=2e6,
            process_read_bytes_per_second=5e5, iowait_percent=0.5,
            network={"eth0": {"sent_bytes_per_second": 1e6, "received_bytes_per_second": 2e6}},
        )
        for n in range(samples)
        for host in hosts
    ]  # fmt: skip


def blind_row() -> GaugeRow:
    """A sample in which nothing could be measured."""
    return GaugeRow(
        at=BEGAN, rank=0, host="a", seconds=5.0, gpus=None, cpu_percent=None, process_cpu_percent=None,
        memory_used_bytes=None, memory_available_bytes=None, disk_read_bytes_per_second=None,
        disk_write_bytes_per_second=None, process_read_bytes_per_second=None, network=None, iowait_percent=None,
    )  # fmt: skip


def confusion(*names: str, title: str = "What is taken for what") -> Exhibit:
    """Counts that are larger on the diagonal."""
    rows = tuple(tuple(50 if i == j else (i * j) % 7 for j in range(len(names))) for i in range(len(names)))
    return Exhibit(name="confusion", title=title, caption="", kind="matrix", columns=names, rows=rows)


@functools.cache
def drawn() -> dict[str, dict[str, Chart]]:
    """Every chart of an ordinary run, a long one, one of a single line, one without values, and a hostile one."""
    ordinary = every(trained(40), evaluated(4), ledger(40, restart_at=20), gauge_rows(20, gap_at=10))
    long = every(trained(1000), evaluated(90), ledger(1000, restart_at=300), gauge_rows(500, gpus=16))
    single = every(trained(1), evaluated(1), ledger(1), gauge_rows(1))
    null = every(trained(4, loss=None, top5=None), evaluated(2, loss=None, top1=None), ledger(2), [blind_row()])
    names = tuple(f"class {n}" for n in range(3))
    return {
        "ordinary": ordinary | {"matrix": _there(charts.matrix(confusion(*names)))},
        "long": long | {"matrix": _there(charts.matrix(confusion(*(f"class {n}" for n in range(40)))))},
        "single": single,
        "null": null,
        "hostile": {
            "matrix": _there(charts.matrix(confusion(*HOSTILE, title=HOSTILE[0]))),
            "small matrix": _there(charts.matrix(confusion(*HOSTILE[:5], title="x" * 200))),
            **gauges(gauge_rows(3, gpus=1, hosts=("<b>'\"\\", "b"))),
        },
    }


def every(
    training: list[MetricRow], held: list[MetricRow], rows: list[LedgerRow], shown: list[GaugeRow]
) -> dict[str, Chart]:
    """All charts of some rows that there are, by name."""
    found = {
        "losses": charts.losses(training, held),
        "scores": charts.scores(training, held),
        "rates": charts.rates(training),
        "ledger": charts.ledger(rows),
        "throughput": charts.throughput(rows),
        "step_times": charts.step_times(rows),
        "traffic": charts.traffic(PAIRS),
        "planned": charts.planned(PAST),
        **gauges(shown),
    }
    return {name: chart for name, chart in found.items() if chart is not None}


def _there(chart: Chart | None) -> Chart:
    assert chart is not None
    return chart


def encodings(spec: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every channel of a chart and of its layers, with its name."""
    if isinstance(spec, dict):
        for name, value in spec.items():
            if name == "encoding":
                yield from value.items()
            elif name != "datasets":
                yield from encodings(value)
    elif isinstance(spec, list):
        for part in spec:
            yield from encodings(part)


def rows_of(spec: Chart, *keys: str) -> list[dict[str, Any]]:
    """The rows of a chart that have all of these fields, each once."""
    found: list[dict[str, Any]] = []
    for rows in spec["datasets"].values():
        found += [row for row in rows if all(key in row for key in keys) and row not in found]
    return found


def told(spec: Chart) -> str:
    """What the lines below the title say."""
    return " ".join(spec["title"].get("subtitle", ()))
