"""What `stoker doctor` measures, as plain values: `dataclasses.asdict` makes them JSON, and `read` brings them back."""

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any

DTYPES = ("fp32", "tf32", "fp16", "bf16")
WEEK_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class GpuSpeed:
    """What one GPU did when it was asked to do its most. None was not measured."""

    index: int
    """as nvidia-smi counts; as torch does where that is not known"""
    name: str
    clock_mhz: int | None
    """of the multiprocessors, in the middle of the samples while it multiplied bf16 (or the narrowest) matrices"""
    clock_max_mhz: int | None
    power_w: float | None
    """at most, in the same time"""
    power_limit_w: float | None
    throttle: tuple[str, ...]
    """why the clock was held down in that time, in words"""
    pcie_generation: int | None
    """of the link as it is while pictures are copied: at idle it may be slower"""
    pcie_width: int | None
    pcie_generation_max: int | None
    pcie_width_max: int | None
    matmul_flops: dict[str, float | None]
    """sustained floating-point operations in a second, by dtype"""
    matmul_peak_flops: dict[str, float | None]
    """the most over some milliseconds, before power and heat hold the clock down: what published figures are of"""
    copy_bytes_per_second: float | None
    """within the device's memory, read and written bytes added"""
    to_device_bytes_per_second: float | None
    """from pinned host memory"""
    pageable_to_device_bytes_per_second: float | None
    """from ordinary host memory"""
    to_host_bytes_per_second: float | None
    """into pinned host memory"""
    peer_bytes_per_second: dict[int, float | None]
    """to each other GPU, by its index"""


@dataclass(frozen=True, kw_only=True)
class CpuSpeed:
    """Whole pictures that threads read, decode and resize, as a training's loader does; files are in memory."""

    cores: int
    """allotted to this process"""
    threads: int
    """that decoded together"""
    decode_one_per_second: float
    """pictures, by one thread"""
    decode_all_per_second: float
    """pictures, by all threads"""
    picture: str
    """what was decoded, in words"""
    picture_bytes: float
    """of a file, on average"""
    picture_pixels: float
    """width x height, on average"""
    decoder: str
    """what it was decoded with"""
    data: str | None
    """whose pictures these were; None for drawn ones"""


@dataclass(frozen=True, kw_only=True)
class DiskSpeed:
    """What the disk below one folder does. A cache in the disk, its server or its hypervisor may have helped."""

    folder: str
    file_system: str | None
    """such as ext4, nfs4, lustre or tmpfs"""
    sequential_bytes_per_second: float | None
    random_reads_per_second: float | None
    random_read_bytes: int
    """of one such read: about a photo"""
    random_read_threads: int
    """that read at the same time"""
    is_cold: bool
    """whether the reads went past this machine's page cache"""
    bypassed_by: str | None
    """how they did"""
    write_bytes_per_second: float | None
    """until it was safe (fsync)"""
    files_listed: int | None
    list_files_per_second: float | None
    """found in folders and asked for their sizes"""
    listed: str | None
    """which files these were, in words"""
    data: str | None
    """the folder that was given to be listed"""
    dataset_files: int | None
    """in it; None where it holds no dataset of picture files"""
    dataset_list_seconds: float | None
    """to list all of them once"""
    is_extrapolated: bool
    """whether not all files of the dataset were listed: then their number and this time are estimates"""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The way between two places: processes or machines, by name."""

    one: str
    other: str
    bytes_per_second: float


@dataclass(frozen=True, kw_only=True)
class LinkSpeed:
    """How long adding up S bytes over `world` processes takes: latency + 2 (world - 1) / world * S / rate."""

    world: int
    latency_seconds: float
    bytes_per_second: float
    points: tuple[tuple[int, float], ...]
    """bytes, and the seconds that they took"""
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured on a machine, and why the rest was not."""

    at: float
    """when, in seconds since 1970; the oldest of its parts"""
    gpus: tuple[GpuSpeed, ...] = ()
    cpu: CpuSpeed | None = None
    disk: DiskSpeed | None = None
    link: LinkSpeed | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """what could not be measured -> why"""


def read(values: object) -> Measured:
    """What `dataclasses.asdict` and JSON made of a measurement. Raises ValueError where it is none."""
    found = _read(Measured, values, "measured")
    assert isinstance(found, Measured)
    return found


def _read(kind: Any, value: Any, where: str) -> Any:
    """A value of JSON as the type that a field has."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{where} is no {kind.__name__}")
        return kind(**{name: _read(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        assert len(inner) == 2 and inner[1] is type(None)
        return None if value is None else _read(inner[0], value, where)
    if origin is tuple and isinstance(value, list):
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        if len(kinds) == len(value):
            return tuple(_read(part, item, where) for part, item in zip(kinds, value, strict=True))
    # JSON has no keys but strings.
    if origin is dict and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {inner[0](key): _read(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{where} is {value!r}")
