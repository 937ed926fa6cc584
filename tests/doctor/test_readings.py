import contextlib
import itertools
import threading
from typing import Any

import pytest

from stoker.doctor import readings
from stoker.doctor.readings import Load, Watch
from stoker.machine import nvml
from stoker.machine.nvml import Device


def sample(clock: int | None, *, power: float | None = 100.0, why: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "clock_mhz": clock, "clock_max_mhz": 1980, "power_w": power, "power_limit_w": 700.0, "throttle": list(why),
        "pcie_generation": 5, "pcie_width": 16, "pcie_generation_max": 5, "pcie_width_max": 16,
    }  # fmt: skip


def test_the_second_half_of_the_samples_counts() -> None:
    load = readings.summed([sample(345, power=900), sample(400), sample(1500, power=690), sample(1600, power=700)])
    assert (load.clock_mhz, load.power_w, load.clock_max_mhz, load.pcie_width) == (1550, 700, 1980, 16)


def test_a_reason_counts_where_it_holds_for_most_of_the_time() -> None:
    often, rare = ("power cap", "thermal slowdown"), ("power cap",)
    load = readings.summed(
        [sample(1500), sample(1500), sample(1500), *[sample(1500, why=rare)] * 2, sample(1, why=often)]
    )
    assert load.throttle == ("power cap",)


def test_what_nvml_does_not_say_is_none() -> None:
    silent = dict.fromkeys(sample(1))
    assert readings.summed([silent, silent]) == Load()


def test_without_nvml_the_load_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "opened", lambda index: contextlib.nullcontext(None))
    with Watch(0) as watch:
        pass
    assert watch.load == Load() and readings.index_of(3) == 3 and readings.uuids() == ()


def test_a_gpu_is_read_from_a_thread_while_the_block_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks, seen = itertools.count(1000, 100), threading.Event()

    def read(device: Device) -> dict[str, Any]:
        clock = next(clocks)
        if clock >= 1300:
            seen.set()
        return sample(clock)

    device = Device(index=5, handle=object())
    monkeypatch.setattr(nvml, "opened", lambda index: contextlib.nullcontext((device,)))
    monkeypatch.setattr(readings, "sample", read)
    monkeypatch.setattr(readings, "SAMPLE_SECONDS", 0.001)
    with Watch(0) as watch:
        assert seen.wait(10)
    assert watch.load.clock_mhz is not None and watch.load.clock_mhz > 1000
    assert readings.index_of(0) == 5
