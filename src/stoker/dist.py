"""Many processes as one. The only module that imports torch.distributed; for one process it is the identity."""

import contextlib
import datetime
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker.errors import Problem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class World:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """processes on this machine"""

    @property
    def is_first(self) -> bool:
        """whether this process writes the run folder and talks to the user"""
        return self.rank == 0


def world() -> World:
    """This process's place, as torchrun says in the environment. Needs no torch."""
    try:
        place = World(
            rank=int(os.environ.get("RANK", 0)),
            size=int(os.environ.get("WORLD_SIZE", 1)),
            local_rank=int(os.environ.get("LOCAL_RANK", 0)),
            local_size=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        )
    except ValueError as error:
        raise Problem(f"RANK, WORLD_SIZE or LOCAL_RANK is not a number: {error}", fix="start with torchrun") from None
    if not 0 <= place.rank < place.size:
        raise Problem(f"RANK is {place.rank} of WORLD_SIZE {place.size}", fix="start with torchrun, which sets both")
    return place


def choose_device(wanted: str, place: World) -> "torch.device":
    """The device this process trains on."""
    import torch

    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Problem("device is cuda, but torch sees no working GPU", fix="see what is wrong with: stoker doctor")
    if place.local_rank >= torch.cuda.device_count():
        raise Problem(
            f"process {place.local_rank} of this machine has no GPU: there are {torch.cuda.device_count()}",
            fix=f"start at most {torch.cuda.device_count()} processes here, or train with --device cpu",
        )
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)


def start(place: World, device: "torch.device") -> None:
    """Meet the other processes."""
    if place.size == 1:
        return
    import torch.distributed

    if torch.distributed.is_initialized():
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, timeout=datetime.timedelta(minutes=30))


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


def any_true(fact: bool, place: World, device: "torch.device") -> bool:
    """Whether a fact holds in any process. Waits for all of them."""
    if place.size == 1:
        return fact
    import torch

    found = torch.tensor(float(fact), device=device)
    add_up(found, place)
    return found.item() > 0


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


def overlaps(place: World, device: "torch.device", *, exact: bool) -> bool:
    """Whether gradients are exchanged during the backward pass, where their time can't be told from computing."""
    return place.size > 1 and device.type == "cuda" and not exact


def wrapped(model: Any, place: World, device: "torch.device", *, exact: bool) -> Any:
    """The model, with its gradients averaged over all processes during the backward pass where that is faster.

    DDP lays its buckets out anew after the first step of a process, so that from three processes on a resumed run adds
    up in another order. Where bits are promised (on a CPU, or with exact), `average` does it after the backward pass.
    """
    if not overlaps(place, device, exact=exact):
        return model
    from torch.nn.parallel import DistributedDataParallel

    # Batch-norm statistics are averaged over atoms in step.py, so DDP must not overwrite them with rank 0's.
    return DistributedDataParallel(model, device_ids=[device.index], broadcast_buffers=False)


def quietly(model: Any, *, last: bool) -> contextlib.AbstractContextManager[None]:
    """Hold gradients back from the other processes until a process's last atom of the step."""
    return contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()


def average(model: Any, place: World) -> None:
    """Replace the gradients by their mean over all processes, where DDP has not done so."""
    if place.size == 1 or hasattr(model, "no_sync"):
        return
    import torch

    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    add_up(flat, place)
    flat /= place.size
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view(gradient.shape))
