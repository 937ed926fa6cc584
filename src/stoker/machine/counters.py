"""The counters of this machine that only ever go up: what two readings differ by is what happened between them.

Every counter fails alone, and one that cannot be read is None. Reading all of them takes less than half a millisecond.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from stoker.machine import gauges

SYS = Path("/sys")
LOOPBACK = "lo"
INFINIBAND_TYPE = "32"  # ARPHRD_INFINIBAND in Linux's if_arp.h
INFINIBAND_WORD_BYTES = 4  # its ports count words of four bytes
# A guest's time is in its host's user time already.
BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What went over an interface since it came up."""

    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, kw_only=True)
class Counters:
    """One reading of everything, and when it was taken."""

    at_seconds: float
    """by time.monotonic()"""
    cpu_seconds: float | None = None
    """that anyone kept our cores busy"""
    process_cpu_seconds: float | None = None
    iowait_seconds: float | None = None
    """summed over all the machine's cores"""
    disk_read_bytes: int | None = None
    disk_write_bytes: int | None = None
    process_read_bytes: int | None = None
    traffic: Mapping[str, Traffic] | None = None


class Meter:
    """Reads this machine's counters. What does not change is looked up once, here."""

    def __init__(self, *, sys: Path = SYS) -> None:
        self._sys = sys
        self._process = psutil.Process()
        allotted = gauges.cores_allotted()
        self.cores: float = allotted.allotted
        """that this process may keep busy; a part of a core where that is its quota"""
        self.machine_cores = allotted.present
        self._affinity = sorted(os.sched_getaffinity(0)) if allotted.limited_by == "affinity" else None
        self._group: Path | None = None
        if allotted.limited_by == "cgroup quota":
            quotas = [(quota, group) for group in gauges.own_groups("cpu") if (quota := gauges.quota_cores(group))]
            self.cores, self._group = min(quotas)
        self._is_disk: dict[str, bool] = {}
        self._is_counted: dict[str, bool] = {}

    def read(self) -> Counters:
        """Every counter as it stands now."""
        now = time.monotonic()
        iowait = or_none(lambda: psutil.cpu_times().iowait)
        disks = or_none(self._disks) or {}
        process_io = or_none(lambda: self._process.io_counters())
        return Counters(
            at_seconds=now,
            cpu_seconds=or_none(self._cpu_seconds),
            process_cpu_seconds=time.process_time(),
            iowait_seconds=iowait,
            disk_read_bytes=sum(disk.read_bytes for disk in disks.values()) if disks else None,
            disk_write_bytes=sum(disk.write_bytes for disk in disks.values()) if disks else None,
            process_read_bytes=None if process_io is None else process_io.read_bytes,
            traffic=or_none(self._traffic),
        )

    def _cpu_seconds(self) -> float:
        if self._group is not None:  # others may keep the machine busy without taking anything from our quota
            return _group_cpu_seconds(self._group)
        if self._affinity is None:
            return _busy_seconds(psutil.cpu_times())
        cores = psutil.cpu_times(percpu=True)
        return sum(_busy_seconds(cores[core]) for core in self._affinity)

    def _disks(self) -> dict[str, Any]:
        """The disks themselves: their partitions, and volumes made of them, would be counted twice."""
        found = psutil.disk_io_counters(perdisk=True, nowrap=False)
        for name in found.keys() - self._is_disk.keys():
            self._is_disk[name] = (self._sys / "block" / name / "device").exists()
        return {name: disk for name, disk in found.items() if self._is_disk[name]}

    def _traffic(self) -> dict[str, Traffic]:
        ports = _infiniband(self._sys)
        found = psutil.net_io_counters(pernic=True, nowrap=False)
        for name in found.keys() - self._is_counted.keys():
            self._is_counted[name] = name != LOOPBACK and not self._is_double(name, bool(ports))
        return ports | {
            name: Traffic(sent_bytes=card.bytes_sent, received_bytes=card.bytes_recv)
            for name, card in found.items()
            if self._is_counted[name]
        }

    def _is_double(self, name: str, has_ports: bool) -> bool:
        """Whether the bytes of an interface are counted elsewhere: a bond, a bridge, or IP over InfiniBand."""
        folder = self._sys / "class" / "net" / name
        is_infiniband = has_ports and or_none(lambda: (folder / "type").read_text().strip()) == INFINIBAND_TYPE
        return is_infiniband or any(folder.glob("lower_*"))


def or_none(question: Callable[[], Answer]) -> Answer | None:
    """The answer, or None where this system or user gets none: each gauge fails alone."""
    try:
        return question()
    except Exception:  # psutil's errors differ by system, and a missing gauge is no reason to stop
        return None


def per_second(before: float | None, after: float | None, seconds: float) -> float | None:
    """How fast a counter went up; None where it was not read twice, or began anew."""
    if before is None or after is None or after < before or seconds <= 0:
        return None
    return (after - before) / seconds


def _busy_seconds(times: Any) -> float:
    """Of one core or all. A sum of these and not what is left of all: Linux takes idle time back now and then."""
    return float(sum(getattr(times, kind, 0.0) for kind in BUSY))


def _group_cpu_seconds(group: Path) -> float:
    stat = group / "cpu.stat"
    lines = dict(line.split() for line in stat.read_text().splitlines()) if stat.exists() else {}
    if "usage_usec" in lines:
        return int(lines["usage_usec"]) / 1e6
    # The first version of cgroups counts in a folder of another controller, which is often the same one.
    places = [group, *gauges.own_groups("cpuacct")]
    usage = next(place / "cpuacct.usage" for place in places if (place / "cpuacct.usage").exists())
    return int(usage.read_text()) / 1e9


def _infiniband(sys: Path) -> dict[str, Traffic]:
    """What the ports of InfiniBand cards carried, which no network interface knows of."""
    found = {}
    for counters in (sys / "class" / "infiniband").glob("*/ports/*/counters"):
        sent, received = (or_none((counters / f"port_{way}_data").read_text) for way in ("xmit", "rcv"))
        if sent is not None and received is not None:
            device, port = counters.parts[-4], counters.parts[-2]
            found[f"{device}/{port}"] = Traffic(
                sent_bytes=int(sent) * INFINIBAND_WORD_BYTES, received_bytes=int(received) * INFINIBAND_WORD_BYTES
            )
    return found
