import json
import os
import sys
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stoker import doctor
from stoker.dist import World
from stoker.doctor import cache, course, cpu, disk, gpu, network, software
from stoker.doctor.network import PeerSpeed
from stoker.doctor.profile import GpuSpeed
from stoker.errors import Problem
from stoker.findings import TorchReport
from stoker.machine import gauges
from stoker.machine.gauges import Gpu, GpuReport
from tests.doctor import speeds

GIB = 2**30
H200 = GpuReport(
    gpus=(Gpu(index=0, name="NVIDIA H200", memory_bytes=140 * GIB, used_bytes=GIB // 2),),
    driver="570.86.15",
    driver_cuda="12.8",
)


class Tensor:
    """Stands for a tensor on the GPU whose every sum is the next of the given numbers."""

    def __init__(self, sums: list[float]) -> None:
        self.sums = sums

    def __matmul__(self, other: "Tensor") -> "Tensor":
        return self

    def sum(self) -> "Tensor":
        return self

    def item(self) -> float:
        return self.sums.pop(0)


def put_torch(monkeypatch: pytest.MonkeyPatch, *, available: Callable[[], bool], sums: list[float]) -> None:
    """Puts a made-up torch for CUDA 12.8 where `import torch` finds it."""
    tensor = Tensor(sums)
    torch = SimpleNamespace(
        __version__="2.10.0+cu128",
        version=SimpleNamespace(cuda="12.8"),
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91002)),
        cuda=SimpleNamespace(is_available=available),
        ones=lambda *shape, device: tensor,
        nn=SimpleNamespace(functional=SimpleNamespace(conv2d=lambda image, kernel: tensor)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.fixture
def one_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "gpus", lambda: H200)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def bad(profile: doctor.MachineProfile) -> list[str]:
    return [finding.what for finding in profile.findings if finding.level == "bad"]


def test_this_machine_is_examined_into_json(tmp_path: Path) -> None:
    profile = doctor.examine(tmp_path / "runs")
    read = json.loads(json.dumps(asdict(profile)))
    assert read["version"] == 2
    assert read["torch"]
    assert read["disk"]["folder"] == str(tmp_path)
    assert read["packages"]["safetensors"]
    assert len(read["findings"]) >= 6


def test_a_machine_without_torch_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    profile = doctor.examine(tmp_path)
    assert (profile.torch, profile.torch_cuda, profile.cudnn, profile.cuda_works) == (None, None, None, None)
    assert any("torch cannot be imported" in what for what in bad(profile))


@pytest.mark.usefixtures("one_h200")
def test_a_gpu_that_computes_rightly_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_torch(monkeypatch, available=lambda: True, sums=[262144.0, 3888.0])
    profile = doctor.examine(tmp_path)
    assert (profile.cuda_works, profile.cudnn, profile.driver_cuda) == (True, "9.10.2", "12.8")
    assert not any("CUDA" in what for what in bad(profile))


@pytest.mark.usefixtures("one_h200")
def test_a_gpu_that_computes_wrongly_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_torch(monkeypatch, available=lambda: True, sums=[262144.0, 3887.0])
    profile = doctor.examine(tmp_path)
    assert profile.cuda_works is False
    assert any("3887.0" in what for what in bad(profile))


@pytest.mark.usefixtures("one_h200")
def test_a_gpu_that_fails_is_named_by_the_errors_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_torch(monkeypatch, available=lambda: True, sums=[])

    def fail(*_: int, device: str) -> None:
        raise RuntimeError(f"error on {device}\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(sys.modules["torch"], "ones", fail)
    profile = doctor.examine(tmp_path)
    assert profile.cuda_works is False
    assert any(what.endswith(": error on cuda") for what in bad(profile))


@pytest.mark.usefixtures("one_h200")
def test_torchs_warning_about_the_gpu_becomes_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def available() -> bool:
        warnings.warn("something else", DeprecationWarning, stacklevel=1)
        warnings.warn("CUDA initialization: unknown error\nmore", UserWarning, stacklevel=1)
        return False

    put_torch(monkeypatch, available=available, sums=[])
    profile = doctor.examine(tmp_path)
    assert profile.cuda_works is None
    assert any(what.endswith(": CUDA initialization: unknown error") for what in bad(profile))


@pytest.mark.usefixtures("one_h200")
def test_the_hiding_variable_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_torch(monkeypatch, available=lambda: False, sums=[])
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "")
    assert any("CUDA_VISIBLE_DEVICES=''" in what for what in bad(doctor.examine(tmp_path)))


@pytest.mark.usefixtures("one_h200")
def test_a_broken_cudnn_does_not_stop_the_examination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mismatch() -> int:
        raise RuntimeError("cuDNN version incompatibility")

    put_torch(monkeypatch, available=lambda: True, sums=[262144.0, 3888.0])
    monkeypatch.setattr(sys.modules["torch"].backends.cudnn, "version", mismatch)
    assert doctor.examine(tmp_path).cudnn is None


def test_an_examination_measures_nothing_and_has_what_was_measured_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "followed", lambda *_, **__: pytest.fail("a run would wait for this"))
    assert doctor.examine(tmp_path).measured is None
    cache.save(speeds.measured())
    assert doctor.examine(tmp_path).measured == speeds.measured()


def test_this_machine_is_measured_into_json(tmp_path: Path) -> None:
    found = doctor.measure(tmp_path, show=False)
    read = json.loads(json.dumps(asdict(found)))
    assert read["version"] == 2 and read["measured"]["disk"]["folder"] == str(tmp_path)
    assert read["measured"]["cpu"]["decode_all_per_second"] > 0
    assert {row["part"] for row in read["figures"]} >= {"CPU", "disk"}
    assert doctor.examine(tmp_path).measured == found.measured, "it is kept"


