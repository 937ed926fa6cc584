"""What GPUs do when they are asked to do their most: products of matrices, and copies. One GPU after another."""

import functools
import itertools
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stoker import units
from stoker.doctor import readings
from stoker.doctor.profile import DTYPES, GpuSpeed
from stoker.doctor.readings import Load, Watch
from stoker.doctor.trials import tried
from stoker.machine import gauges

# Sides of the square matrices, the first that fits. Large ones reach what a GPU can do at all.
SIDES = (8192, 4096, 2048, 1024)
COPY_BYTES, TRANSFER_BYTES = units.GIB, 256 * units.MIB
# Of a measurement's share of what is free: others may be at work on the GPU or the host too.
FREE_SHARE = 0.7
# What the best pace is looked for over.
GROUP_SECONDS = 0.015
# Calls of one measurement, however fast the GPU is: its queue holds about a thousand.
MOST_CALLS = 4000
LOAD = ("clock_mhz", "clock_max_mhz", "power_w", "power_limit_w", "throttle")
LINK = ("pcie_generation", "pcie_width", "pcie_generation_max", "pcie_width_max")
STEPS = len(DTYPES) + 3
"""measurements of a GPU"""


@dataclass(frozen=True, kw_only=True)
class HostCopy:
    """A way between the host's memory and the device's."""

    what: str
    is_to_device: bool
    is_pinned: bool


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations in a second."""

    lasting: float
    peak: float


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long a call takes."""

    lasting_seconds: float
    """once it has gone on for a while"""
    best_seconds: float
    """over the best few milliseconds"""


HOST_COPIES = {
    "to_device_bytes_per_second": HostCopy(what="copies to the device", is_to_device=True, is_pinned=True),
    "pageable_to_device_bytes_per_second": HostCopy(what="pageable copies", is_to_device=True, is_pinned=False),
    "to_host_bytes_per_second": HostCopy(what="copies to the host", is_to_device=False, is_pinned=True),
}


def measured(missing: dict[str, str], *, seconds: float) -> Generator[str, None, tuple[GpuSpeed, ...]]:
    """Measure every GPU that torch sees; yields what comes next, and returns what was found."""
    import torch

    found = []
    for device in range(torch.cuda.device_count()):
        found.append((yield from _one(device, missing, seconds=seconds)))
        torch.cuda.empty_cache()
        if torch.cuda.is_initialized():
            # A run that follows in this process reports its own peak, not ours.
            torch.cuda.reset_peak_memory_stats(device)
    return tuple(found)


def _one(device: int, missing: dict[str, str], *, seconds: float) -> Generator[str, None, GpuSpeed]:
    import torch

    index = readings.index_of(device)
    me, load, flops = f"GPU {index}", Load(), dict[str, Flops | None]()
    for dtype in DTYPES:
        yield f"{me}: {dtype} matrix products"
        what = f"{me} {dtype} matrix products"
        # The kind that draws the most power comes last and lasts longest: its load is the one that is kept.
        lasting = 2 * seconds if dtype == DTYPES[-1] else seconds
        # A GPU that rests for a moment has its full clock again.
        time.sleep(seconds / 4)
        with Watch(device) as watch:
            flops[dtype] = tried(missing, what, matmul_flops, device, dtype, seconds=lasting)
        load = watch.load if flops[dtype] is not None else load
    if load.clock_mhz is None:
        missing[f"{me} clock under load"] = "NVML gives no answer"
    yield f"{me}: copies within its memory"
    copied = tried(missing, f"{me} copies within its memory", device_copy, device, seconds=seconds)
    yield f"{me}: copies to and from the host"
    rates: dict[str, Any] = {}
    with Watch(device) as watch:
        for name, kind in HOST_COPIES.items():
            rates[name] = tried(missing, f"{me} {kind.what}", host_copy, device, kind, seconds=seconds)
    yield f"{me}: copies to other GPUs"
    peers = dict[int, float | None]()
    for other in range(torch.cuda.device_count()):
        if other != device:
            number = readings.index_of(other)
            what = f"{me} copies to GPU {number}"
            peers[number] = tried(missing, what, peer_copy, device, other, seconds=seconds / 5)
    return GpuSpeed(
        index=index,
        name=torch.cuda.get_device_name(device),
        matmul_flops={dtype: None if found is None else found.lasting for dtype, found in flops.items()},
        matmul_peak_flops={dtype: None if found is None else found.peak for dtype, found in flops.items()},
        copy_bytes_per_second=copied,
        peer_bytes_per_second=peers,
        **rates,
        **{name: getattr(load, name) for name in LOAD},
        **{name: getattr(watch.load, name) for name in LINK},
    )


