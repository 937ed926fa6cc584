import dataclasses
import math

import pytest

from stoker.machine import catalogue, transfer
from stoker.machine.catalogue import GpuSpec, Instance
from stoker.machine.transfer import Elsewhere, Unknown
from tests.machine.costs import costs


def gpu(name: str) -> GpuSpec:
    found = catalogue.read().gpu(name)
    assert found is not None
    return found


def machine(name: str) -> Instance:
    found = catalogue.read().instance(name)
    assert found is not None
    return found


def moved(here: str, there: str, precision: str = "bf16", **given: float) -> Elsewhere:
    found = transfer.elsewhere(costs(**given), here=gpu(here), there=gpu(there), precision=precision)
    assert isinstance(found, Elsewhere)
    return found


def test_arithmetic_goes_between_the_ratios_of_computing_and_of_memory():
    found = moved("H200 SXM", "A100 SXM 40GB")
    by_flops, by_memory = 989 / 312, 4800 / 1555
    widened = transfer.SAME_GENERATION * transfer.EACH_GENERATION**2
    assert found.ratio.low == pytest.approx(by_memory / widened)
    assert found.ratio.likely == pytest.approx(math.sqrt(by_flops * by_memory))
    assert found.ratio.high == pytest.approx(by_flops * widened)
    assert found.likely.sample_seconds == pytest.approx(0.001 * found.ratio.likely)


def test_all_arithmetic_is_scaled_and_launches_are_not():
    found = moved("A100 SXM 40GB", "H200 SXM", atom_seconds=0.2, optimizer_seconds=0.1, host_seconds=0.05)
    for end in ("low", "likely", "high"):
        there, ratio = getattr(found, end), getattr(found.ratio, end)
        assert (there.atom_seconds, there.optimizer_seconds) == pytest.approx((0.2 * ratio, 0.1 * ratio))
        assert there.host_seconds == 0.05


def test_the_bounds_are_wider_the_further_apart_two_gpus_are():
    def width(here: str, there: str) -> float:
        ratio, flops, memory = moved(here, there, "fp32").ratio, gpu(here).flops["fp32"], gpu(here)
        ratios = sorted(
            [
                flops / gpu(there).flops["fp32"],
                memory.bandwidth_bytes_per_second / gpu(there).bandwidth_bytes_per_second,
            ]
        )
        return math.sqrt(ratio.high / ratio.low / (ratios[1] / ratios[0]))

    pairs = [("V100 SXM2 16GB", name) for name in ("V100 SXM2 16GB", "V100 PCIe 16GB", "P6000", "K80")]
    assert [width(*pair) for pair in pairs] == pytest.approx([1.05, 1.15, 1.15 * 1.2, 1.15 * 1.2**3])


def test_the_same_gpu_elsewhere_takes_the_same_time():
    assert moved("L4", "L4").ratio.likely == pytest.approx(1.0)


def test_a_rate_that_sources_disagree_about_makes_the_machine_unknown():
    found = transfer.elsewhere(costs(), here=gpu("H200 SXM"), there=gpu("A10G"), precision="bf16", flops_per_sample=1e9)
    assert isinstance(found, Unknown) and "sources disagree about the bf16 rate of A10G" in found.reason


def test_a_precision_that_a_gpu_does_not_have_makes_it_unknown():
    found = transfer.elsewhere(costs(), here=gpu("H200 SXM"), there=gpu("T4"), precision="bf16")
    assert found == Unknown(reason="the catalogue has no bf16 rate for T4")


def test_a_gpu_without_tf32_computes_in_fp32():
    assert transfer.rate(gpu("T4"), "tf32") == 8.1e12
    assert transfer.rate(gpu("L4"), "tf32") == 60e12
    assert transfer.rate(gpu("A10G"), "tf32") is None


