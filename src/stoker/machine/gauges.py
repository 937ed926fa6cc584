"""What this machine has and what of it is ours: cores, memory, disk and GPUs. What cannot be measured is None, never 0.

Nothing here imports torch, so that a gauge can be read before (or without) paying for it.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
# cgroup v1 writes "no limit" as the largest page-aligned 63-bit number; no machine has an exbibyte.
NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True, kw_only=True)
class Cores:
    """The cores this process may use, those the machine has, and what stands between the two."""

    allotted: int
    present: int
    limited_by: str | None  # "affinity", "cgroup quota" or None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory this process may use and how much of that is left."""

    total_bytes: int | None
    available_bytes: int | None
    limited_by: str | None  # "cgroup" or None


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The room in `folder`, the nearest existing folder to the path asked about."""

    folder: str
    free_bytes: int | None
    total_bytes: int | None
    writable: bool


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as the driver sees it now."""

    index: int
    name: str | None = None
    memory_bytes: int | None = None
    used_bytes: int | None = None
    driver: str | None = None
    temperature_c: int | None = None
    busy_percent: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: int | None = None
    clock_max_mhz: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class GpuReport:
    """Every GPU of the machine, or why none could be read."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    driver_cuda: str | None = None  # the newest CUDA this driver can run
    missing: str | None = None


def cores_allotted(*, cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> Cores:
    """The cores this process may keep busy: the least of the machine's, its affinity and its cgroups' quotas."""
    affinity = _affinity()
    # The process runs, so there is at least one core even where the system will not say.
    present = max(os.cpu_count() or 1, affinity or 1)
    allotted, limited_by = present, None
    if affinity is not None and affinity < allotted:
        allotted, limited_by = affinity, "affinity"
    for group in own_groups("cpu", cgroup_root, proc):
        quota = quota_cores(group)
        # Rounded down: a busy thread on the last fraction of a core is throttled, and stalls the others with it.
        if quota is not None and max(1, int(quota)) < allotted:
            allotted, limited_by = max(1, int(quota)), "cgroup quota"
    return Cores(allotted=allotted, present=present, limited_by=limited_by)


def memory_allotted(*, cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> Memory:
    """The memory this process may use before the kernel ends it, and how much of that is left."""
    try:
        machine = psutil.virtual_memory()
        total_bytes, available_bytes = machine.total, machine.available
    except Exception:  # psutil's errors differ by system, and a missing gauge is no reason to stop
        total_bytes, available_bytes = None, None
    limits = [limit for group in own_groups("memory", cgroup_root, proc) if (limit := _memory_limit(group))]
    limits = [limit for limit in limits if limit[0] < (total_bytes or NO_LIMIT_BYTES)]
    if not limits:
        return Memory(total_bytes=total_bytes, available_bytes=available_bytes, limited_by=None)
    left_bytes = [left for _, left in limits if left is not None]
    if len(left_bytes) < len(limits):
        available_bytes = None  # a group that will not say what it uses may be the fullest
    else:
        available_bytes = min(left_bytes + ([] if available_bytes is None else [available_bytes]))
    return Memory(total_bytes=min(limit for limit, _ in limits), available_bytes=available_bytes, limited_by="cgroup")


def disk(path: Path) -> Disk:
    """The room where `path` is or would be made, and whether this process may write there."""
    folder = Path(os.path.abspath(path))
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        usage = shutil.disk_usage(folder)
        free_bytes, total_bytes = usage.free, usage.total
    except OSError:
        free_bytes, total_bytes = None, None
    writable = os.access(folder, os.W_OK | os.X_OK)
    return Disk(folder=str(folder), free_bytes=free_bytes, total_bytes=total_bytes, writable=writable)


def shared_memory_bytes(folder: Path = Path("/dev/shm")) -> int | None:
    """The room processes share, which containers keep small; None where the system has no such folder."""
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def gpus() -> GpuReport:
    """What the NVIDIA driver says of each GPU now, or why it says nothing."""
    try:
        import pynvml  # here, not above: the other gauges must work without it
    except ImportError:
        return GpuReport(missing="the package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuReport(missing=_why_no_nvml(error))
    try:
        driver = ask(pynvml.nvmlSystemGetDriverVersion)
        cuda = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        driver_cuda = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
        count = pynvml.nvmlDeviceGetCount()
        found = tuple(_gpu(index, driver) for index in range(count))
        missing = None if found else "the NVIDIA driver sees no GPU"
        return GpuReport(gpus=found, driver=driver, driver_cuda=driver_cuda, missing=missing)
    except pynvml.NVMLError as error:
        return GpuReport(missing=_why_no_nvml(error))
    finally:
        ask(pynvml.nvmlShutdown)


def _gpu(index: int, driver: str | None) -> Gpu:
    import pynvml

    handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:  # a GPU that fell off the bus still counts as one
        return Gpu(index=index, driver=driver)
    # The first version counts what the driver reserves for itself as used; only old drivers need it.
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    memory = memory or ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    busy = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power_mw = ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    power_limit_mw = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return Gpu(
        index=index,
        name=ask(pynvml.nvmlDeviceGetName, handle),
        memory_bytes=None if memory is None else int(memory.total),
        used_bytes=None if memory is None else int(memory.used),
        driver=driver,
        temperature_c=ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        busy_percent=None if busy is None else int(busy.gpu),
        power_w=None if power_mw is None else power_mw / 1000,
        power_limit_w=None if power_limit_mw is None else power_limit_mw / 1000,
        clock_mhz=ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        clock_max_mhz=ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        # Some virtual machines answer 0 lanes, which is no width.
        pcie_width=ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle) or None,
        pcie_width_max=ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle) or None,
    )


def ask(question: Callable[..., Any], *about: object) -> Any:
    """NVML's answer, or None where this GPU, driver or user gets none: each gauge fails alone."""
    import pynvml

    try:
        return question(*about)
    except pynvml.NVMLError:
        return None


