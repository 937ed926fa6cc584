"""A thread that writes down what the machine shows while a run goes on. Training waits for it at no time.

A sample takes about a millisecond of a core, in many short system calls, so that no lock is held for long.
"""

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Self

import psutil

from stoker import runs
from stoker.errors import Problem
from stoker.machine import gauges, nvml
from stoker.machine.counters import Counters, Meter, or_none, per_second
from stoker.records import GaugeRow

# A last sample of less would be more noise than news.
SHORTEST_SECONDS = 1.0
# A disk that hangs may keep the thread for ever; the run is not kept with it.
PATIENCE_SECONDS = 5.0
# Looking for children means looking at every process of the machine; for no more than this share of the time.
SEARCH_SHARE = 0.001


class Sampler:
    """Adds a row to a file every few seconds between `with` and its end. Without a path or an interval, nothing."""

    def __init__(self, path: Path | None, *, rank: int, interval_seconds: float, gpu_index: int | None) -> None:
        self._path, self._rank, self._gpu_index = path, rank, gpu_index
        self._interval_seconds = interval_seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._path is not None and self._interval_seconds > 0:
            self._thread = threading.Thread(target=self._sample, args=(self._path,), name="gauges", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)

    def _sample(self, path: Path) -> None:
        meter, family, host = Meter(), Family(), socket.gethostname()
        with nvml.opened(self._gpu_index) as devices:
            before, is_over = meter.read(), False
            while not is_over:
                is_over = self._over.wait(self._interval_seconds)
                if is_over and time.monotonic() - before.at_seconds < SHORTEST_SECONDS:
                    break
                after = meter.read()
                row = sampled(before, after, meter, family, devices, rank=self._rank, host=host)
                # A full disk or a lost folder is for the run to find; the next sample is another chance.
                with contextlib.suppress(OSError, Problem):
                    runs.append_line(path, row)
                before = after


class Family:
    """This process and its children, which are looked for only as often as that is cheap."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._children: list[psutil.Process] = []
        self._next_search = 0.0

    def memory_bytes(self) -> int | None:
        """What they hold in memory together."""
        began = time.monotonic()
        if began >= self._next_search:
            self._children = or_none(lambda: self._process.children(recursive=True)) or []
            ended = time.monotonic()
            self._next_search = ended + (ended - began) / SEARCH_SHARE
        own = or_none(self._process.memory_info)
        if own is None:
            return None
        # A child that has ended holds nothing.
        held = [own, *(found for child in self._children if (found := or_none(child.memory_info)))]
        return sum(int(memory.rss) for memory in held)


def sampled(
    before: Counters,
    after: Counters,
    meter: Meter,
    family: Family,
    devices: tuple[nvml.Device, ...] | None,
    *,
    rank: int,
    host: str,
) -> GaugeRow:
    """What happened between two readings, and what the machine shows now."""
    seconds = after.at_seconds - before.at_seconds

    def rate(name: str) -> float | None:
        return per_second(getattr(before, name), getattr(after, name), seconds)

    def percent(name: str, cores: float) -> float | None:
        busy = rate(name)
        return None if busy is None else 100 * busy / cores

    return GaugeRow(
        at=time.time(),
        rank=rank,
        host=host,
        seconds=seconds,
        gpus=None if devices is None else [nvml.reading(device) for device in devices],
        cpu_percent=percent("cpu_seconds", meter.cores),
        process_cpu_percent=percent("process_cpu_seconds", meter.cores),
        memory_used_bytes=family.memory_bytes(),
        memory_available_bytes=gauges.memory_allotted().available_bytes,
        disk_read_bytes_per_second=rate("disk_read_bytes"),
        disk_write_bytes_per_second=rate("disk_write_bytes"),
        process_read_bytes_per_second=rate("process_read_bytes"),
        network=network(before, after),
        iowait_percent=percent("iowait_seconds", meter.machine_cores),
    )


def network(before: Counters, after: Counters) -> dict[str, dict[str, float | None]] | None:
    """What went over each interface that was there at both readings, by the second."""
    if before.traffic is None or after.traffic is None:
        return None
    seconds = after.at_seconds - before.at_seconds
    return {
        name: {
            "sent_bytes_per_second": per_second(before.traffic[name].sent_bytes, now.sent_bytes, seconds),
            "received_bytes_per_second": per_second(before.traffic[name].received_bytes, now.received_bytes, seconds),
        }
        for name, now in after.traffic.items()
        if name in before.traffic
    }
