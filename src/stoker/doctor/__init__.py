"""What `stoker doctor` does: looks at this machine, measures it, and says what is wrong with it."""

import dataclasses
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoker import dist, progress
from stoker.doctor import cache, course, housing, network, shortfalls, software
from stoker.doctor.course import Course
from stoker.doctor.figures import Figure, figures
from stoker.doctor.network import PeerSpeed
from stoker.doctor.profile import LinkSpeed, Measured
from stoker.doctor.trials import tried
from stoker.findings import NATIVE, Finding, TorchReport, findings
from stoker.machine import catalogue, gauges
from stoker.machine.gauges import Cores, Disk, Gpu, GpuReport, Memory

if TYPE_CHECKING:
    from stoker.data.sources import Kind

__all__ = ["MachineProfile", "Measured", "examine", "measure"]


@dataclass(frozen=True, kw_only=True)
class MachineProfile:
    """A machine in plain values: `dataclasses.asdict` makes it JSON."""

    version: int = 2
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
    cpu: str | None = None
    """the processor's name"""
    image: str | None = None
    """of the container; None where there is none"""
    measured: Measured | None = None
    """None where this machine was never measured"""
    figures: tuple[Figure, ...] = ()
    """what was measured, beside what could be expected"""
    peer: PeerSpeed | None = None
    """what plain connections to another host do, where one was named"""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A machine as it says of itself: what `findings` judges."""

    python: str
    torch: TorchReport
    gpus: GpuReport
    visible_devices: str | None
    cores: Cores
    memory: Memory
    disk: Disk
    shm_bytes: int | None
    packages: dict[str, str | None]


def examine(disk_path: Path) -> MachineProfile:
    """This machine, for training whose files go to `disk_path`, and what was measured on it before.

    Measures nothing: only on a GPU, a small computation is tried.
    """
    return replace(_profile(_parts(disk_path)), measured=cache.load().measured)


def measure(
    disk_path: Path | None = None,
    *,
    data: str | None = None,
    peer: str | None = None,
    again: bool = False,
    show: bool = True,
) -> MachineProfile:
    """This machine with what it can do in a second; figures of the last week are not measured again, unless `again`.

    The disk is that of `disk_path`, else of the data, else of the current folder. Under a launcher every process calls
    it, and the first has the answer.
    """
    kind = None if data is None else _kind(data)
    source = disk_path if kind is None else kind.root if kind.name == "folder" else None
    # What is kept must mean the same from another folder.
    is_place = kind is not None and kind.name != "dials" and data is not None and Path(data).exists()
    data = str(Path(data or "").absolute()) if is_place else data
    missing: dict[str, str] = {}
    parts = _parts(disk_path or (Path() if kind is None else kind.root))
    link = tried(missing, "network", _link, show=show)
    if not dist.world().is_first:
        return _profile(parts)
    # Before all that takes long, because it fails where the other host does not answer.
    other = None if peer is None else network.to_peer(peer, show=show)
    kept = cache.load()
    wanted = Course(
        folder=Path(parts.disk.folder),
        data=data,
        source=None if source is None else source.absolute(),
        gpus=_usable(parts),
        gpu_trouble=_gpu_trouble(parts),
        link=link,
        kept=None if again else kept.measured,
        missing=missing,
    )
    measured = course.followed(wanted, show=show)
    trouble = {"figures of before": kept.trouble, "figures for later": cache.save(measured)}
    for why in filter(None, trouble.values()):
        progress.say(why, show=show)
    said = {what: why for what, why in trouble.items() if why is not None}
    return _judged(parts, replace(measured, missing=measured.missing | said), other)


def _judged(parts: Parts, measured: Measured, other: PeerSpeed | None) -> MachineProfile:
    """A machine with all that is known of it."""
    known = catalogue.read()
    found = [*_profile(_without_links(parts, measured)).findings, *shortfalls.found(measured, known)]
    for speed in (measured.link, other):
        found += [] if speed is None else network.found(speed)
    return replace(
        _profile(parts), measured=measured, figures=figures(measured, known), peer=other, findings=tuple(found)
    )


def _without_links(parts: Parts, measured: Measured) -> Parts:
    """The same machine without the PCIe links at idle of the GPUs whose links were seen under load."""
    seen = {speed.index for speed in measured.gpus if speed.pcie_width is not None}
    gpus = tuple(replace(gpu, pcie_width=None) if gpu.index in seen else gpu for gpu in parts.gpus.gpus)
    return replace(parts, gpus=replace(parts.gpus, gpus=gpus))


def _link(*, show: bool) -> LinkSpeed | None:
    """What the links between the processes of a launcher do; None for a single one."""
    place = dist.world()
    if place.size == 1:
        return None
    try:
        return network.among_processes(place, dist.choose_device("auto", place), show=show)
    finally:
        dist.stop(place)


def _kind(data: str) -> "Kind":
    """What the name of a source stands for."""
    from stoker.data import sources

    with sources.reading(data):
        return sources.kind(data)


def _usable(parts: Parts) -> int:
    """How many GPUs torch can compute on."""
    if not parts.torch.cuda_works:
        return 0
    import torch

    return torch.cuda.device_count()


def _gpu_trouble(parts: Parts) -> str | None:
    """Why no GPU can be measured; None where some can."""
    if parts.torch.cuda_works:
        return None
    if parts.torch.cuda_works is False:
        return "a computation with CUDA fails"
    return "torch does not see them" if parts.gpus.gpus else parts.gpus.missing or "there are none"


def _parts(disk_path: Path) -> Parts:
    from stoker.data import native

    # The GPUs are read first: trying CUDA takes some of their memory for as long as this process lives.
    gpus = gauges.gpus()
    return Parts(
        python=platform.python_version(),
        torch=software.torch_report(),
        gpus=gpus,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        cores=gauges.cores_allotted(),
        memory=gauges.memory_allotted(),
        disk=gauges.disk(disk_path),
        shm_bytes=gauges.shared_memory_bytes(),
        packages={name: software.package_version(name) for name in software.PACKAGES} | {NATIVE: native.built_with()},
    )


def _profile(parts: Parts) -> MachineProfile:
    torch, gpus = parts.torch, parts.gpus
    return MachineProfile(
        python=parts.python,
        platform=platform.platform(),
        torch=torch.version,
        torch_cuda=torch.cuda,
        cudnn=torch.cudnn,
        driver=gpus.driver,
        driver_cuda=gpus.driver_cuda,
        cuda_works=torch.cuda_works,
        gpus=gpus.gpus,
        cores=parts.cores,
        memory=parts.memory,
        disk=parts.disk,
        shm_bytes=parts.shm_bytes,
        cpu=housing.processor(),
        image=housing.image(),
        packages=parts.packages,
        findings=findings(**{field.name: getattr(parts, field.name) for field in dataclasses.fields(parts)}),
    )
