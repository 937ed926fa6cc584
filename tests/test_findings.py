from dataclasses import replace
from typing import Any

import pytest

from stoker import findings
from stoker.findings import Finding, TorchReport
from stoker.machine.gauges import Cores, Disk, Gpu, GpuReport, Memory

GIB = 2**30
H200 = Gpu(index=0, name="NVIDIA H200", memory_bytes=140 * GIB, used_bytes=GIB // 2, pcie_width=16, pcie_width_max=16)
HEALTHY: dict[str, Any] = {
    "python": "3.12.3",
    "torch": TorchReport(version="2.10.0+cu128", cuda="12.8", cudnn="9.10.2", cuda_works=True),
    "gpus": GpuReport(gpus=(H200,), driver="570.86.15", driver_cuda="12.8"),
    "visible_devices": None,
    "cores": Cores(allotted=64, present=64, limited_by=None),
    "memory": Memory(total_bytes=256 * GIB, available_bytes=250 * GIB, limited_by=None),
    "disk": Disk(folder="/data", free_bytes=400 * GIB, total_bytes=500 * GIB, writable=True),
    "shm_bytes": 128 * GIB,
    "packages": {"torchvision": "0.25.0", "timm": "1.0.30"},
}


def complaints(**parts: Any) -> list[Finding]:
    """What is found wrong with a healthy machine whose parts are replaced by these."""
    return [finding for finding in findings.findings(**HEALTHY | parts) if finding.level != "good"]


def complaint(**parts: Any) -> Finding:
    """The only thing wrong with that machine; it must come with a fix."""
    (only,) = complaints(**parts)
    assert only.fix
    return only


def unusable(**parts: Any) -> TorchReport:
    return replace(TorchReport(version="2.11.0+cu130", cuda="13.0", cudnn="9.19.0"), **parts)


def test_a_healthy_machine_has_one_good_finding_per_area_with_its_figures() -> None:
    found = findings.findings(**HEALTHY)
    assert {finding.level for finding in found} == {"good"}
    assert [finding.what for finding in found] == [
        "Python 3.12.3",
        "torch 2.10.0+cu128, built for CUDA 12.8",
        "CUDA works (1 x NVIDIA H200 140.0 GiB): driver 570.86.15 runs CUDA up to 12.8, "
        "torch 2.10.0+cu128 is for CUDA 12.8, cuDNN 9.10.2",
        "64 CPU cores, all allotted to this process",
        "250.0 GiB of 256.0 GiB memory available",
        "400.0 GiB of 500.0 GiB disk free at /data",
    ]


def test_several_equal_gpus_are_counted() -> None:
    eight = GpuReport(gpus=tuple(replace(H200, index=index) for index in range(8)), driver="570", driver_cuda="12.8")
    machine: dict[str, Any] = {**HEALTHY, "gpus": eight}
    assert any("(8 x NVIDIA H200" in finding.what for finding in findings.findings(**machine))


@pytest.mark.parametrize("python", ["3.10.14", "3.9.1", "2.7.18"])
def test_an_old_python_is_named(python: str) -> None:
    found = complaint(python=python)
    assert found.level == "bad"
    assert python in found.what
    assert "3.11" in found.what


@pytest.mark.parametrize("python", ["3.11.0", "3.13.0rc1", "4.0.0"])
def test_a_new_python_is_well(python: str) -> None:
    assert complaints(python=python) == []


@pytest.mark.parametrize("version", ["2.9.1+cu128", "1.13.1"])
def test_an_old_torch_is_named(version: str) -> None:
    found = complaint(torch=replace(HEALTHY["torch"], version=version))
    assert found.level == "bad"
    assert version in found.what
    assert "2.10" in found.what


@pytest.mark.parametrize("version", ["2.10.0", "2.11.0a0+gitabc1234", "3.0.0"])
def test_a_new_torch_is_well(version: str) -> None:
    assert complaints(torch=replace(HEALTHY["torch"], version=version)) == []


def test_a_missing_torch_is_one_finding_although_there_is_a_gpu() -> None:
    found = complaint(torch=TorchReport(trouble="No module named 'torch'"))
    assert found.level == "bad"
    assert "No module named 'torch'" in found.what
    assert "pip install torch torchvision" in (found.fix or "")


def test_no_gpu_is_a_warning_with_its_reason() -> None:
    cpu = TorchReport(version="2.10.0+cpu")
    found = complaint(torch=cpu, gpus=GpuReport(missing="no NVIDIA driver"))
    assert found.level == "warn"
    assert "no NVIDIA driver" in found.what
    assert "CPU" in found.what


def test_no_gpu_and_no_torch_are_two_findings() -> None:
    found = complaints(torch=TorchReport(), gpus=GpuReport(missing="no NVIDIA driver"))
    assert [finding.level for finding in found] == ["bad", "warn"]


def test_a_torch_for_the_cpu_beside_a_gpu_is_named_with_the_command_and_the_drivers_cuda() -> None:
    found = complaint(torch=TorchReport(version="2.10.0+cpu"))
    assert found.level == "bad"
    assert "2.10.0+cpu" in found.what
    assert "NVIDIA H200" in found.what
    assert "`pip install torch torchvision` with the index that pytorch.org names" in (found.fix or "")
    assert "up to 12.8" in (found.fix or "")


@pytest.mark.parametrize(
    ("driver_cuda", "command"),
    [
        ("13.0", "`pip install torch torchvision` (the driver"),
        (None, "`pip install torch torchvision` (the driver"),
        ("12.9", "`pip install torch torchvision` with the index that pytorch.org names for CUDA 12.9 or older"),
    ],
)
def test_the_command_installs_a_torch_the_driver_can_run(driver_cuda: str | None, command: str) -> None:
    gpus = replace(HEALTHY["gpus"], driver_cuda=driver_cuda)
    assert command in (complaint(torch=TorchReport(version="2.10.0+cpu"), gpus=gpus).fix or "")


def test_a_driver_too_old_for_torch_is_named_with_both_versions() -> None:
    found = complaint(torch=unusable())
    assert found.level == "bad"
    for figure in ("too old", "570.86.15", "12.8", "2.11.0+cu130", "13.0"):
        assert figure in found.what
    assert "driver to one for CUDA 13.0" in (found.fix or "")
    assert "for CUDA 12.8 or older" in (found.fix or "")


def test_a_driver_too_old_for_any_torch_must_be_updated() -> None:
    found = complaint(torch=unusable(), gpus=replace(HEALTHY["gpus"], driver="470.57", driver_cuda="11.4"))
    assert "470.57" in found.what
    assert "pip install" not in (found.fix or "")


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_hidden_gpu_is_not_blamed_on_the_driver(hidden: str) -> None:
    found = complaint(torch=unusable(), visible_devices=hidden)
    assert f"CUDA_VISIBLE_DEVICES={hidden!r}" in found.what
    assert "unset" in (found.fix or "")


def test_a_gpu_torch_cannot_reach_for_another_reason_is_named_with_that_reason() -> None:
    torch = unusable(cuda="12.8", trouble="CUDA unknown error - 999")
    found = complaint(torch=torch, visible_devices="0")
    assert found.level == "bad"
    assert "CUDA unknown error - 999" in found.what
    assert "too old" not in found.what


@pytest.mark.parametrize(
    ("trouble", "fix"),
    [
        ("CUDNN_STATUS_NOT_INITIALIZED", "LD_LIBRARY_PATH"),
        ("CUDA out of memory. Tried to allocate 2.00 MiB", "nvidia-smi"),
        ("CUDA error: no kernel image is available for execution on the device", "newest torch"),
    ],
)
def test_a_failing_computation_is_named_with_its_error_and_a_fitting_fix(trouble: str, fix: str) -> None:
    found = complaint(torch=replace(HEALTHY["torch"], cuda_works=False, trouble=trouble))
    assert found.level == "bad"
    assert trouble in found.what
    assert fix in (found.fix or "")


def test_a_working_gpu_whose_gauges_are_closed_is_not_called_missing() -> None:
    found = complaint(gpus=GpuReport(missing="no permission"))
    assert found.level == "warn"
    assert "CUDA works" in found.what
    assert "no permission" in found.what


def test_a_gpu_held_by_others_is_named_with_its_memory() -> None:
    gpus = replace(HEALTHY["gpus"], gpus=(H200, replace(H200, index=1, used_bytes=70 * GIB)))
    found = complaint(gpus=gpus)
    assert found.level == "warn"
    assert "GPU 1 is held by others: 70.0 GiB of 140.0 GiB" in found.what


@pytest.mark.parametrize("used_bytes", [14 * GIB, None])
def test_a_gpu_with_a_tenth_or_an_unknown_part_in_use_is_not_held(used_bytes: int | None) -> None:
    assert complaints(gpus=replace(HEALTHY["gpus"], gpus=(replace(H200, used_bytes=used_bytes),))) == []


def test_a_narrow_pcie_link_is_named_and_said_to_narrow_at_idle() -> None:
    found = complaint(gpus=replace(HEALTHY["gpus"], gpus=(replace(H200, pcie_width=4),)))
    assert found.level == "warn"
    assert "4 of 16 PCIe lanes" in found.what
    assert "idle" in found.what


def test_an_unknown_pcie_width_is_not_narrow() -> None:
    assert complaints(gpus=replace(HEALTHY["gpus"], gpus=(replace(H200, pcie_width=None),))) == []


@pytest.mark.parametrize(("limited_by", "fix"), [("cgroup quota", "--cpus"), ("affinity", "taskset")])
def test_eight_of_sixty_four_cores_are_named_with_what_limits_them(limited_by: str, fix: str) -> None:
    found = complaint(cores=Cores(allotted=8, present=64, limited_by=limited_by))
    assert found.level == "warn"
    assert "8 of 64 CPU cores" in found.what
    assert limited_by in found.what
    assert fix in (found.fix or "")


def test_little_memory_is_named_with_its_limit() -> None:
    found = complaint(memory=Memory(total_bytes=4 * GIB, available_bytes=GIB // 2, limited_by="cgroup"))
    assert found.level == "warn"
    assert "512.0 MiB of 4.0 GiB" in found.what
    assert "cgroup" in found.what


def test_unknown_memory_is_not_called_little() -> None:
    found = complaint(memory=Memory(total_bytes=None, available_bytes=None, limited_by=None))
    assert "cannot be measured" in found.what


@pytest.mark.parametrize(
    ("free_bytes", "level", "figure"), [(3 * GIB, "warn", "3.0 GiB of 500.0 GiB"), (100 * 2**20, "bad", "100.0 MiB of")]
)
def test_a_full_disk_is_named_with_its_room(free_bytes: int, level: str, figure: str) -> None:
    found = complaint(disk=replace(HEALTHY["disk"], free_bytes=free_bytes))
    assert found.level == level
    assert figure in found.what
    assert "/data" in found.what


def test_a_disk_closed_to_us_is_bad() -> None:
    found = complaint(disk=replace(HEALTHY["disk"], writable=False))
    assert (found.level, found.what) == ("bad", "/data is not writable")


def test_an_unmeasured_disk_is_not_called_full() -> None:
    found = complaint(disk=replace(HEALTHY["disk"], free_bytes=None))
    assert (found.level, "cannot be measured" in found.what) == ("warn", True)


def test_a_containers_small_shared_memory_is_named() -> None:
    found = complaint(shm_bytes=64 * 2**20)
    assert "64.0 MiB" in found.what
    assert "--shm-size" in (found.fix or "")


def test_unknown_shared_memory_is_not_called_small() -> None:
    assert complaints(shm_bytes=None) == []


def test_a_missing_timm_is_a_warning() -> None:
    found = complaint(packages={"torchvision": "0.25.0", "timm": None})
    assert (found.level, found.fix) == ("warn", "run `pip install timm`")


def test_a_missing_native_decoder_is_a_warning_that_names_the_cure() -> None:
    found = complaint(packages={"torchvision": "0.25.0", "timm": "1.0", "native decoder": None})
    assert found.level == "warn" and "libjpeg-dev" in (found.fix or "")


def test_several_troubles_are_all_named() -> None:
    found = complaints(
        cores=Cores(allotted=8, present=64, limited_by="cgroup quota"),
        disk=replace(HEALTHY["disk"], free_bytes=GIB),
        packages={},
    )
    assert len(found) == 3
