import contextlib
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch

from stoker import doctor
from stoker.doctor import course, gpu, shortfalls
from stoker.doctor.gpu import Flops
from stoker.doctor.profile import DTYPES, GpuSpeed
from stoker.machine import catalogue, nvml


def run_through(steps: Generator[str, None, Any]) -> tuple[list[str], Any]:
    """The names that were yielded, and what was returned."""
    names = []
    while True:
        try:
            names.append(next(steps))
        except StopIteration as end:
            return names, end.value


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that sees two GPUs, all of whose measurements are made up."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Made Up {device}")
    monkeypatch.setattr(gpu, "matmul_flops", lambda device, dtype, *, seconds: Flops(lasting=1e12, peak=2e12))
    monkeypatch.setattr(gpu, "device_copy", lambda device, *, seconds: 3e9)
    monkeypatch.setattr(gpu, "host_copy", lambda device, kind, *, seconds: 4e9 if kind.is_to_device else 5e9)
    monkeypatch.setattr(gpu, "peer_copy", lambda device, other, *, seconds: 6e9 + other)


@pytest.mark.usefixtures("two_gpus")
def test_every_gpu_is_measured_and_every_measurement_named() -> None:
    missing: dict[str, str] = {}
    names, (first, second) = run_through(gpu.measured(missing, seconds=0.0))
    assert len(names) == 2 * gpu.STEPS and names[0] == "GPU 0: fp32 matrix products"
    assert (first.index, first.name, second.name) == (0, "Made Up 0", "Made Up 1")
    assert first.matmul_flops == dict.fromkeys(DTYPES, 1e12) and first.matmul_peak_flops == dict.fromkeys(DTYPES, 2e12)
    assert (first.copy_bytes_per_second, first.to_device_bytes_per_second, first.to_host_bytes_per_second) == (
        3e9,
        4e9,
        5e9,
    )
    assert first.peer_bytes_per_second == {1: 6e9 + 1} and second.peer_bytes_per_second == {0: 6e9}


FAILURES = {
    "matmul_flops": ("bf16 matrix products", lambda one: one.matmul_flops["bf16"]),
    "device_copy": ("copies within its memory", lambda one: one.copy_bytes_per_second),
    "host_copy": ("pageable copies", lambda one: one.pageable_to_device_bytes_per_second),
    "peer_copy": ("copies to GPU 1", lambda one: one.peer_bytes_per_second[1]),
}


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", FAILURES)
def test_a_measurement_fails_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: int, *_: object, seconds: float) -> float:
        raise RuntimeError("CUDA error: an illegal memory access\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(gpu, name, fail)
    missing: dict[str, str] = {}
    _, (first, _) = run_through(gpu.measured(missing, seconds=0.0))
    what, value = FAILURES[name]
    assert missing[f"GPU 0 {what}"] == "CUDA error: an illegal memory access"
    assert value(first) is None
    assert sum(value(first) is not None for other, (_, value) in FAILURES.items() if other != name) == len(FAILURES) - 1


@pytest.mark.usefixtures("two_gpus")
def test_an_unknown_clock_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "opened", lambda index: contextlib.nullcontext(None))
    missing: dict[str, str] = {}
    _, (first, _) = run_through(gpu.measured(missing, seconds=0.0))
    assert first.clock_mhz is None and "GPU 0 clock under load" in missing


@pytest.mark.parametrize("dtype", ["tf32", "bf16"])
def test_an_old_gpu_is_said_to_have_no_such_units(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    with pytest.raises(RuntimeError, match=f"7.0 has no {dtype}"):
        gpu.matmul_flops(0, dtype, seconds=0.1)


def test_a_full_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1024, 2**30))
    with pytest.raises(RuntimeError, match="only 717 B"):
        gpu.matmul_flops(0, "fp32", seconds=0.1)


def test_the_best_pace_is_of_any_group_and_the_lasting_one_of_the_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(gpu, "_grouped", lambda work, *, groups, calls: [2.0, 1.0, 3.0, 5.0])
    pace = gpu.paced(lambda: None, 0, seconds=1.0)
    assert (pace.best_seconds, pace.lasting_seconds) == (1.0, 4.0)


@pytest.mark.parametrize("one_seconds", [1e-6, 1e-3, 10.0])
def test_the_calls_fill_the_time_and_no_more(one_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def grouped(work: Callable[[], object], *, groups: int, calls: int) -> list[float]:
        asked.append((groups, calls))
        return [one_seconds] * groups

    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(gpu, "_grouped", grouped)
    gpu.paced(lambda: None, 0, seconds=1.0)
    groups, calls = asked[-1]
    assert groups >= 2 and calls >= 1
    assert groups * calls <= gpu.MOST_CALLS and (groups * calls * one_seconds <= 1.01 or groups == 2)


def test_the_precision_of_products_is_put_back() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    with gpu.precision("tf32"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == before


@pytest.fixture(scope="module")
def real() -> GpuSpeed:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "SECONDS", 1.0)
        missing: dict[str, str] = {}
        names, found = run_through(gpu.measured(missing, seconds=1.0))
    assert missing == {} and len(names) == gpu.STEPS * torch.cuda.device_count()
    speed = found[0]
    assert isinstance(speed, GpuSpeed)
    return speed


@pytest.mark.gpu
def test_a_real_gpu_gives_every_figure(real: GpuSpeed) -> None:
    for dtype in DTYPES:
        lasting, peak = real.matmul_flops[dtype], real.matmul_peak_flops[dtype]
        assert lasting is not None and peak is not None and 1e11 < lasting <= 1.05 * peak < 1e16
    assert (real.matmul_flops["bf16"] or 0) > 2 * (real.matmul_flops["fp32"] or 0)
    assert real.clock_mhz and real.clock_max_mhz and real.clock_mhz <= real.clock_max_mhz
    assert real.power_w and real.power_limit_w and real.power_w > 0.3 * real.power_limit_w, "it was under load"
    assert (real.copy_bytes_per_second or 0) > (real.to_device_bytes_per_second or 0) > 1e9
    assert (real.to_device_bytes_per_second or 0) > (real.pageable_to_device_bytes_per_second or 0)


@pytest.mark.gpu
def test_an_h200_gives_what_others_measured_on_one(real: GpuSpeed) -> None:
    if real.name != "NVIDIA H200":
        pytest.skip(f"this is {real.name}")
    assert 700e12 <= (real.matmul_peak_flops["bf16"] or 0) <= 880e12
    assert 3.9e12 <= (real.copy_bytes_per_second or 0) <= 4.7e12
    assert 43e9 <= (real.to_device_bytes_per_second or 0) <= 63e9
    assert shortfalls.found(doctor.Measured(at=0.0, gpus=(real,)), catalogue.read()) == ()


@pytest.mark.gpu
def test_the_memory_is_given_back(real: GpuSpeed) -> None:
    assert torch.cuda.memory_reserved() < 2**28, real
    assert torch.cuda.max_memory_allocated() < 2**28, "a run that follows reports its own peak"
