"""What was measured beside what the hardware is known to do, as rows. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from stoker import units
from stoker.doctor.profile import DTYPES, CpuSpeed, DiskSpeed, GpuSpeed, LinkSpeed, Measured
from stoker.machine.catalogue import Catalogue, GpuSpec

# Bytes in a second and lane, each way, by PCIe generation: the rates of the standards, less their line codes.
LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
SHEET, MEASURED, NVLINK = "data sheet", "best measured", "NVLink"
PRODUCTS, MEMORY, TO_DEVICE = "matmul", "memory, read + write", "host to GPU, pinned"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One thing that was measured, and what could be expected of it."""

    part: str
    """such as "GPU 0", "CPU" or "disk" """
    what: str
    value: float | None
    """None was not measured"""
    unit: str
    expected: float | None = None
    """None is not known"""
    expected_by: str | None = None
    """whose figure that is, in words"""

    @property
    def share(self) -> float | None:
        """measured, of what was expected"""
        return self.value / self.expected if self.value is not None and self.expected else None


def figures(measured: Measured, catalogue: Catalogue) -> tuple[Figure, ...]:
    """Everything that was measured, part by part."""
    found = [row for speed in measured.gpus for row in of_gpu(speed, catalogue.gpu(speed.name))]
    if measured.cpu is not None:
        found += of_cpu(measured.cpu)
    if measured.disk is not None:
        found += of_disk(measured.disk)
    if measured.link is not None:
        found += of_link(measured.link)
    return tuple(found)


def of_gpu(speed: GpuSpeed, spec: GpuSpec | None) -> Iterator[Figure]:
    """A GPU's figures, set against the catalogue's."""
    part = f"GPU {speed.index}"

    def row(what: str, value: float | None, unit: str, expected: float | None = None, by: str = "") -> Figure:
        known = by if expected is not None else None
        return Figure(part=part, what=what, value=value, unit=unit, expected=expected, expected_by=known)

    for dtype, value in speed.matmul_peak_flops.items():
        expected, by = known_flops(spec, dtype)
        yield row(f"{dtype} {PRODUCTS}", value, "FLOP/s", expected, by)
    lasting = next((dtype for dtype in reversed(DTYPES) if speed.matmul_flops.get(dtype)), None)
    if lasting is not None:
        yield row(f"{lasting} {PRODUCTS}, lasting", speed.matmul_flops[lasting], "FLOP/s")
    yield row("clock meanwhile", speed.clock_mhz, "MHz", speed.clock_max_mhz, "its highest")
    yield row("power meanwhile", speed.power_w, "W", speed.power_limit_w, "its limit")
    memory = None if spec is None else spec.bandwidth_bytes_per_second
    yield row(MEMORY, speed.copy_bytes_per_second, "B/s", memory, SHEET)
    link = pcie_bytes_per_second(speed.pcie_generation_max, speed.pcie_width_max)
    by = f"PCIe {speed.pcie_generation_max} x{speed.pcie_width_max}"
    yield row(TO_DEVICE, speed.to_device_bytes_per_second, "B/s", link, by)
    yield row("GPU to host, pinned", speed.to_host_bytes_per_second, "B/s", link, by)
    yield row("host to GPU, pageable", speed.pageable_to_device_bytes_per_second, "B/s")
    nvlink = None if spec is None else spec.nvlink_bytes_per_second or None
    for other, rate in speed.peer_bytes_per_second.items():
        yield row(f"to GPU {other}", rate, "B/s", nvlink, NVLINK)


def known_flops(spec: GpuSpec | None, dtype: str) -> tuple[float | None, str]:
    """What a GPU multiplies in this dtype at most, and who says so."""
    if spec is None or dtype not in spec.flops:
        return None, ""
    # fp16 and bf16 go through the same units, where the sheet gives both the same rate.
    if spec.matmul_measured_flops is not None and spec.flops[dtype] == spec.flops.get("bf16"):
        return spec.matmul_measured_flops, MEASURED
    return spec.flops[dtype], SHEET


def of_cpu(speed: CpuSpeed) -> Iterator[Figure]:
    """The decoder's figures."""
    yield Figure(part="CPU", what="decode, 1 thread", value=speed.decode_one_per_second, unit="/s")
    if speed.threads > 1:
        yield Figure(
            part="CPU", what=f"decode, {speed.threads} threads", value=speed.decode_all_per_second,
            unit="/s", expected=speed.threads * speed.decode_one_per_second, expected_by=f"{speed.threads} x one",
        )  # fmt: skip


def of_disk(speed: DiskSpeed) -> Iterator[Figure]:
    """The disk's figures. What it should do, nobody knows."""
    size = f"{speed.random_read_bytes // units.KIB} KiB"
    for what, value, unit in (
        ("sequential read", speed.sequential_bytes_per_second, "B/s"),
        (f"random reads, {size}", speed.random_reads_per_second, "/s"),
        ("write, made safe", speed.write_bytes_per_second, "B/s"),
        ("files listed", speed.list_files_per_second, "/s"),
    ):
        yield Figure(part="disk", what=what, value=value, unit=unit)
    if speed.dataset_files is not None:
        about = "about " if speed.is_extrapolated else ""
        what = f"all {about}{speed.dataset_files:,} files"
        yield Figure(part="disk", what=what, value=speed.dataset_list_seconds, unit="s")


def of_link(speed: LinkSpeed) -> Iterator[Figure]:
    """The network's figures."""
    what = f"all-reduce, {speed.world} processes"
    yield Figure(part="link", what=what, value=speed.bytes_per_second, unit="B/s")
    yield Figure(part="link", what="all-reduce latency", value=speed.latency_seconds, unit="s")


def pcie_bytes_per_second(generation: int | None, width: int | None) -> float | None:
    """What a PCIe link lets through each way; None for one that is not known."""
    if generation is None or width is None or generation not in LANE_BYTES_PER_SECOND:
        return None
    return LANE_BYTES_PER_SECOND[generation] * width


def text(value: float | None, unit: str) -> str:
    """A figure as people read it."""
    if value is None:
        return "not measured"
    if unit == "s":
        return units.seconds_text(value)
    if unit in ("FLOP/s", "B/s"):
        for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
            if value >= size:
                return (
                    f"{value / size:.3g} {letter}{unit}"
                    if value < 999.5 * size
                    else f"{value / size:.0f} {letter}{unit}"
                )
        return f"{value:.0f} {unit}"
    return f"{value:,.0f}{unit}" if unit == "/s" else f"{value:,.0f} {unit}"
