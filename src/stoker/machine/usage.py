"""What the gauges showed over a whole run, or a part of it: a few figures from many rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.records import GaugeRow


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A gauge over some time: its mean, and the least and the most that a sample showed."""

    mean: float
    least: float
    most: float


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How much of a machine was in use. A gauge that no row has is None."""

    seconds: float
    """that the rows tell of, summed over processes"""
    gpu_busy_percent: Spread | None = None
    """of the time in which some kernel ran, however small: a sign of life, not of use"""
    power_share: Spread | None = None
    """of the GPU's limit"""
    clock_share: Spread | None = None
    """of the GPU's highest"""
    throttled: dict[str, float] | None = None
    """the share of the time in which a clock was held down, by the reason; empty where none ever was"""
    cpu_percent: Spread | None = None
    others_cpu_percent: Spread | None = None
    """... by others than the process that reads the gauges"""
    iowait_percent: Spread | None = None
    network_bytes_per_second: Spread | None = None
    """both ways, over all interfaces"""
    disk_bytes_per_second: Spread | None = None
    """read and written"""


def means(rows: Sequence[GaugeRow]) -> Usage:
    """The usage over some rows, of one process or many. A longer sample weighs more, and each GPU counts."""
    gpus = [(row.seconds, gpu) for row in rows for gpu in row.gpus or ()]
    return Usage(
        seconds=sum(row.seconds for row in rows),
        gpu_busy_percent=_spread((seconds, gpu["busy_percent"]) for seconds, gpu in gpus),
        power_share=_spread((seconds, _share(gpu, "power_w", "power_limit_w")) for seconds, gpu in gpus),
        clock_share=_spread((seconds, _share(gpu, "clock_mhz", "clock_max_mhz")) for seconds, gpu in gpus),
        throttled=_throttled(gpus),
        cpu_percent=_spread((row.seconds, row.cpu_percent) for row in rows),
        others_cpu_percent=_spread((row.seconds, _others(row)) for row in rows),
        iowait_percent=_spread((row.seconds, row.iowait_percent) for row in rows),
        network_bytes_per_second=_spread((row.seconds, _network(row)) for row in rows),
        disk_bytes_per_second=_spread((row.seconds, _disk(row)) for row in rows),
    )


def _spread(samples: Iterable[tuple[float, float | None]]) -> Spread | None:
    measured = [(seconds, value) for seconds, value in samples if value is not None and seconds > 0]
    if not measured:
        return None
    values = [value for _, value in measured]
    mean = sum(seconds * value for seconds, value in measured) / sum(seconds for seconds, _ in measured)
    return Spread(mean=mean, least=min(values), most=max(values))


def _share(gpu: dict[str, Any], part: str, whole: str) -> float | None:
    return gpu[part] / gpu[whole] if gpu[part] is not None and gpu[whole] else None


def _throttled(gpus: Sequence[tuple[float, dict[str, Any]]]) -> dict[str, float] | None:
    measured = [(seconds, gpu["throttle"]) for seconds, gpu in gpus if gpu["throttle"] is not None and seconds > 0]
    if not measured:
        return None
    whole_seconds = sum(seconds for seconds, _ in measured)
    reasons = sorted({reason for _, held in measured for reason in held})
    return {reason: sum(s for s, held in measured if reason in held) / whole_seconds for reason in reasons}


def _others(row: GaugeRow) -> float | None:
    if row.cpu_percent is None or row.process_cpu_percent is None:
        return None
    return max(row.cpu_percent - row.process_cpu_percent, 0.0)


def _network(row: GaugeRow) -> float | None:
    rates = [rate for card in (row.network or {}).values() for rate in card.values()]
    return _sum(rates)


def _disk(row: GaugeRow) -> float | None:
    return _sum([row.disk_read_bytes_per_second, row.disk_write_bytes_per_second])


def _sum(rates: Sequence[float | None]) -> float | None:
    """Their sum; None where one was not measured, since a part of a sum is no sum, or where there is none."""
    measured = [rate for rate in rates if rate is not None]
    return sum(measured) if measured and len(measured) == len(rates) else None