def test_without_a_known_gpu_here_the_networks_arithmetic_tells():
    here = costs(device="cpu", sample_seconds=0.5, host_seconds=0.01)
    found = transfer.elsewhere(
        here, here=None, there=gpu("V100 SXM2 16GB"), precision="fp32", flops_per_sample=69e9, sample_bytes=150_000
    )
    assert isinstance(found, Elsewhere)
    # ResNet-152 at 224 takes 23 GFLOP forward, and a V100 was seen to train 131 a second.
    assert found.low.sample_seconds == pytest.approx(69e9 / 15.7e12 / 0.6)
    assert found.high.sample_seconds == pytest.approx(69e9 / 15.7e12 / 0.2)
    assert found.low.sample_seconds < 1 / 131 < found.high.sample_seconds
    assert found.likely.device == "cuda"
    assert found.low.transfer_sample_seconds == pytest.approx(150_000 / (16 * 0.985e9))
    assert found.high.transfer_sample_seconds == pytest.approx(150_000 / (8 * 0.985e9))


def test_the_share_of_the_peak_holds_what_was_measured():
    # Images a second in training with 16-bit precision, and GFLOP of a forward pass at 224 pixels.
    for name, images, gflop in (
        ("H200 SXM", 6_972, 8.2), ("H200 SXM", 19_360, 3.6), ("H200 SXM", 11_159, 0.6), ("A100 SXM 40GB", 2_470, 8.2),
    ):  # fmt: skip
        found = transfer.elsewhere(
            costs(device="cpu"), here=None, there=gpu(name), precision="bf16", flops_per_sample=3e9 * gflop
        )
        assert isinstance(found, Elsewhere)
        assert found.low.sample_seconds < 1 / images < found.high.sample_seconds


def test_without_a_gpu_and_without_arithmetic_nothing_is_said():
    found = transfer.elsewhere(costs(device="cpu"), here=None, there=gpu("L4"), precision="fp32")
    assert isinstance(found, Unknown) and "no GPU of the catalogue is here" in found.reason
    found = transfer.elsewhere(costs(), here=gpu("P6000"), there=gpu("L4"), precision="fp16")
    assert isinstance(found, Unknown) and "no fp16 rate for P6000" in found.reason


def test_a_vcpu_decodes_half_to_one_and_a_half_times_as_fast():
    found = moved("L4", "L4", decode_sample_seconds=0.006)
    assert (found.low.decode_sample_seconds, found.high.decode_sample_seconds) == pytest.approx((0.004, 0.012))
    assert found.low.decode_sample_seconds < found.likely.decode_sample_seconds < found.high.decode_sample_seconds


def test_copies_go_by_the_width_and_the_age_of_the_bus():
    here = costs(transfer_sample_seconds=1e-5)
    found = transfer.elsewhere(
        here, here=gpu("H200 SXM"), there=gpu("T4"), precision="fp16", here_lanes=16, there_lanes=8
    )
    assert isinstance(found, Elsewhere)
    # Sixteen lanes of PCIe 5 against eight of PCIe 3.
    assert found.low.transfer_sample_seconds == pytest.approx(8e-5)
    assert found.high.transfer_sample_seconds == pytest.approx(8e-5)


def test_gradients_travel_over_the_fastest_that_is_there():
    nvlink = transfer.link_of(machine("p4d.24xlarge"), gpu("A100 SXM 40GB"), machines=1)
    network = transfer.link_of(machine("p4d.24xlarge"), gpu("A100 SXM 40GB"), machines=2)
    bus = transfer.link_of(machine("g4dn.12xlarge"), gpu("T4"), machines=1)
    assert nvlink is not None and network is not None and bus is not None
    assert nvlink.bytes_per_second == pytest.approx(0.8 * 300e9)
    assert network.bytes_per_second == pytest.approx(0.85 * 400e9 / 8)
    assert bus.bytes_per_second == pytest.approx(0.5 * 8 * 0.985e9)


def test_a_link_that_nobody_states_is_not_known():
    box = dataclasses.replace(machine("p2.8xlarge"), network_baseline_bytes_per_second=None)
    assert transfer.link_of(box, gpu("K80"), machines=1) is None
    assert transfer.link_of(box, gpu("K80"), machines=2) is None
