"""What `stoker doctor` looks at: this machine, and a small computation on its GPU."""

import importlib.metadata
import os
import platform
import warnings
from dataclasses import dataclass
from pathlib import Path

from stoker.findings import NATIVE, Finding, TorchReport, findings
from stoker.machine import gauges
from stoker.machine.gauges import Cores, Disk, Gpu, Memory

PACKAGES = ("stoker", "torchvision", "timm", "numpy", "pillow", "safetensors")


@dataclass(frozen=True, kw_only=True)
class MachineProfile:
    """A machine in plain values: `dataclasses.asdict` makes it JSON."""

    version: int = 1
    python: str
    platform: str
    torch: str | None
    torch_cuda: str | None
    cudnn: str | None
    driver: str | None
    driver_cuda: str | None  # the newest CUDA the driver runs
    cuda_works: bool | None
    gpus: tuple[Gpu, ...]
    cores: Cores
    memory: Memory
    disk: Disk
    shm_bytes: int | None
    packages: dict[str, str | None]
    findings: tuple[Finding, ...]


def examine(disk_path: Path) -> MachineProfile:
    """This machine, for training whose files go to `disk_path`; on a GPU, a small computation is tried."""
    from stoker.data import native

    # The GPUs are read first: trying CUDA takes some of their memory for as long as this process lives.
    gpus, cores, memory, disk = gauges.gpus(), gauges.cores_allotted(), gauges.memory_allotted(), gauges.disk(disk_path)
    shm_bytes, visible_devices = gauges.shared_memory_bytes(), os.environ.get("CUDA_VISIBLE_DEVICES")
    python, torch = platform.python_version(), _torch()
    packages = {name: _package_version(name) for name in PACKAGES} | {NATIVE: native.built_with()}
    return MachineProfile(
        python=python,
        platform=platform.platform(),
        torch=torch.version,
        torch_cuda=torch.cuda,
        cudnn=torch.cudnn,
        driver=gpus.driver,
        driver_cuda=gpus.driver_cuda,
        cuda_works=torch.cuda_works,
        gpus=gpus.gpus,
        cores=cores,
        memory=memory,
        disk=disk,
        shm_bytes=shm_bytes,
        packages=packages,
        findings=findings(python, torch, gpus, visible_devices, cores, memory, disk, shm_bytes, packages),
    )


def _torch() -> TorchReport:
    # Warnings are caught because torch tells that way why it cannot reach the GPU, and to keep the answer in our words.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            import torch
        except Exception as error:  # a broken install fails with anything: ImportError, OSError of a library, ...
            return TorchReport(trouble=_first_line(error))
        try:
            cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        except RuntimeError:  # another cuDNN than torch's was loaded; the computation below says so
            cudnn = None
        failure = _cuda_failure() if (available := torch.cuda.is_available()) else None
    trouble = failure or next((_first_line(w.message) for w in caught if "CUDA" in str(w.message)), None)
    return TorchReport(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        cudnn=f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn else None,
        cuda_works=failure is None if available else None,
        trouble=trouble or TorchReport.trouble,
    )


def _cuda_failure() -> str | None:
    """What goes wrong in a matrix product and a convolution on the first GPU, or None."""
    import torch

    try:
        square = torch.ones(64, 64, device="cuda")
        product = (square @ square).sum().item()
        kernel = torch.ones(4, 3, 3, 3, device="cuda")
        convolved = torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8, device="cuda"), kernel).sum().item()
    except Exception as error:
        return _first_line(error)
    # Sums of ones are exact in every float format used here, so anything else is a broken GPU or library.
    right = (product, convolved) == (64**3, 27 * 4 * 6 * 6)
    return None if right else f"wrong numbers: {product} and {convolved} instead of {64**3} and {27 * 4 * 6 * 6}"


def _first_line(error: object) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
