"""What NVML says of a GPU while it is at work. Each reading fails alone and is None then."""

import dataclasses
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker.machine import nvml
from stoker.machine.gauges import ask
from stoker.machine.nvml import Device

# Some dozens of samples in a load of a second, and rare enough to leave the driver alone.
SAMPLE_SECONDS = 0.04


@dataclass(frozen=True, kw_only=True)
class Load:
    """A GPU over some time. All None where NVML gave no answer."""

    clock_mhz: int | None = None
    """in the middle of the samples"""
    clock_max_mhz: int | None = None
    power_w: float | None = None
    """at most"""
    power_limit_w: float | None = None
    throttle: tuple[str, ...] = ()
    """what held the clock down for most of the time"""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None


class Watch:
    """Reads the GPU that torch calls `cuda:device` from a thread while the block lasts; then `load` is there."""

    def __init__(self, device: int) -> None:
        self.load = Load()
        self._device, self._over = device, threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu readings", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with nvml.opened(self._device) as devices:
            if not devices or devices[0].handle is None:
                return
            samples = [sample(devices[0])]
            while not self._over.wait(SAMPLE_SECONDS):
                samples.append(sample(devices[0]))
            self.load = summed(samples)


def index_of(device: int) -> int:
    """The number that nvidia-smi gives the GPU that torch calls `cuda:device`; torch's where that is not known."""
    with nvml.opened(device) as devices:
        found = devices[0].index if devices else None
    return device if found is None else found


def uuids() -> tuple[str, ...]:
    """The UUIDs of the GPUs that this process may use; none where NVML gives no answer."""
    with nvml.opened(None) as devices:
        if not devices:
            return ()
        import pynvml

        return tuple(str(ask(pynvml.nvmlDeviceGetUUID, one.handle)) for one in devices if one.handle is not None)


def sample(device: Device) -> dict[str, Any]:
    """A GPU now: its gauges, and its link to the host."""
    import pynvml

    questions = {
        "pcie_generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
        "pcie_width": pynvml.nvmlDeviceGetCurrPcieLinkWidth,
        "pcie_generation_max": pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
        "pcie_width_max": pynvml.nvmlDeviceGetMaxPcieLinkWidth,
    }
    # Some virtual machines answer 0, which is neither a width nor a generation.
    return nvml.reading(device) | {name: ask(question, device.handle) or None for name, question in questions.items()}


def summed(samples: Sequence[dict[str, Any]]) -> Load:
    """Samples as one statement, from their second half: in the first the clock still finds its place."""
    settled = samples[len(samples) // 2 :]
    clocks = [one["clock_mhz"] for one in settled if one["clock_mhz"] is not None]
    reasons = [reason for one in settled for reason in one["throttle"] or ()]
    names = [field.name for field in dataclasses.fields(Load) if field.name not in ("clock_mhz", "throttle")]
    return Load(
        clock_mhz=round(statistics.median(clocks)) if clocks else None,
        # One sample over the power limit is no cap.
        throttle=tuple(reason for reason in dict.fromkeys(reasons) if 2 * reasons.count(reason) > len(settled)),
        **{name: max((one[name] for one in settled if one[name] is not None), default=None) for name in names},
    )