def test_the_second_time_nothing_is_measured_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = doctor.measure(tmp_path, show=False).measured
    with monkeypatch.context() as patch:
        patch.setattr(cpu, "measured", lambda *_, **__: pytest.fail("it is known"))
        patch.setattr(disk, "measured", lambda *_, **__: pytest.fail("it is known"))
        assert doctor.measure(tmp_path, show=False).measured == first
    again = doctor.measure(tmp_path, again=True, show=False).measured
    assert first is not None and again is not None and again.at > first.at


def test_figures_that_can_not_be_read_are_measured_anew_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.save(speeds.measured())
    cache.path().write_text("{torn")
    found = doctor.measure(tmp_path).measured
    assert found is not None and found.cpu is not None and found.cpu != speeds.cpu()
    assert "can't be read" in found.missing["figures of before"] and "can't be read" in capsys.readouterr().err
    assert cache.load().measured is not None, "they are kept, and can be read"


def test_figures_that_can_not_be_kept_are_told_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "file")
    found = doctor.measure(tmp_path, show=False).measured
    assert found is not None and found.cpu is not None and "can't be kept" in found.missing["figures for later"]


def test_a_machine_without_torch_is_measured_as_far_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "stoker.data.loader", raising=False)
    found = doctor.measure(tmp_path, show=False)
    assert found.measured is not None and found.measured.disk is not None
    assert set(found.measured.missing) == {"GPUs", "CPU: pictures decoded"}
    assert any("torch cannot be imported" in what for what in bad(found))


@pytest.mark.usefixtures("one_h200")
def test_a_gpu_that_can_not_be_used_is_said_not_to_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = TorchReport(version="2.10.0+cu128", cuda="12.8", cuda_works=False, trouble="error on cuda")
    monkeypatch.setattr(software, "torch_report", lambda: broken)
    found = doctor.measure(tmp_path, show=False).measured
    assert found is not None and found.gpus == () and found.missing["GPUs"] == "a computation with CUDA fails"


@pytest.mark.usefixtures("one_h200")
def test_a_measured_gpu_is_set_against_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(missing: dict[str, str], *, seconds: float) -> Generator[str, None, tuple[GpuSpeed, ...]]:
        yield "GPU 0"
        return (speeds.gpu(pcie_width=8, to_device_bytes_per_second=26e9),)

    idle = replace(H200, gpus=(replace(H200.gpus[0], pcie_width=4, pcie_width_max=16),))
    monkeypatch.setattr(gauges, "gpus", lambda: idle)
    works = TorchReport(version="2.10.0+cu128", cuda="12.8", cuda_works=True)
    monkeypatch.setattr(software, "torch_report", lambda: works)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr(gpu, "measured", measured)
    found = doctor.measure(tmp_path, show=False)
    links = [finding.what for finding in found.findings if "PCIe" in finding.what]
    assert len(links) == 1 and "PCIe x8 of x16" in links[0], "a link at idle says nothing once it was seen under load"
    assert found.gpus[0].pcie_width == 4
    assert any(row.what == "bf16 matmul" and row.expected for row in found.figures)


def test_the_data_says_which_disk_and_whose_pictures(dial_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(dial_folder)
    found = doctor.measure(data="mine", show=False).measured
    assert found is not None and found.disk is not None and found.cpu is not None
    assert (found.disk.folder, found.disk.dataset_files) == (str(tmp_path / "mine"), 144)
    assert found.disk.data == found.cpu.data == str(tmp_path / "mine"), "the same from any other folder"


def test_data_that_is_not_there_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="nowhere"):
        doctor.measure(data=str(tmp_path / "nowhere"), show=False)


def test_the_built_in_dials_are_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor.measure(data="dials", show=False).measured
    assert found is not None and found.cpu is not None and found.cpu.data is None
    assert found.disk is not None and found.disk.folder == str(tmp_path)


def test_another_host_is_measured_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speed = PeerSpeed(
        host="b", port=1, round_trip_seconds=1e-3, to_bytes_per_second=11.8e6, from_bytes_per_second=11.8e6,
        four_flows_to_bytes_per_second=11.8e6, four_flows_from_bytes_per_second=11.8e6, interface=None,
        interface_bytes_per_second=None,
    )  # fmt: skip
    monkeypatch.setattr(network, "to_peer", lambda address, *, show: speed)
    found = doctor.measure(tmp_path, peer="b:1", show=False)
    assert found.peer == speed and any("100 Mbit/s" in what for what in bad(found))


def test_of_many_processes_the_first_measures_and_all_try_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, parted = speeds.link(), []
    monkeypatch.setattr(network, "among_processes", lambda place, device, *, show: link)
    monkeypatch.setattr(doctor.dist, "stop", parted.append)
    monkeypatch.setattr(doctor.dist, "world", lambda: World(rank=1, size=2))
    assert doctor.measure(tmp_path, show=False).measured is None and len(parted) == 1
    monkeypatch.setattr(doctor.dist, "world", lambda: World(rank=0, size=2))
    found = doctor.measure(tmp_path, show=False)
    assert found.measured is not None and found.measured.link == link and len(parted) == 2
    assert any("between a and b" in finding.what for finding in found.findings)


def test_a_link_that_fails_is_missing_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(place: World, device: object, *, show: bool) -> None:
        raise RuntimeError("connection refused")

    monkeypatch.setattr(network, "among_processes", fail)
    monkeypatch.setattr(doctor.dist, "stop", lambda place: None)
    monkeypatch.setattr(doctor.dist, "world", lambda: World(rank=0, size=2))
    found = doctor.measure(tmp_path, show=False).measured
    assert found is not None and found.missing["network"] == "connection refused" and found.disk is not None
