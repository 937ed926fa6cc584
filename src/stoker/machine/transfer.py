"""What was measured here, carried to another machine: between two bounds, or not at all. Pure."""

import dataclasses
import math
from dataclasses import dataclass

from stoker.machine.catalogue import GENERATIONS, GpuSpec, Instance
from stoker.machine.links import Link
from stoker.machine.predict import Costs, Interval

# How far outside the bounds a figure may be: another box with the same GPU, another GPU of the same generation, and for
# each generation between them. People's K80 (Kepler) against P6000 (Pascal) and V100 (Volta), with the same network and
# batch, is 1.42 and 1.6 to 1.7 times slower than the worse of both ratios says: two and three generations
# (tests/facts/places365_steps.csv, caltech256_finetune.csv). Pascal to Volta lies between the ratios.
SAME_GPU, SAME_GENERATION, EACH_GENERATION = 1.05, 1.15, 1.2
# The share of its data sheet's arithmetic that a GPU reaches in training: in fp32, ResNet-152 on a V100 58 %; on tensor
# cores, ResNet-50 17 to 20 % (H200, A100), ResNet-18 21 %, MobileNetV2 2 %.
REACHED = {"fp32": (0.2, 0.6), "tf32": (0.02, 0.4), "fp16": (0.02, 0.3), "bf16": (0.02, 0.3)}
# A vCPU is half a core of a server; it may be a quicker one than those here.
VCPU_SPEED = (0.5, 1.5)
# A lane of PCIe 3; each later PCIe is twice as fast. Which one a GPU has, by its generation.
LANE_BYTES_PER_SECOND = 0.985e9
PCIE = dict(zip(GENERATIONS, (3, 3, 3, 3, 3, 4, 4, 5, 5), strict=True))
LANES = (8, 16)
# What an exchange of gradients reaches: of a network's label 80 to 90 %, of NVLink's about 80 %; without NVLink every
# byte goes over PCIe twice, through the host's memory.
NETWORK_SHARE, NVLINK_SHARE, PCIE_SHARE = 0.85, 0.8, 0.5
NETWORK_LATENCY_SECONDS, LOCAL_LATENCY_SECONDS = 2e-4, 5e-5


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """What the parts of a step cost on another machine: at least, likely and at most."""

    low: Costs
    likely: Costs
    high: Costs
    ratio: Interval
    """seconds of arithmetic there for each second here; of evaluation too"""
    note: str


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """Why nothing can be said about another machine."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Seconds of arithmetic there for each second here, and how they were found."""

    ratio: Interval
    note: str


def elsewhere(
    costs: Costs,
    *,
    here: GpuSpec | None,
    there: GpuSpec,
    precision: str,
    flops_per_sample: float | None = None,
    sample_bytes: float | None = None,
    here_lanes: int | None = None,
    there_lanes: int | None = None,
) -> Elsewhere | Unknown:
    """The costs of this machine as they would be with another GPU and on other cores.

    The arithmetic goes by the ratio of the rates of computing or of memory, whichever limits it: both are bounds. With
    no known GPU here it goes by `flops_per_sample`, forward and backward. `sample_bytes` is what is copied to a GPU.
    """
    found: Ratio | Unknown = Unknown(
        reason="no GPU of the catalogue is here, and the network's arithmetic is not known"
    )
    if here is not None:
        found = scaled(here, there, precision)
    if isinstance(found, Unknown) and flops_per_sample is not None and costs.sample_seconds > 0:
        found = reckoned(flops_per_sample, costs.sample_seconds, there, precision)
    if isinstance(found, Unknown):
        return found
    copies = copied(costs, here=here, there=there, sample_bytes=sample_bytes, lanes=(here_lanes, there_lanes))
    slow, fast = VCPU_SPEED
    decode = Interval(low=1 / fast, likely=1 / math.sqrt(slow * fast), high=1 / slow)
    low, likely, high = (
        with_speeds(costs, ratio=getattr(found.ratio, end), decode=getattr(decode, end), copies=getattr(copies, end))
        for end in ("low", "likely", "high")
    )
    return Elsewhere(low=low, likely=likely, high=high, ratio=found.ratio, note=found.note)


def rate(spec: GpuSpec, precision: str) -> float | None:
    """Operations a second by the data sheet; None where it is not known. A GPU without tf32 computes in fp32."""
    if precision == "tf32" and GENERATIONS.index(spec.generation) < GENERATIONS.index("ampere"):
        precision = "fp32"
    return spec.flops.get(precision)