def matmul_flops(device: int, dtype: str, *, seconds: float) -> Flops:
    """Floating-point operations in a second of products of square matrices."""
    import torch

    kinds = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    capability = torch.cuda.get_device_capability(device)
    if dtype in ("tf32", "bf16") and capability < (8, 0):
        raise RuntimeError(f"a GPU of compute capability {capability[0]}.{capability[1]} has no {dtype}")
    itemsize = kinds[dtype].itemsize
    room = free_bytes(device)
    side = next((side for side in SIDES if 3 * side**2 * itemsize <= room), None)
    if side is None:
        raise RuntimeError(f"only {units.bytes_text(room)} of the GPU's memory may be used")
    # Random numbers: zeros switch fewer transistors, draw less power and so are too fast.
    one, other = (torch.randn(side, side, dtype=kinds[dtype], device=f"cuda:{device}") for _ in range(2))
    product = torch.empty_like(one)
    with precision("tf32" if dtype == "tf32" else "ieee"):
        each = paced(functools.partial(torch.mm, one, other, out=product), device, seconds=seconds)
    return Flops(lasting=2 * side**3 / each.lasting_seconds, peak=2 * side**3 / each.best_seconds)


def device_copy(device: int, *, seconds: float) -> float:
    """Bytes in a second that are read and written when memory of the device is copied within it."""
    import torch

    size = int(min(COPY_BYTES, free_bytes(device) / 2))
    one, other = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}") for _ in range(2))
    return 2 * size / paced(functools.partial(other.copy_, one), device, seconds=seconds / 2).lasting_seconds


def host_copy(device: int, kind: HostCopy, *, seconds: float) -> float:
    """Bytes in a second between the host's memory and the device's."""
    import torch

    available = gauges.memory_allotted().available_bytes
    room = free_bytes(device) if available is None else min(free_bytes(device), FREE_SHARE * available)
    size = int(min(TRANSFER_BYTES, room))
    # Filled: memory that was never written to is no memory yet.
    host = torch.empty(size, dtype=torch.uint8, pin_memory=kind.is_pinned).fill_(1)
    on_device = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}").fill_(1)
    to, source = (on_device, host) if kind.is_to_device else (host, on_device)
    copy = functools.partial(to.copy_, source, non_blocking=kind.is_pinned)
    return size / paced(copy, device, seconds=seconds / 3).lasting_seconds


def peer_copy(device: int, other: int, *, seconds: float) -> float:
    """Bytes in a second from one GPU to another; through the host where they have no way of their own."""
    import torch

    size = int(min(TRANSFER_BYTES, free_bytes(device), free_bytes(other)))
    source = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}").fill_(1)
    to = torch.empty(size, dtype=torch.uint8, device=f"cuda:{other}").fill_(1)
    torch.cuda.synchronize(other)
    copy = functools.partial(to.copy_, source, non_blocking=True)
    return size / paced(copy, device, seconds=seconds).lasting_seconds


def paced(work: Callable[[], object], device: int, *, seconds: float) -> Pace:
    """How long a call takes, by CUDA's own clock, of as many as fill the time."""
    import torch

    with torch.cuda.device(device):
        one = max(_grouped(work, groups=2, calls=2)[-1], 1e-9)
        calls = int(min(max(GROUP_SECONDS / one, 1), MOST_CALLS / 4))
        groups = int(min(max(seconds / (calls * one), 2), MOST_CALLS / calls))
        each = _grouped(work, groups=max(groups, 2), calls=calls)
    # The first half is for the clock to find its place.
    later = each[len(each) // 2 :]
    return Pace(lasting_seconds=max(sum(later) / len(later), 1e-9), best_seconds=max(min(each), 1e-9))


def _grouped(work: Callable[[], object], *, groups: int, calls: int) -> list[float]:
    """Seconds of a call in each of some groups of calls, which follow each other without a gap."""
    import torch

    events = [torch.cuda.Event(enable_timing=True) for _ in range(groups + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(calls):
            work()
        event.record()
    events[-1].synchronize()
    return [float(one.elapsed_time(other)) / 1000 / calls for one, other in itertools.pairwise(events)]


def free_bytes(device: int) -> float:
    """What a measurement may take of a GPU's memory."""
    import torch

    torch.cuda.empty_cache()
    return FREE_SHARE * torch.cuda.mem_get_info(device)[0]


@contextmanager
def precision(wanted: str) -> Iterator[None]:
    """How torch multiplies fp32 matrices, for as long as the block lasts."""
    import torch

    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
