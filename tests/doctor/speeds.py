"""A machine that is well, to be spoiled part by part."""

from typing import Any

from stoker.doctor.profile import CpuSpeed, DiskSpeed, GpuSpeed, LinkSpeed, Measured, Pair

H200: dict[str, Any] = {
    "index": 0,
    "name": "NVIDIA H200",
    "clock_mhz": 1508,
    "clock_max_mhz": 1980,
    "power_w": 694.0,
    "power_limit_w": 700.0,
    "throttle": ("power cap",),
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_generation_max": 5,
    "pcie_width_max": 16,
    "matmul_flops": {"fp32": 51e12, "tf32": 347e12, "fp16": 635e12, "bf16": 673e12},
    "matmul_peak_flops": {"fp32": 45e12, "tf32": 350e12, "fp16": 780e12, "bf16": 790e12},
    "copy_bytes_per_second": 4.24e12,
    "to_device_bytes_per_second": 55e9,
    "pageable_to_device_bytes_per_second": 7e9,
    "to_host_bytes_per_second": 55e9,
    "peer_bytes_per_second": {1: 380e9, 2: None},
}
CPU: dict[str, Any] = {
    "cores": 16,
    "threads": 16,
    "decode_one_per_second": 400.0,
    "decode_all_per_second": 5770.0,
    "picture": "24 drawn pictures",
    "picture_bytes": 100_000.0,
    "picture_pixels": 187_500.0,
    "decoder": "libjpeg-turbo 2.1.5",
    "data": None,
}
DISK: dict[str, Any] = {
    "folder": "/data",
    "file_system": "ext4",
    "sequential_bytes_per_second": 3.5e9,
    "random_reads_per_second": 24_000.0,
    "random_read_bytes": 131_072,
    "random_read_threads": 16,
    "is_cold": True,
    "bypassed_by": "O_DIRECT",
    "write_bytes_per_second": 1.3e9,
    "files_listed": 2000,
    "list_files_per_second": 150_000.0,
    "listed": "made for it",
    "data": None,
    "dataset_files": None,
    "dataset_list_seconds": None,
    "is_extrapolated": False,
}


def gpu(**parts: Any) -> GpuSpeed:
    return GpuSpeed(**H200 | parts)


def cpu(**parts: Any) -> CpuSpeed:
    return CpuSpeed(**CPU | parts)


def disk(**parts: Any) -> DiskSpeed:
    return DiskSpeed(**DISK | parts)


def link() -> LinkSpeed:
    pair = Pair(one="a", other="b", bytes_per_second=1.1e9)
    return LinkSpeed(world=2, latency_seconds=1e-4, bytes_per_second=1e9, points=((4096, 2e-4),), pairs=(pair,))


def measured(**parts: Any) -> Measured:
    whole: dict[str, Any] = {"at": 1e9, "gpus": (gpu(),), "cpu": cpu(), "disk": disk(), "link": link()}
    return Measured(**whole | parts)