def not_known(spec: GpuSpec, precision: str) -> str:
    """Why a GPU's rate is not known."""
    if spec.is_conflict:
        return (
            f"sources disagree about the {precision} rate of {spec.name}: it must be measured, or given in a catalogue"
        )
    return f"the catalogue has no {precision} rate for {spec.name}"


def scaled(here: GpuSpec, there: GpuSpec, precision: str) -> Ratio | Unknown:
    """Seconds there for a second here, by what both data sheets say."""
    here_flops, there_flops = rate(here, precision), rate(there, precision)
    if here_flops is None or there_flops is None:
        return Unknown(reason=not_known(there if there_flops is None else here, precision))
    by_flops = here_flops / there_flops
    by_memory = here.bandwidth_bytes_per_second / there.bandwidth_bytes_per_second
    apart = abs(GENERATIONS.index(here.generation) - GENERATIONS.index(there.generation))
    wider = SAME_GPU if here.name == there.name else SAME_GENERATION * EACH_GENERATION**apart
    ratio = Interval(
        low=min(by_flops, by_memory) / wider,
        likely=math.sqrt(by_flops * by_memory),
        high=max(by_flops, by_memory) * wider,
    )
    by = f"by arithmetic {1 / by_flops:.2g} times as fast as {here.name}, by memory {1 / by_memory:.2g} times"
    return Ratio(ratio=ratio, note=f"{there.name} is {by}; the bounds are {ratio.high / ratio.low:.1f} times apart")


def reckoned(flops_per_sample: float, sample_seconds: float, there: GpuSpec, precision: str) -> Ratio | Unknown:
    """Seconds there for a second here, by the arithmetic that the network needs."""
    there_flops = rate(there, precision)
    if there_flops is None:
        return Unknown(reason=not_known(there, precision))
    least, most = REACHED[precision]
    whole = flops_per_sample / there_flops / sample_seconds
    return Ratio(
        ratio=Interval(low=whole / most, likely=whole / math.sqrt(least * most), high=whole / least),
        note=f"from the network's arithmetic, at {least:.0%} to {most:.0%} of what {there.name}'s data sheet says",
    )


def copied(
    costs: Costs,
    *,
    here: GpuSpec | None,
    there: GpuSpec,
    sample_bytes: float | None,
    lanes: tuple[int | None, int | None],
) -> Interval:
    """Seconds to copy a sample to the GPU there; unknown lanes are 16 at best and 8 at worst."""
    few, many = (lanes[1], lanes[1]) if lanes[1] else LANES
    if here is not None and costs.transfer_sample_seconds > 0:
        moved = costs.transfer_sample_seconds * pcie_bytes_per_second(here, lanes[0] or LANES[1])
    else:
        moved = sample_bytes or 0.0
    least, most = (moved / pcie_bytes_per_second(there, count) for count in (many, few))
    return Interval(low=least, likely=math.sqrt(least * most), high=most)


def with_speeds(costs: Costs, *, ratio: float, decode: float, copies: float) -> Costs:
    """Costs with the arithmetic and the decoding so many times as long; the time to launch work stays."""
    return dataclasses.replace(
        costs,
        device="cuda",
        atom_seconds=costs.atom_seconds * ratio,
        sample_seconds=costs.sample_seconds * ratio,
        optimizer_seconds=costs.optimizer_seconds * ratio,
        decode_sample_seconds=costs.decode_sample_seconds * decode,
        transfer_sample_seconds=copies,
    )


def pcie_bytes_per_second(spec: GpuSpec, lanes: int) -> float:
    """What a GPU's bus moves each way, by its width and the GPU's generation."""
    return lanes * LANE_BYTES_PER_SECOND * 2.0 ** (PCIE[spec.generation] - 3)


def link_of(instance: Instance, spec: GpuSpec, *, machines: int) -> Link | None:
    """What gradients travel over: the network between machines, else NVLink or PCIe; None where it is not known."""
    if machines > 1:
        baseline = instance.network_baseline_bytes_per_second
        if not baseline:
            return None
        return Link(latency_seconds=NETWORK_LATENCY_SECONDS, bytes_per_second=baseline * NETWORK_SHARE)
    if spec.nvlink_bytes_per_second:
        speed = spec.nvlink_bytes_per_second * NVLINK_SHARE
    elif instance.pcie_lanes:
        speed = pcie_bytes_per_second(spec, instance.pcie_lanes) * PCIE_SHARE
    else:
        return None
    return Link(latency_seconds=LOCAL_LATENCY_SECONDS, bytes_per_second=speed)
