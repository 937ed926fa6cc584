"""The gauges of a run as a page shows them: each with what it shows now and how that came about. Pure."""

from collections.abc import Sequence
from typing import Any

from stoker.records import GaugeRow
from stoker.units import bytes_text

Series = Sequence[float | None]


def dials(rows: Sequence[GaugeRow]) -> list[dict[str, Any]]:
    """The gauges of each machine: GPUs, CPU, memory, disk, network. What was not measured is not there."""
    hosts = list(dict.fromkeys(row.host for row in rows))
    found = []
    for host in hosts:
        mine = [row for row in rows if row.host == host]
        # Processes of one machine that read the same gauges would be shown twice.
        mine = [row for row in mine if row.rank == mine[-1].rank]
        shown = [*gpus(mine), *machine(mine)]
        found.append({"host": host, "at": mine[-1].at, "dials": [one for one in shown if one is not None]})
    return found


def gpus(rows: Sequence[GaugeRow]) -> list[dict[str, Any] | None]:
    """Busy and memory of each GPU."""
    last = rows[-1].gpus or ()
    found = []
    for place, gpu in enumerate(last):
        name = f"GPU {gpu.get('index', place)}"

        def series(key: str, place: int = place) -> list[float | None]:
            return [row.gpus[place].get(key) if row.gpus and place < len(row.gpus) else None for row in rows]

        busy, memory = series("busy_percent"), series("memory_used_bytes")
        whole = gpu.get("memory_bytes")
        found.append(dial(f"{name} busy", busy, most=100.0, text=percent(busy[-1]), note=gpu_note(gpu)))
        note = f"of {bytes_text(whole)}" if whole else ""
        found.append(dial(f"{name} memory", memory, most=whole, text=size(memory[-1]), note=note))
    return found


def gpu_note(gpu: dict[str, Any]) -> str:
    """Power, temperature and what holds a GPU's clock down, as far as they are known."""
    said = []
    if gpu.get("power_w") is not None:
        limit = f" of {gpu['power_limit_w']:.0f}" if gpu.get("power_limit_w") else ""
        said.append(f"{gpu['power_w']:.0f}{limit} W")
    if gpu.get("temperature_c") is not None:
        said.append(f"{gpu['temperature_c']:.0f} °C")
    said += [str(reason) for reason in gpu.get("throttle") or ()]
    return ", ".join(said)


def machine(rows: Sequence[GaugeRow]) -> list[dict[str, Any] | None]:
    """CPU, memory, disk and network."""
    last = rows[-1]
    cpu, memory = [row.cpu_percent for row in rows], [row.memory_used_bytes for row in rows]
    reads = [row.disk_read_bytes_per_second for row in rows]
    writes = [row.disk_write_bytes_per_second for row in rows]
    sent, received = traffic(rows, "sent_bytes_per_second"), traffic(rows, "received_bytes_per_second")
    own = f"{last.process_cpu_percent:.0f} % by the run" if last.process_cpu_percent is not None else ""
    wait = f"{last.iowait_percent:.0f} % of cores wait for it" if last.iowait_percent else ""
    free = last.memory_available_bytes
    whole = free + (last.memory_used_bytes or 0) if free is not None else None
    return [
        dial("CPU", cpu, most=100.0, text=percent(cpu[-1]), note=own),
        dial("memory", memory, most=whole, text=size(memory[-1]), note=f"{bytes_text(free)} free" if free else ""),
        dial("disk read", reads, text=rate(reads[-1]), note=wait),
        dial("disk write", writes, text=rate(writes[-1])),
        dial("network in", received, text=rate(received[-1])),
        dial("network out", sent, text=rate(sent[-1])),
    ]


def traffic(rows: Sequence[GaugeRow], way: str) -> list[float | None]:
    """What went one way over all interfaces, row by row."""
    found: list[float | None] = []
    for row in rows:
        rates = [card.get(way) for card in (row.network or {}).values()]
        known = [one for one in rates if one is not None]
        found.append(sum(known) if known else None)
    return found


def dial(name: str, series: Series, *, text: str, most: float | None = None, note: str = "") -> dict[str, Any] | None:
    """One gauge; None where it was never measured. A share is known where there is a most."""
    if all(value is None for value in series):
        return None
    now = series[-1]
    share = now / most if most and now is not None else None
    rounded = [None if value is None else float(f"{value:.4g}") for value in series]
    return {"name": name, "text": text, "note": note, "share": share, "series": rounded, "most": most}


def percent(value: float | None) -> str:
    """A percentage as people read it."""
    return "not measured" if value is None else f"{value:.0f} %"


def size(value: float | None) -> str:
    """A size as people read it."""
    return "not measured" if value is None else bytes_text(value)


def rate(value: float | None) -> str:
    """A rate of bytes as people read it."""
    return "not measured" if value is None else f"{bytes_text(value)}/s"
