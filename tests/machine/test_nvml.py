import sys
from types import SimpleNamespace

import pynvml
import pytest

from stoker.machine import nvml
from tests.machine.test_gauges import GIB, H200, driver, error

TWO = H200 | {
    "nvmlDeviceGetCount": 2,
    "nvmlDeviceGetUUID": lambda handle: {"handle 0": "GPU-aa11", "handle 1": "GPU-bb22"}[handle],
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1 | 0x4 | 0x40,
}


@pytest.fixture(autouse=True)
def _all_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_every_gauge_is_read_in_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, **TWO)
    with nvml.opened(0) as devices:
        assert devices is not None
        (device,) = devices
        assert nvml.reading(device) == {
            "index": 0,
            "name": "NVIDIA H200",
            "busy_percent": 97,
            "memory_used_bytes": GIB,
            "memory_bytes": 150 * GIB,
            "power_w": 512.5,
            "power_limit_w": 700.0,
            "clock_mhz": 1755,
            "clock_max_mhz": 1980,
            "temperature_c": 61,
            "throttle": ["power cap", "hardware thermal slowdown"],  # and not "idle", which holds nothing down
        }


@pytest.mark.parametrize(
    ("question", "unknown"),
    [
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetUtilizationRates", {"busy_percent"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_bytes"}),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", {"throttle"}),
        ("nvmlDeviceGetName", {"name"}),
        ("nvmlDeviceGetMaxClockInfo", {"clock_max_mhz"}),
    ],
)
def test_a_question_without_permission_is_unknown_and_the_others_stay(
    question: str, unknown: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(monkeypatch, **TWO | {question: error(pynvml.NVML_ERROR_NO_PERMISSION)})
    with nvml.opened(1) as devices:
        assert devices is not None
        found = nvml.reading(devices[0])
    assert {name for name, value in found.items() if value is None} == unknown


def test_nothing_held_down_and_not_busy_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = {"nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0), "nvmlDeviceGetPowerUsage": 0}
    driver(monkeypatch, **TWO | idle | {"nvmlDeviceGetCurrentClocksThrottleReasons": 0x1})
    with nvml.opened(0) as devices:
        assert devices is not None
        found = nvml.reading(devices[0])
    assert (found["busy_percent"], found["power_w"], found["throttle"]) == (0, 0.0, [])


@pytest.mark.parametrize(
    ("shown", "seen"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), (" 1 , 0 ", [1, 0]), ("", []), ("-1", []), ("0,-1,1", [0]),
     ("0,7,1", [0]), ("GPU-bb22", [1]), ("GPU-b,0", [1, 0]), ("GPU-c,0", [])],
)  # fmt: skip
def test_the_gpus_that_cuda_shows_are_read_in_its_order(
    shown: str | None, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(monkeypatch, **TWO)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    with nvml.opened(None) as devices:
        assert devices is not None
        assert [device.index for device in devices] == seen


def test_torchs_first_gpu_is_the_first_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, **TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with nvml.opened(0) as devices:
        assert devices is not None
        assert [device.index for device in devices] == [1]
    with nvml.opened(1) as devices:  # which is not there: it is unknown, and another one is not taken for it
        assert devices is not None
        assert {value for device in devices for value in nvml.reading(device).values()} == {None}


def test_a_part_of_a_gpu_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"nvmlDeviceGetHandleByUUID": lambda word: "part" if word == "MIG-77" else None}
    driver(monkeypatch, **TWO | parts)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-77")
    with nvml.opened(0) as devices:
        assert devices is not None
        (device,) = devices
        assert (device.index, device.handle, nvml.reading(device)["power_w"]) == (None, "part", 512.5)


def test_a_lost_gpu_is_there_and_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, **TWO | {"nvmlDeviceGetHandleByIndex": error(pynvml.NVML_ERROR_GPU_IS_LOST)})
    with nvml.opened(None) as devices:
        assert devices is not None
        found = [nvml.reading(device) for device in devices]
    assert [gpu["index"] for gpu in found] == [0, 1]
    assert {value for gpu in found for name, value in gpu.items() if name != "index"} == {None}


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN]
)
def test_without_a_driver_nothing_is_known_and_nothing_is_shut(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = driver(monkeypatch, nvmlInit=error(code))
    with nvml.opened(None) as devices:
        assert devices is None
    assert asked == ["nvmlInit"]


def test_without_the_package_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with nvml.opened(None) as devices:
        assert devices is None


def test_the_driver_is_let_go_after_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = driver(monkeypatch, **TWO)
    with pytest.raises(ZeroDivisionError), nvml.opened(None):
        raise ZeroDivisionError
    assert (asked[0], asked[-1], asked.count("nvmlInit")) == ("nvmlInit", "nvmlShutdown", 1)
