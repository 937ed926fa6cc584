from dataclasses import replace
from typing import Any

import pytest

from stoker.doctor import shortfalls
from stoker.doctor.figures import figures, text
from stoker.doctor.profile import Measured
from stoker.findings import Finding
from stoker.machine import catalogue
from tests.doctor import speeds

KNOWN = catalogue.read()


def found(**parts: Any) -> tuple[Finding, ...]:
    return shortfalls.found(speeds.measured(**parts), KNOWN)


def only(**parts: Any) -> Finding:
    """The one thing that is found wrong with a machine that is well but for these parts; it must come with a fix."""
    (one,) = found(**parts)
    assert one.level == "warn" and one.fix
    return one


def spoiled(**parts: Any) -> Finding:
    return only(gpus=(speeds.gpu(**parts),))


def test_a_machine_that_does_what_it_should_has_no_shortfall() -> None:
    assert found() == ()


def test_what_was_not_measured_is_no_shortfall() -> None:
    assert shortfalls.found(Measured(at=0.0), KNOWN) == ()
    nothing = dict.fromkeys(("fp32", "tf32", "fp16", "bf16"))
    names = ("clock_mhz", "copy_bytes_per_second", "to_device_bytes_per_second", "pcie_generation", "pcie_width")
    silent = speeds.gpu(matmul_flops=nothing, matmul_peak_flops=nothing, throttle=(), **dict.fromkeys(names))
    disk = speeds.disk(
        sequential_bytes_per_second=None, random_reads_per_second=None, write_bytes_per_second=None,
        list_files_per_second=None,
    )  # fmt: skip
    assert found(gpus=(silent,), disk=disk) == ()


def test_a_gpu_whose_clock_is_held_down_is_named_with_its_share_and_the_cause() -> None:
    slow = {"fp32": 20e12, "tf32": 160e12, "fp16": 312e12, "bf16": 310e12}
    one = spoiled(
        name="NVIDIA H100 80GB HBM3", matmul_peak_flops=slow, matmul_flops=slow, clock_mhz=495,
        copy_bytes_per_second=3e12,
    )  # fmt: skip
    assert one.what.startswith("GPU 0 multiplies fp32 matrices at 20 TFLOP/s, 30% of what its data sheet says")
    assert one.what.endswith("clock held at 25% by power cap") and "nvidia-smi -pl" in (one.fix or "")


def test_the_known_ceiling_is_what_others_measured() -> None:
    one = spoiled(matmul_peak_flops=speeds.H200["matmul_peak_flops"] | {"bf16": 310e12})
    assert one.what == "GPU 0 multiplies bf16 matrices at 310 TFLOP/s, 39% of what an H200 SXM is known to do"


def test_a_power_cap_that_costs_little_is_usual() -> None:
    assert found(gpus=(speeds.gpu(clock_mhz=1300, throttle=("power cap",)),)) == ()


def test_a_clock_held_down_is_named_where_nothing_is_known_of_the_gpu() -> None:
    unknown, held = found(gpus=(speeds.gpu(name="Some GPU", clock_mhz=400, throttle=("hardware thermal slowdown",)),))
    assert "not in the catalogue" in unknown.what and "Some GPU" in unknown.what
    assert held.what == "GPU 0: clock held at 20% by hardware thermal slowdown" and "cool" in (held.fix or "")


@pytest.mark.parametrize(
    ("throttle", "fix"),
    [(("application clocks",), "-rac"), (("power brake",), "power supply"), ((), "nobody else uses it")],
)
def test_the_cure_fits_the_cause(throttle: tuple[str, ...], fix: str) -> None:
    one = spoiled(clock_mhz=300, throttle=throttle)
    assert fix in (one.fix or "")
    assert ("no reason" in one.what) == (not throttle)


def test_disputed_figures_are_set_against_nothing() -> None:
    assert found(gpus=(speeds.gpu(name="NVIDIA A10G", copy_bytes_per_second=500e9, peer_bytes_per_second={}),)) == ()


def test_slow_memory_is_named() -> None:
    one = spoiled(copy_bytes_per_second=2e12)
    assert "copies 2 TB/s within its memory, 42% of" in one.what


def test_a_narrow_link_under_load_is_named_with_its_rate() -> None:
    one = spoiled(pcie_width=8, to_device_bytes_per_second=26e9)
    assert one.what == "GPU 0 has PCIe x8 of x16: 26 GB/s get to it, 41% of what PCIe 5 x16 lets through"


def test_a_link_of_an_older_generation_is_named() -> None:
    assert "PCIe generation 3 of 5" in spoiled(pcie_generation=3, to_device_bytes_per_second=12e9).what


def test_slow_copies_over_a_wide_link_have_another_cause() -> None:
    one = spoiled(to_device_bytes_per_second=12e9)
    assert "slow copies from the host" in one.what and "numactl" in (one.fix or "")


