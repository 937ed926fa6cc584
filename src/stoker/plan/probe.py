"""What a probe of a recipe found, in plain values. Needs no torch."""

from dataclasses import dataclass, field

from stoker.machine.links import Link
from stoker.machine.predict import Costs


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What was measured, in plain values."""

    costs: tuple[Costs, ...]
    """one a stage of the run"""
    atom: tuple[int, ...]
    """samples of an atom that were probed, one a stage"""
    threads: int
    world: int
    nodes: int
    """machines that the processes were on"""
    steps: int
    """that were taken in all"""
    seconds: float
    """that the probe took"""
    eval_sample_seconds: float
    """of one process, decoding included"""
    save_seconds: float
    memory_bytes: int | None
    """that training takes on the device; None on a CPU"""
    flops_per_sample: float | None
    layers: int
    """of the network: each is some work that a GPU must be given"""
    sent_bytes: int
    """of gradients in a step, as the settings send them"""
    link: Link | None
    """between the processes; None for one"""
    tried: dict[str, float] = field(default_factory=dict)
    """how many times as fast a step is with another setting"""
    version: int = 1
