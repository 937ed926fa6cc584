"""What is well and what is not on a machine, as a pure function of what was found there."""

import re
from dataclasses import dataclass
from typing import Literal

from stoker import units
from stoker.machine.gauges import Cores, Disk, Gpu, GpuReport, Memory

OLDEST_PYTHON, OLDEST_TORCH = "3.11", "2.10"
MEMORY_LOW_BYTES, DISK_LOW_BYTES, DISK_FULL_BYTES = 2 * units.GIB, 5 * units.GIB, units.GIB // 2
SHM_LOW_BYTES = units.GIB  # containers start with 64 MiB, on which loader processes die of a "bus error"
GPU_HELD_SHARE = 0.1
NATIVE = "native decoder"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is well or not, with its figures, and what to do about it."""

    level: Literal["good", "warn", "bad"]
    what: str
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class TorchReport:
    """What torch says of itself; without a version it could not be imported, and `trouble` says why."""

    version: str | None = None
    cuda: str | None = None  # the CUDA it was built for
    cudnn: str | None = None
    cuda_works: bool | None = None  # None: torch sees no GPU to try it on
    trouble: str = "it gives no reason"


def findings(
    python: str,
    torch: TorchReport,
    gpus: GpuReport,
    visible_devices: str | None,
    cores: Cores,
    memory: Memory,
    disk: Disk,
    shm_bytes: int | None,
    packages: dict[str, str | None],
) -> tuple[Finding, ...]:
    """What is well and what is not on a machine of these parts; the same parts always give the same findings."""
    found = [_about_python(python), _about_torch(torch, gpus), _about_cuda(torch, gpus, visible_devices)]
    found += [finding for gpu in gpus.gpus for finding in (_about_others_on(gpu), _about_pcie(gpu))]
    found += [_about_cores(cores), _about_memory(memory), _about_shm(shm_bytes), _about_disk(disk)]
    if not packages.get("timm"):
        found.append(_warn("timm is not installed: only torchvision's models can be trained", "run `pip install timm`"))
    if packages.get(NATIVE):
        found.append(Finding(level="good", what=f"{NATIVE}: {packages[NATIVE]}"))
    elif NATIVE in packages:
        cure = "run `apt install g++ libjpeg-dev` (or your system's) and install Stoker again"
        found.append(_warn(f"there is no {NATIVE}: Pillow decodes, at less than half the speed", cure))
    return tuple(finding for finding in found if finding)


def _about_python(python: str) -> Finding:
    if _numbers(python) >= _numbers(OLDEST_PYTHON):
        return Finding(level="good", what=f"Python {python}")
    needed = f"Python {OLDEST_PYTHON} or newer"
    return _bad(f"Python {python} is too old: Stoker needs {needed}", f"make a new environment with {needed}")


def _about_torch(torch: TorchReport, gpus: GpuReport) -> Finding:
    fix = _install(gpus)
    if torch.version is None:
        return _bad(f"torch cannot be imported: {torch.trouble}", fix)
    if _numbers(torch.version) < _numbers(OLDEST_TORCH):
        return _bad(f"torch {torch.version} is too old: Stoker needs {OLDEST_TORCH} or newer", fix)
    built_for = f"CUDA {torch.cuda}" if torch.cuda else "the CPU"
    return Finding(level="good", what=f"torch {torch.version}, built for {built_for}")


def _about_cuda(torch: TorchReport, gpus: GpuReport, visible_devices: str | None) -> Finding | None:
    if torch.version is None and gpus.gpus:
        return None  # without torch nothing can be tried, and that has been said
    if torch.cuda_works is False:
        return _bad(f"a computation with CUDA fails{_named(gpus)}: {torch.trouble}", _fix_for_failure(torch.trouble))
    if torch.cuda_works and gpus.gpus:
        return Finding(level="good", what=f"CUDA works{_named(gpus)}: {_versions(torch, gpus)}, cuDNN {torch.cudnn}")
    if torch.cuda_works:
        fix = "install nvidia-ml-py; start a container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return _warn(f"CUDA works, but the GPU's gauges cannot be read: {gpus.missing}", fix)
    if gpus.gpus:
        return _about_unused_gpu(torch, gpus, visible_devices)
    fix = "use a machine with an NVIDIA GPU, and check that `nvidia-smi` lists it"
    return _warn(f"no GPU ({gpus.missing}): training runs on the CPU, slowly", fix)


def _about_unused_gpu(torch: TorchReport, gpus: GpuReport, visible_devices: str | None) -> Finding:
    if torch.cuda is None:
        fix = f"{_install(gpus)} (the driver runs CUDA up to {gpus.driver_cuda})"
        return _bad(f"torch {torch.version} is built for the CPU only and cannot use the GPU{_named(gpus)}", fix)
    if visible_devices is not None and visible_devices.strip() in ("", "-1"):
        return _bad(
            f"CUDA_VISIBLE_DEVICES={visible_devices!r} hides the GPU{_named(gpus)}", "unset CUDA_VISIBLE_DEVICES"
        )
    if gpus.driver_cuda and _numbers(gpus.driver_cuda) < _numbers(torch.cuda):
        fix = f"update the NVIDIA driver to one for CUDA {torch.cuda}"
        if _numbers(gpus.driver_cuda) >= (12,):
            fix += f"; or, {_install(gpus)}"
        return _bad(f"the driver is too old for torch{_named(gpus)}: {_versions(torch, gpus)}", fix)
    fix = "check that `nvidia-smi` works, then restart the container or the machine"
    return _bad(f"torch cannot use the GPU{_named(gpus)}; {_versions(torch, gpus)}: {torch.trouble}", fix)


def _fix_for_failure(trouble: str) -> str:
    if "out of memory" in trouble:
        return "end the programs that `nvidia-smi` lists, or use another GPU"
    if "no kernel image" in trouble:
        return "this torch was not built for this GPU: install the newest torch, or use another GPU"
    return "check that LD_LIBRARY_PATH names no other CUDA or cuDNN, then reinstall torch in a fresh environment"


def _about_others_on(gpu: Gpu) -> Finding | None:
    if not gpu.memory_bytes or gpu.used_bytes is None or gpu.used_bytes <= GPU_HELD_SHARE * gpu.memory_bytes:
        return None
    used, whole = units.bytes_text(gpu.used_bytes), units.bytes_text(gpu.memory_bytes)
    what = f"GPU {gpu.index} is held by others: {used} of {whole} are in use"
    return _warn(what, "end the programs that `nvidia-smi` lists, or use another GPU")


def _about_pcie(gpu: Gpu) -> Finding | None:
    if not gpu.pcie_width or not gpu.pcie_width_max or gpu.pcie_width >= gpu.pcie_width_max:
        return None
    what = f"GPU {gpu.index} uses {gpu.pcie_width} of {gpu.pcie_width_max} PCIe lanes (a link may downshift at idle)"
    return _warn(what, "look again while training runs; if it stays so, use another machine or have the card reseated")


def _about_cores(cores: Cores) -> Finding:
    if cores.allotted >= cores.present:
        return Finding(level="good", what=f"{cores.allotted} CPU cores, all allotted to this process")
    fix = "for more, start without `taskset`, or raise the container's `--cpuset-cpus` or the job's CPU count"
    if cores.limited_by == "cgroup quota":
        fix = "for more, raise the container's CPU limit (docker: `--cpus`) or rent a larger share of the machine"
    return _warn(f"{cores.allotted} of {cores.present} CPU cores are allotted, limited by {cores.limited_by}", fix)


def _about_memory(memory: Memory) -> Finding:
    if memory.available_bytes is None or memory.total_bytes is None:
        return _warn("the available memory cannot be measured", "check with `free -h` that some GiB are free")
    limit = f" (limited by {memory.limited_by})" if memory.limited_by else ""
    what = (
        f"{units.bytes_text(memory.available_bytes)} of {units.bytes_text(memory.total_bytes)} memory available{limit}"
    )
    if memory.available_bytes < MEMORY_LOW_BYTES:
        return _warn(f"only {what}", "end other programs, or use a machine with more memory")
    return Finding(level="good", what=what)


def _about_shm(shm_bytes: int | None) -> Finding | None:
    if shm_bytes is None or shm_bytes >= SHM_LOW_BYTES:
        return None
    what = f"/dev/shm holds only {units.bytes_text(shm_bytes)}: processes that load data may die of a bus error"
    return _warn(what, "start the container with `--shm-size=8g` or `--ipc=host`")


def _about_disk(disk: Disk) -> Finding:
    if not disk.writable:
        return _bad(f"{disk.folder} is not writable", "choose a folder this user may write to")
    if disk.free_bytes is None or disk.total_bytes is None:
        return _warn(f"the free space at {disk.folder} cannot be measured", f"check with `df -h {disk.folder}`")
    what = f"{units.bytes_text(disk.free_bytes)} of {units.bytes_text(disk.total_bytes)} disk free at {disk.folder}"
    fix = "delete files there, or choose a folder on a larger disk"
    if disk.free_bytes < DISK_FULL_BYTES:
        return _bad(f"only {what}", fix)
    return _warn(f"only {what}", fix) if disk.free_bytes < DISK_LOW_BYTES else Finding(level="good", what=what)


def _warn(what: str, fix: str) -> Finding:
    return Finding(level="warn", what=what, fix=fix)


def _bad(what: str, fix: str) -> Finding:
    return Finding(level="bad", what=what, fix=fix)


def _named(gpus: GpuReport) -> str:
    sizes = [
        f"{gpu.name or 'GPU'} {units.bytes_text(gpu.memory_bytes) if gpu.memory_bytes else ''}".strip()
        for gpu in gpus.gpus
    ]
    return f" ({', '.join(f'{sizes.count(size)} x {size}' for size in dict.fromkeys(sizes))})" if sizes else ""


def _versions(torch: TorchReport, gpus: GpuReport) -> str:
    return f"driver {gpus.driver} runs CUDA up to {gpus.driver_cuda}, torch {torch.version} is for CUDA {torch.cuda}"


def _install(gpus: GpuReport) -> str:
    """How to get a torch that this driver can run; the plain command takes the newest CUDA (13 since torch 2.11)."""
    plain = "in a fresh environment, run `pip install torch torchvision`"
    if gpus.driver_cuda and (12,) <= _numbers(gpus.driver_cuda) < (13,):
        return f"{plain} with the index that pytorch.org names for CUDA {gpus.driver_cuda} or older"
    return plain


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