def test_slow_copies_over_an_unknown_link_are_no_shortfall() -> None:
    unknown = dict.fromkeys(("pcie_width", "pcie_generation", "pcie_width_max", "pcie_generation_max"))
    assert found(gpus=(speeds.gpu(to_device_bytes_per_second=12e9, **unknown),)) == ()


def test_gpus_that_reach_each_other_without_their_nvlink_are_named() -> None:
    one = spoiled(peer_bytes_per_second={1: 20e9, 2: 380e9})
    assert "copies to GPU 1 run at 20 GB/s, 4% of its NVLink" in one.what


def test_poor_scaling_is_named_with_its_figures() -> None:
    one = only(cpu=speeds.cpu(decode_all_per_second=3000.0))
    assert one.what == "16 threads decode 3,000 pictures a second, 47% of 16 times what one does"
    assert "native decoder" in (only(cpu=speeds.cpu(decode_all_per_second=3000.0, decoder="Pillow")).fix or "")


def test_one_core_has_nothing_to_scale() -> None:
    assert found(cpu=speeds.cpu(threads=1, cores=1, decode_all_per_second=200.0)) == ()


def test_a_disk_that_does_not_feed_the_cores_is_named_with_both_rates() -> None:
    slow = speeds.disk(random_reads_per_second=300.0, sequential_bytes_per_second=200e6)
    one = only(disk=slow)
    assert "reads 300 pictures a second" in one.what and "decode 5,770" in one.what
    assert "pack the data (from front to back it reads 2,000)" in (one.fix or "")


def test_large_pictures_take_several_reads() -> None:
    photos = speeds.cpu(picture_bytes=131_072.0 * 8)
    assert "reads 3,000 pictures" in only(cpu=photos, disk=speeds.disk(sequential_bytes_per_second=1e9)).what


def test_what_came_from_memory_says_nothing_of_a_disk() -> None:
    assert found(disk=speeds.disk(random_reads_per_second=300.0, is_cold=False)) == ()


def test_slow_lists_of_files_are_named_for_the_dataset() -> None:
    slow = speeds.disk(list_files_per_second=1_840_697 / 574, dataset_files=1_840_697, data="/data/places")
    one = only(disk=slow)
    assert one.what == "listing this dataset's 1,840,697 files takes 9 min 34 s at /data; an SSD takes 11.8 s"
    assert one.fix == "pack it: stoker pack /data/places DEST makes a few large files of it"


def test_slow_lists_of_files_are_named_for_a_million_where_no_dataset_is_known() -> None:
    assert "1,000,000 files would take" in only(disk=speeds.disk(list_files_per_second=3000.0)).what


def test_slow_writes_are_named_with_what_a_checkpoint_takes() -> None:
    assert "1 GB needs 20.0 s" in only(disk=speeds.disk(write_bytes_per_second=50e6)).what


def test_every_figure_has_its_row_and_its_expectation() -> None:
    rows = {(row.part, row.what): row for row in figures(speeds.measured(), KNOWN)}
    bf16 = rows["GPU 0", "bf16 matmul"]
    assert (bf16.value, bf16.expected, bf16.expected_by) == (790e12, 794.5e12, "best measured")
    assert bf16.share == pytest.approx(0.994, abs=0.001)
    assert rows["GPU 0", "bf16 matmul, lasting"].value == 673e12
    assert rows["GPU 0", "fp32 matmul"].expected_by == "data sheet"
    assert rows["GPU 0", "host to GPU, pinned"].expected == pytest.approx(63e9, rel=0.01)
    assert rows["GPU 0", "to GPU 2"].value is None and rows["GPU 0", "to GPU 2"].share is None
    assert rows["CPU", "decode, 16 threads"].expected == 6400
    assert rows["link", "all-reduce, 2 processes"].value == 1e9


def test_a_dataset_that_was_extrapolated_is_said_to_be_so() -> None:
    disk = speeds.disk(dataset_files=1_840_697, dataset_list_seconds=574.0, is_extrapolated=True)
    rows = figures(speeds.measured(disk=disk), KNOWN)
    assert "all about 1,840,697 files" in [row.what for row in rows]
    rows = figures(speeds.measured(disk=replace(disk, is_extrapolated=False)), KNOWN)
    assert "all 1,840,697 files" in [row.what for row in rows]


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (None, "B/s", "not measured"),
        (788.4e12, "FLOP/s", "788 TFLOP/s"),
        (4.243e12, "B/s", "4.24 TB/s"),
        (1.745e15, "FLOP/s", "1745 TFLOP/s"),
        (55.47e9, "B/s", "55.5 GB/s"),
        (999_900.0, "B/s", "999900 B/s"),
        (5770.4, "/s", "5,770/s"),
        (1508, "MHz", "1,508 MHz"),
        (0.0001, "s", "0.1 ms"),
    ],
)
def test_figures_are_written_as_people_read_them(value: float | None, unit: str, said: str) -> None:
    assert text(value, unit) == said
