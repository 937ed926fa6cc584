"""What the NVIDIA driver says of some GPUs while they train: opened once, asked again and again, closed once.

Only cheap questions are asked, of some microseconds each. The list of a GPU's processes takes milliseconds, and is not.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stoker.machine.gauges import ask

# The bits of nvmlClocksEventReasons in NVIDIA's nvml.h. The lowest, "idle", holds nothing down.
THROTTLES = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU to be asked, with what does not change."""

    index: int | None
    """as nvidia-smi counts; None where a GPU named by its UUID is not found"""
    handle: Any
    name: str | None = None
    clock_max_mhz: int | None = None


@contextlib.contextmanager
def opened(gpu_index: int | None) -> Iterator[tuple[Device, ...] | None]:
    """The GPU that torch calls `cuda:gpu_index`, or all that CUDA_VISIBLE_DEVICES shows; None without a driver."""
    nvml = _driver()
    if nvml is None:
        yield None
        return
    try:
        yield _devices(gpu_index, os.environ.get("CUDA_VISIBLE_DEVICES"))
    finally:
        ask(nvml.nvmlShutdown)


def reading(device: Device) -> dict[str, Any]:
    """A GPU's gauges as GaugeRow has them, each None where it cannot be read."""
    import pynvml

    values: dict[str, Any] = dict.fromkeys(
        ("busy_percent", "memory_used_bytes", "memory_bytes", "power_w", "power_limit_w", "clock_mhz", "temperature_c",
         "throttle")
    )  # fmt: skip
    values = {"index": device.index, "name": device.name, **values, "clock_max_mhz": device.clock_max_mhz}
    handle = device.handle
    if handle is None:
        return values
    if busy := ask(pynvml.nvmlDeviceGetUtilizationRates, handle):
        values["busy_percent"] = int(busy.gpu)
    # The first version counts what the driver reserves for itself as used; only old drivers need it.
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory := memory or ask(pynvml.nvmlDeviceGetMemoryInfo, handle):
        values |= {"memory_used_bytes": int(memory.used), "memory_bytes": int(memory.total)}
    for name, question in (
        ("power_w", pynvml.nvmlDeviceGetPowerUsage),
        ("power_limit_w", pynvml.nvmlDeviceGetEnforcedPowerLimit),
    ):
        milliwatts = ask(question, handle)
        values[name] = None if milliwatts is None else milliwatts / 1000
    values["clock_mhz"] = ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM)
    values["temperature_c"] = ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    values["throttle"] = throttles(handle)
    return values


def throttles(handle: Any) -> list[str] | None:
    """Why the clock of a GPU is held down now: none of the reasons, some of them, or None where it does not say."""
    import pynvml

    bits = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return None if bits is None else [reason for bit, reason in THROTTLES.items() if bits & bit]


def _driver() -> Any:
    """The driver, opened; None where it is not installed, not running or not for us. `stoker doctor` says which."""
    try:
        import pynvml  # here, not above: the other gauges must work without it

        pynvml.nvmlInit()
    except Exception:  # a library that is there and broken raises what it likes
        return None
    return pynvml


def _devices(gpu_index: int | None, shown: str | None) -> tuple[Device, ...]:
    """The GPUs that this process sees, in torch's order, or the one of them that is asked for."""
    import pynvml

    count = ask(pynvml.nvmlDeviceGetCount) or 0
    if shown is None:
        found = [_by_index(index) for index in range(count)]
    else:
        found = []
        for word in shown.replace(" ", "").split(","):
            # CUDA itself ends the list at the first word that names no GPU.
            device = _by_index(int(word)) if word.isdigit() and int(word) < count else _by_uuid(word, count)
            if device is None:
                break
            found.append(device)
    if gpu_index is None:
        return tuple(found)
    return (found[gpu_index],) if gpu_index < len(found) else (Device(index=None, handle=None),)


def _by_index(index: int) -> Device:
    import pynvml

    handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    return _described(index, handle)


def _by_uuid(word: str, count: int) -> Device | None:
    """The GPU whose UUID begins with a word; a part of a GPU (MIG) is named by its whole UUID."""
    import pynvml

    if not word.startswith(("GPU-", "MIG-")):
        return None
    for index in range(count):
        handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is not None and (ask(pynvml.nvmlDeviceGetUUID, handle) or "").startswith(word):
            return _described(index, handle)
    handle = ask(pynvml.nvmlDeviceGetHandleByUUID, word)
    return None if handle is None else _described(None, handle)


def _described(index: int | None, handle: Any) -> Device:
    import pynvml

    if handle is None:  # a GPU that fell off the bus still counts as one
        return Device(index=index, handle=None)
    return Device(
        index=index,
        handle=handle,
        name=ask(pynvml.nvmlDeviceGetName, handle),
        clock_max_mhz=ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
    )
