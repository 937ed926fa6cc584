"""What all processes do together: meet, wait, add up, and part."""

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stoker.dist import meeting
from stoker.dist.place import World
from stoker.errors import Problem

if TYPE_CHECKING:
    import torch


def start(place: World, device: "torch.device") -> None:
    """Meet the other processes."""
    if place.size == 1:
        return
    import torch.distributed

    if torch.distributed.is_initialized():
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    timeout = datetime.timedelta(minutes=30)
    store = meeting.launcher_store(place, timeout=timeout)
    # Without a store, the environment says all.
    rank, size = (place.rank, place.size) if store is not None else (-1, -1)
    with silence():
        torch.distributed.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=size)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Send what is printed to the errors for a while: gloo greets on standard output, where answers are."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def stop(place: World) -> None:
    """Part from the other processes, if this one has met them."""
    if place.size > 1:
        import torch.distributed

        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def barrier(place: World) -> None:
    """Wait until every process is here."""
    if place.size > 1:
        import torch.distributed

        torch.distributed.barrier()


def add_up(tensor: "torch.Tensor", place: World) -> None:
    """Replace a tensor by its sum over all processes."""
    if place.size > 1:
        import torch.distributed

        torch.distributed.all_reduce(tensor)


def least(number: int, place: World, device: "torch.device") -> int:
    """The smallest of the numbers that the processes have."""
    if place.size == 1:
        return number
    import torch
    import torch.distributed

    found = torch.tensor(number, dtype=torch.int64, device=device)
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MIN)
    return int(found.item())


def check_equal(number: int, place: World, device: "torch.device", *, what: str) -> None:
    """Refuse to go on when the processes do not have the same number: they would wait for each other for ever."""
    if place.size == 1:
        return
    import torch

    total = torch.tensor(float(number), dtype=torch.float64, device=device)
    add_up(total, place)
    if total.item() != number * place.size:
        raise Problem(
            f"the processes do not agree on the {what}: process {place.rank} has {number}",
            fix="see that all machines read the same run folder, and start again",
        )
