import ctypes
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pynvml
import pytest

from stoker.machine import gauges

GIB = 2**30


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


@pytest.fixture
def sixty_four_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=64 * GIB, available=60 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def machine(root: Path, membership: str, files: dict[str, str]) -> dict[str, Path]:
    """A made-up /proc and /sys/fs/cgroup."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return {"cgroup_root": root / "cgroup", "proc": root / "proc"}


@pytest.mark.usefixtures("sixteen_cores")
class TestCores:
    def test_without_limits_every_core_is_ours(self, tmp_path: Path) -> None:
        where = machine(tmp_path, "0::/job\n", {"job/cpu.max": "max 100000", "cpu.max": "max 100000"})
        assert gauges.cores_allotted(**where) == gauges.Cores(allotted=16, present=16, limited_by=None)

    def test_a_quota_of_two_cores_is_seen(self, tmp_path: Path) -> None:
        where = machine(tmp_path, "0::/job\n", {"job/cpu.max": "200000 100000"})
        assert gauges.cores_allotted(**where) == gauges.Cores(allotted=2, present=16, limited_by="cgroup quota")

    def test_the_smallest_quota_on_the_way_to_the_root_counts(self, tmp_path: Path) -> None:
        files = {"a/b/c/cpu.max": "800000 100000", "a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}
        assert gauges.cores_allotted(**machine(tmp_path, "0::/a/b/c\n", files)).allotted == 3

    def test_a_neighbours_quota_is_not_ours(self, tmp_path: Path) -> None:
        where = machine(tmp_path, "0::/a/b\n", {"a/other/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"})
        assert gauges.cores_allotted(**where).allotted == 16

    @pytest.mark.parametrize(("quota", "cores"), [("390000 100000", 3), ("50000 100000", 1), ("75000 50000", 1)])
    def test_a_quota_is_rounded_down_to_at_least_one_core(self, tmp_path: Path, quota: str, cores: int) -> None:
        assert gauges.cores_allotted(**machine(tmp_path, "0::/\n", {"cpu.max": quota})).allotted == cores

    @pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
    def test_a_version_1_quota_is_seen(self, tmp_path: Path, folder: str) -> None:
        files = {f"{folder}/job/cpu.cfs_quota_us": "400000", f"{folder}/job/cpu.cfs_period_us": "100000"}
        where = machine(tmp_path, "4:cpu,cpuacct:/job\n3:memory:/job\n0::/\n", files)
        assert gauges.cores_allotted(**where) == gauges.Cores(allotted=4, present=16, limited_by="cgroup quota")

    def test_a_version_1_quota_of_minus_one_is_no_limit(self, tmp_path: Path) -> None:
        files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
        assert gauges.cores_allotted(**machine(tmp_path, "1:cpu:/\n", files)).limited_by is None

    def test_a_containers_quota_is_seen_where_proc_tells_the_hosts_path(self, tmp_path: Path) -> None:
        files = {"cpu/cpu.cfs_quota_us": "600000", "cpu/cpu.cfs_period_us": "100000"}
        assert gauges.cores_allotted(**machine(tmp_path, "1:cpu:/docker/4f2a\n", files)).allotted == 6

    def test_a_quota_is_seen_where_proc_does_not_tell_our_group(self, tmp_path: Path) -> None:
        assert gauges.cores_allotted(**machine(tmp_path, "", {"cpu.max": "500000 100000"})).allotted == 5

    def test_a_group_outside_the_container_leads_to_the_root_only(self, tmp_path: Path) -> None:
        files = {"cpu.max": "700000 100000", "../job/cpu.max": "100000 100000"}
        assert gauges.cores_allotted(**machine(tmp_path, "0::/../job\n", files)).allotted == 7

    def test_a_hybrid_trees_unified_part_is_read(self, tmp_path: Path) -> None:
        where = machine(tmp_path, "1:cpu:/\n0::/job\n", {"unified/job/cpu.max": "200000 100000"})
        assert gauges.cores_allotted(**where).allotted == 2

    def test_affinity_is_named_when_it_is_tighter_than_the_quota(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 9}, raising=False)
        where = machine(tmp_path, "0::/\n", {"cpu.max": "800000 100000"})
        assert gauges.cores_allotted(**where) == gauges.Cores(allotted=3, present=16, limited_by="affinity")

    @pytest.mark.parametrize("nonsense", ["", "lots", "100000", "100000 0", "-5 100000", "1 2 3"])
    def test_a_quota_that_makes_no_sense_is_no_limit(self, tmp_path: Path, nonsense: str) -> None:
        assert gauges.cores_allotted(**machine(tmp_path, "0::/\n", {"cpu.max": nonsense})).allotted == 16

    def test_a_system_that_tells_nothing_still_has_one_core(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        found = gauges.cores_allotted(cgroup_root=tmp_path / "none", proc=tmp_path / "none")
        assert found == gauges.Cores(allotted=1, present=1, limited_by=None)


@pytest.mark.usefixtures("sixty_four_gib")
class TestMemory:
    def test_without_limits_the_machines_memory_is_ours(self, tmp_path: Path) -> None:
        where = machine(tmp_path, "0::/job\n", {"job/memory.max": "max", "job/memory.current": "5"})
        whole = gauges.Memory(total_bytes=64 * GIB, available_bytes=60 * GIB, limited_by=None)
        assert gauges.memory_allotted(**where) == whole

    def test_a_limit_is_seen_and_cached_files_count_as_available(self, tmp_path: Path) -> None:
        stat = f"anon {2 * GIB}\nactive_file {GIB}\ninactive_file {2 * GIB}"
        files = {"job/memory.max": str(8 * GIB), "job/memory.current": str(5 * GIB), "job/memory.stat": stat}
        found = gauges.memory_allotted(**machine(tmp_path, "0::/job\n", files))
        assert found == gauges.Memory(total_bytes=8 * GIB, available_bytes=6 * GIB, limited_by="cgroup")

    def test_a_version_1_limit_is_seen(self, tmp_path: Path) -> None:
        stat = f"inactive_file 7\ntotal_inactive_file {GIB}\ntotal_active_file 0"
        files = {
            "memory/job/memory.limit_in_bytes": str(4 * GIB),
            "memory/job/memory.usage_in_bytes": str(3 * GIB),
            "memory/job/memory.stat": stat,
        }
        found = gauges.memory_allotted(**machine(tmp_path, "5:memory:/job\n0::/\n", files))
        assert found == gauges.Memory(total_bytes=4 * GIB, available_bytes=2 * GIB, limited_by="cgroup")

    def test_a_huge_version_1_limit_is_no_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        files = {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "445853696"}
        where = machine(tmp_path, "4:memory:/\n", files)
        assert gauges.memory_allotted(**where).total_bytes == 64 * GIB

        def unknown() -> None:
            raise FileNotFoundError("/proc/meminfo")

        monkeypatch.setattr(psutil, "virtual_memory", unknown)
        assert gauges.memory_allotted(**where) == gauges.Memory(total_bytes=None, available_bytes=None, limited_by=None)

    def test_a_limit_above_the_machines_memory_is_no_limit(self, tmp_path: Path) -> None:
        where = machine(tmp_path, "0::/\n", {"memory.max": str(100 * GIB), "memory.current": "0"})
        assert gauges.memory_allotted(**where).limited_by is None

    def test_the_fullest_group_decides_what_is_left(self, tmp_path: Path) -> None:
        files = {
            "a/b/memory.max": str(8 * GIB),
            "a/b/memory.current": str(1 * GIB),
            "a/memory.max": str(16 * GIB),
            "a/memory.current": str(13 * GIB),
        }
        found = gauges.memory_allotted(**machine(tmp_path, "0::/a/b\n", files))
        assert (found.total_bytes, found.available_bytes) == (8 * GIB, 3 * GIB)

    def test_an_unreadable_usage_leaves_the_rest_unknown(self, tmp_path: Path) -> None:
        found = gauges.memory_allotted(**machine(tmp_path, "0::/\n", {"memory.max": str(8 * GIB)}))
        assert found == gauges.Memory(total_bytes=8 * GIB, available_bytes=None, limited_by="cgroup")

    def test_a_machine_without_proc_or_cgroups_still_answers(self, tmp_path: Path) -> None:
        found = gauges.memory_allotted(cgroup_root=tmp_path / "none", proc=tmp_path / "none")
        assert found.total_bytes == 64 * GIB


class TestSharedMemory:
    def test_a_folder_that_is_there_has_a_size(self, tmp_path: Path) -> None:
        assert gauges.shared_memory_bytes(tmp_path) == gauges.disk(tmp_path).total_bytes

    def test_a_system_without_the_folder_is_unknown(self, tmp_path: Path) -> None:
        assert gauges.shared_memory_bytes(tmp_path / "none") is None


class TestDisk:
    def test_a_folder_that_is_not_there_yet_is_measured_at_its_parent(self, tmp_path: Path) -> None:
        found = gauges.disk(tmp_path / "runs" / "first")
        assert found.folder == str(tmp_path)
        assert found.writable
        assert found.free_bytes is not None
        assert found.total_bytes is not None
        assert 0 < found.free_bytes <= found.total_bytes

    def test_a_file_is_measured_at_its_folder(self, tmp_path: Path) -> None:
        (tmp_path / "weights").write_text("x")
        assert gauges.disk(tmp_path / "weights").folder == str(tmp_path)

    def test_a_folder_closed_to_us_is_not_writable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Root may write anywhere, so the system's answer is made up.
        monkeypatch.setattr(os, "access", lambda path, mode: not (str(path) == str(tmp_path) and mode & os.W_OK))
        assert not gauges.disk(tmp_path / "runs").writable

    def test_a_disk_that_cannot_be_measured_is_unknown_and_not_full(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: object) -> None:
            raise PermissionError

        monkeypatch.setattr("shutil.disk_usage", refuse)
        found = gauges.disk(tmp_path)
        assert (found.free_bytes, found.total_bytes) == (None, None)


def driver(monkeypatch: pytest.MonkeyPatch, **answers: object) -> list[str]:
    """Puts a made-up NVIDIA driver behind pynvml; an answer that is an error code is raised. Returns what was asked."""
    asked: list[str] = []
    nvml = ModuleType("pynvml")
    for name in dir(pynvml):
        if name.startswith(("NVML", "nvmlMemory_v2")):
            setattr(nvml, name, getattr(pynvml, name))

    def function(name: str) -> object:
        def answer(*about: object) -> object:
            asked.append(name)
            given = answers.get(name, pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
            given = given(*about) if callable(given) else given
            if isinstance(given, pynvml.NVMLError):
                raise given
            return given

        return answer

    answers = {"nvmlInit": None, "nvmlShutdown": None} | answers
    for name in dir(pynvml):
        if name.startswith(("nvmlInit", "nvmlShutdown", "nvmlDevice", "nvmlSystem")):
            setattr(nvml, name, function(name))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return asked


H200 = {
    "nvmlSystemGetDriverVersion": "570.86.15",
    "nvmlSystemGetCudaDriverVersion_v2": 12080,
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=ctypes.c_ulonglong(150 * GIB).value, used=GIB),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetPowerUsage": 512_500,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetClockInfo": 1755,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetCurrPcieLinkWidth": 8,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
}


def error(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)


class TestGpus:
    def test_every_gauge_of_a_gpu_is_read_in_its_unit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = driver(monkeypatch, **H200)
        report = gauges.gpus()
        expected = gauges.Gpu(
            index=0,
            name="NVIDIA H200",
            memory_bytes=150 * GIB,
            used_bytes=GIB,
            driver="570.86.15",
            temperature_c=61,
            busy_percent=97,
            power_w=512.5,
            power_limit_w=700.0,
            clock_mhz=1755,
            clock_max_mhz=1980,
            pcie_width=8,
            pcie_width_max=16,
        )
        assert report == gauges.GpuReport(gpus=(expected,), driver="570.86.15", driver_cuda="12.8", missing=None)
        assert asked[-1] == "nvmlShutdown"

    def test_a_gauge_the_gpu_lacks_is_none_and_the_others_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lacking = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo"}
        driver(monkeypatch, **{name: answer for name, answer in H200.items() if name not in lacking})
        (gpu,) = gauges.gpus().gpus
        assert (gpu.power_w, gpu.busy_percent, gpu.memory_bytes, gpu.used_bytes) == (None, None, None, None)
        assert (gpu.temperature_c, gpu.power_limit_w) == (61, 700.0)

    def test_an_idle_gpu_is_zero_percent_busy_and_not_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        driver(monkeypatch, **H200 | {"nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0)})
        assert gauges.gpus().gpus[0].busy_percent == 0

    def test_a_width_of_zero_lanes_is_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        driver(monkeypatch, **H200 | {"nvmlDeviceGetCurrPcieLinkWidth": 0})
        assert gauges.gpus().gpus[0].pcie_width is None

    def test_an_old_driver_is_asked_for_memory_the_old_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def memory(_: object, version: int | None = None) -> object:
            return error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) if version else SimpleNamespace(total=8 * GIB, used=GIB)

        driver(monkeypatch, **H200 | {"nvmlDeviceGetMemoryInfo": memory})
        assert gauges.gpus().gpus[0].memory_bytes == 8 * GIB

    def test_a_lost_gpu_is_still_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def handle(index: int) -> object:
            return error(pynvml.NVML_ERROR_GPU_IS_LOST) if index == 1 else "handle"

        driver(monkeypatch, **H200 | {"nvmlDeviceGetCount": 2, "nvmlDeviceGetHandleByIndex": handle})
        assert [gpu.name for gpu in gauges.gpus().gpus] == ["NVIDIA H200", None]

    @pytest.mark.parametrize(
        ("code", "why"),
        [
            (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver"),
            (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "no NVIDIA driver"),
            (pynvml.NVML_ERROR_NO_PERMISSION, "no permission"),
            (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "the NVIDIA driver was updated and not yet reloaded"),
            (pynvml.NVML_ERROR_UNKNOWN, "NVML: Unknown Error"),
        ],
    )
    def test_a_driver_that_does_not_answer_is_explained(
        self, monkeypatch: pytest.MonkeyPatch, code: int, why: str
    ) -> None:
        driver(monkeypatch, nvmlInit=error(code))
        assert gauges.gpus() == gauges.GpuReport(missing=why)

    def test_a_driver_without_gpus_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        driver(monkeypatch, **H200 | {"nvmlDeviceGetCount": 0})
        report = gauges.gpus()
        assert (report.gpus, report.missing) == ((), "the NVIDIA driver sees no GPU")
        assert report.driver == "570.86.15"

    def test_a_count_that_fails_is_explained_and_the_driver_let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = driver(monkeypatch, nvmlDeviceGetCount=error(pynvml.NVML_ERROR_NO_PERMISSION))
        assert gauges.gpus().missing == "no permission"
        assert asked[-1] == "nvmlShutdown"

    def test_a_missing_package_is_explained(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        assert gauges.gpus().missing == "the package nvidia-ml-py is not installed"


def test_this_machine_answers_with_plain_values(tmp_path: Path) -> None:
    cores, memory = gauges.cores_allotted(), gauges.memory_allotted()
    assert 1 <= cores.allotted <= cores.present
    assert memory.total_bytes is None or memory.total_bytes > 0
    parts = (cores, memory, gauges.disk(tmp_path), gauges.gpus())
    assert json.loads(json.dumps([asdict(part) for part in parts]))[0]["present"] == cores.present


def test_reading_gauges_does_not_load_torch() -> None:
    script = "import sys; from stoker.machine import gauges; gauges.gpus(); sys.exit('torch' in sys.modules)"
    found_here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script], check=False, env=found_here).returncode == 0
