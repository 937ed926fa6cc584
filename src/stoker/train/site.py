"""Where a run trains: its folder, its place among processes, its device, its clock; and how it ended there."""

from dataclasses import dataclass
from typing import Any

import torch

from stoker.dist import Watch, World
from stoker.machine import gauges
from stoker.machine.interrupts import StopRequest
from stoker.records import Status
from stoker.runs import Run
from stoker.train.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Site:
    """What stays the same from the start of a process to its end."""

    run: Run
    world: World
    device: torch.device
    clock: Ledger
    stop: StopRequest
    watch: Watch
    """looks after the other processes"""
    attempt: int
    """which start of the run this is, from 1"""
    started_at: float
    first_started_at: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a start of a run ended."""

    status: Status
    result: dict[str, Any]
    why: str | None = None


def settle(device: torch.device, clock: Ledger) -> None:
    """Wait for what a GPU still has to do, and count it as the computing it is. Free on a CPU."""
    if device.type == "cuda":
        with clock.into("compute"):
            torch.cuda.synchronize(device)


def decode_threads(wanted: int, world: World) -> int:
    """Decode threads of this process: as asked, or its share of the cores less one for the training thread."""
    share = gauges.cores_allotted().allotted // world.local_size
    return wanted or max(1, share - 1)


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that training took: on the GPU, or of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
