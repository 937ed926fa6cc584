"""What a run was computed on and with: machine, driver, packages. Read from what was written down at its last start."""

import re
from dataclasses import dataclass, field
from typing import Any

from stoker import units
from stoker.machine.evidence import Evidence
from stoker.report.account import Account

ARCHITECTURE = re.compile(r"x86_64|amd64|aarch64|arm64|ppc64le|riscv64", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Software:
    """What a run was computed with. None where it is not known, or not there."""

    stoker: str | None = None
    torch: str | None = None
    driver: str | None = None
    cuda: str | None = None
    """that torch was built for"""
    cudnn: str | None = None
    image: str | None = None
    """of the container"""
    packages: dict[str, str] = field(default_factory=dict)
    """versions by name; in a comparison, of those that differ"""


def device_of(found: Evidence) -> str | None:
    """What computed: one GPU of several is called by its name, a CPU by its cores."""
    names = gpu_names(found.profile)
    on_gpu = any(rows[-1].device.startswith("cuda") for rows in found.rows.values())
    if not found.rows and names and found.config is not None:
        on_gpu = found.config.model.device != "cpu"
    if on_gpu:
        return names[0] if names else "GPU"
    return cpu_of(found.profile)


def gpu_names(profile: dict[str, Any]) -> list[str]:
    """The GPUs of a machine."""
    gpus = profile.get("gpus")
    found = gpus if isinstance(gpus, list) else []
    return [text(gpu.get("name")) or "GPU" for gpu in found if isinstance(gpu, dict)]


def gpus_text(gpus: list[Any]) -> str:
    """The GPUs of a machine, those of one kind together."""
    known = [gpu for gpu in gpus if isinstance(gpu, dict)]
    names = [str(gpu.get("name") or "GPU") for gpu in known]
    sizes = {str(gpu.get("name") or "GPU"): gpu.get("memory_bytes") for gpu in known}
    texts = []
    for name in dict.fromkeys(names):
        size = sizes[name]
        held = f", {units.bytes_text(size)}" if isinstance(size, int) else ""
        count = names.count(name)
        texts.append(f"{count} x {name}{held}" if count > 1 else f"{name}{held}")
    return "; ".join(texts)


def cores_of(profile: dict[str, Any]) -> int | None:
    """The cores that a run was allotted."""
    cores = profile.get("cores")
    allotted = cores.get("allotted") if isinstance(cores, dict) else None
    return allotted if isinstance(allotted, int) and allotted > 0 else None


def cpu_of(profile: dict[str, Any]) -> str | None:
    """A CPU by its name, if that was written down, or by its kind, and its cores."""
    cores = cores_of(profile)
    if cores is None:
        return None
    kind = ARCHITECTURE.search(str(profile.get("platform")))
    name = text(profile.get("cpu")) or (kind.group() if kind else None)
    return f"{f'CPU {name}' if name else 'CPU'}, {units.count_text(cores, 'core')}"


def machine_of(found: Evidence) -> str | None:
    """The machine of the last start: its GPUs, also those that were not used, or its CPU."""
    device, names = device_of(found), gpu_names(found.profile)
    if device in names:
        return " + ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return device


def software_of(account: Account) -> Software:
    """What a run was computed with. Packages are those of the Python environment, and the decoder."""
    profile, code = account.evidence.profile, account.code
    known = [code.get("packages"), profile.get("packages")]
    packages = {k: v for found in known if isinstance(found, dict) for k, v in found.items() if isinstance(v, str)}
    return Software(
        stoker=text(code.get("version")) or packages.get("stoker"),
        torch=text(profile.get("torch")) or packages.get("torch"),
        driver=text(profile.get("driver")),
        cuda=text(profile.get("torch_cuda")),
        cudnn=text(profile.get("cudnn")),
        image=text(profile.get("image")),
        packages=packages,
    )


def text(value: Any) -> str | None:
    """A value from a file as a text; None where there is none."""
    return None if value is None or value == "" else str(value)