def _why_no_nvml(error: Exception) -> str:
    import pynvml

    code = getattr(error, "value", None)
    if code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
        return "no NVIDIA driver"
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return "no permission"
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "the NVIDIA driver was updated and not yet reloaded"
    return f"NVML: {error}"


def _affinity() -> int | None:
    # Linux only; elsewhere a process may run on every core.
    ask = getattr(os, "sched_getaffinity", None)
    try:
        return len(ask(0)) or None if ask else None
    except OSError:
        return None


def own_groups(controller: str, cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> list[Path]:
    """The folders of this process's cgroups for one controller, v1 and v2, from its own up to the root."""
    # Some sandboxes show the tree but not our place in it; then its root is the best guess.
    memberships = _read(proc / "self" / "cgroup") or f"0::/\n1:{controller}:/"
    folders: list[Path] = []
    for line in memberships.splitlines():
        names, _, inside = line.partition(":")[2].partition(":")
        if not names:
            mounts = [cgroup_root, cgroup_root / "unified"]
        elif controller in names.split(","):
            mounts = [cgroup_root / names, cgroup_root / controller]
        else:
            continue
        parts = [part for part in inside.split("/") if part]
        if ".." in parts:  # our group lies outside what this container may see
            parts = []
        # In a container the path may be the host's, with our group mounted as the root: missing folders are skipped.
        folders += [mount.joinpath(*parts[:depth]) for mount in mounts for depth in range(len(parts), -1, -1)]
    return folders


def quota_cores(group: Path) -> float | None:
    """The cores' worth of time a group may use, or None for no limit."""
    both = (_read(group / "cpu.max") or "").split()
    quota, period = both if len(both) == 2 else (_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    quota_us, period_us = _number(quota), _number(period)
    if quota_us is None or period_us is None or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def _memory_limit(group: Path) -> tuple[int, int | None] | None:
    """A group's limit and what is left of it, in bytes; None where none is set."""
    for limit_name, used_name, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        limit_bytes = _number(_read(group / limit_name))
        if limit_bytes is None or limit_bytes < 0:
            continue
        used_bytes = _number(_read(group / used_name))
        if used_bytes is None:
            return limit_bytes, None
        # Cached files count as used but are dropped when memory is asked for, as in the kernel's own "available".
        stat = dict(line.split()[:2] for line in (_read(group / "memory.stat") or "").splitlines() if " " in line)
        cached_bytes = sum(_number(stat.get(f"{prefix}{kind}_file")) or 0 for kind in ("active", "inactive"))
        return limit_bytes, min(limit_bytes, max(0, limit_bytes - used_bytes + cached_bytes))
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:  # "max", or a file that is not there
        return None
