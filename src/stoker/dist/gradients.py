"""Gradients of many processes: averaged during the backward pass or after it, as they are or compressed."""

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any, Protocol

from stoker.dist.place import World

if TYPE_CHECKING:
    import torch

POWERSGD_RANK = 4
POWERSGD_PLAIN_STEPS = 10
"""steps at the beginning that PowerSGD leaves alone: DDP lays out its buckets in the first"""
POWERSGD_BUCKET_MIB = 1000
"""one bucket for all, because PowerSGD costs two exchanges a bucket"""
POWERSGD_MIN_RATE = 2
"""a matrix that would not shrink to less than a half is sent as it is (PowerSGDState's min_compression_rate)"""


class Clock(Protocol):
    """What is told when the exchange of gradients is all that is left of a backward pass."""

    def switch(self, bucket: str) -> str:
        """Count the time from here on to a bucket."""


def overlaps(place: World, device: "torch.device", *, exact: bool, compress: str = "off") -> bool:
    """Whether gradients are exchanged during the backward pass, beside computing."""
    return place.size > 1 and (compress == "powersgd" or (device.type == "cuda" and not exact))


def wrapped(
    model: Any, place: World, device: "torch.device", *, exact: bool, compress: str = "off", clock: Clock | None = None
) -> Any:
    """The model, with its gradients averaged over all processes during the backward pass where that is faster.

    DDP lays its buckets out anew after the first step of a process, so that from three processes on a resumed run adds
    up in another order. Where bits are promised (on a CPU, or with exact), `average` does it after the backward pass.
    PowerSGD exists as a hook of DDP alone. What is frozen now is left out: wrap again after a change.
    """
    if not overlaps(place, device, exact=exact, compress=compress):
        return model
    from torch.nn.parallel import DistributedDataParallel

    bucket_mib = POWERSGD_BUCKET_MIB if compress == "powersgd" else None
    devices = [device.index] if device.type == "cuda" else None
    # Batch-norm statistics are averaged over atoms in step.py, so DDP must not overwrite them with rank 0's.
    joined = DistributedDataParallel(model, device_ids=devices, broadcast_buffers=False, bucket_cap_mb=bucket_mib)
    hooked(joined, compress, clock)
    return joined


def hooked(joined: Any, compress: str, clock: Clock | None) -> None:
    """Let DDP send its buckets as they are or compressed, over gloo as well as NCCL, and a clock know of the last.

    The last bucket is full when the backward pass is over. From there on a step waits for what is still on its way:
    that is the exchange which computing does not hide.
    """
    import torch.distributed
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def timed(send: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if clock is not None and bucket.is_last():
            clock.switch("comm")
        sent: torch.futures.Future[torch.Tensor] = send(bucket)
        return sent

    def narrow(dtype: torch.dtype, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        # torch's own bf16 hook refuses gloo, and its fp16 hook casts first and divides then, which overflows sooner.
        whole = bucket.buffer()
        sent = whole.div(torch.distributed.get_world_size()).to(dtype)
        future = torch.distributed.all_reduce(sent, async_op=True).get_future()
        back: torch.futures.Future[torch.Tensor] = future.then(lambda done: whole.copy_(done.value()[0]))
        return back

    if compress == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=POWERSGD_RANK,
            start_powerSGD_iter=POWERSGD_PLAIN_STEPS,
            min_compression_rate=POWERSGD_MIN_RATE,
        )
        send = functools.partial(powerSGD_hook.powerSGD_hook, state)
    elif compress != "off":
        send = functools.partial(narrow, _narrow(compress))
    else:
        group = torch.distributed.distributed_c10d._get_default_group()
        send = functools.partial(default_hooks.allreduce_hook, group)
    joined.register_comm_hook(send, timed)


def _narrow(compress: str) -> "torch.dtype":
    """The numbers that bf16 and fp16 send."""
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16}[compress]


def quietly(model: Any, *, last: bool) -> contextlib.AbstractContextManager[None]:
    """Hold gradients back from the other processes until a process's last atom of the step."""
    return contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()


def average(model: Any, place: World, *, compress: str = "off") -> None:
    """Replace the gradients by their mean over all processes, where DDP has not done so."""
    if place.size == 1 or hasattr(model, "no_sync"):
        return
    import torch.distributed

    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    if compress == "off":
        torch.distributed.all_reduce(flat)
        flat /= place.size
    else:
        # Divided first: a sum of 16-bit numbers overflows sooner than their mean.
        flat = flat.div_(place.size).to(_narrow(compress))
        torch.distributed.all_reduce(flat)
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view(gradient.shape))


def sent_bytes(model: Any, compress: str) -> int:
    """Bytes of gradients that a process hands over in a step. The way they take decides how often each is sent."""
    shapes = [tuple(parameter.shape) for parameter in model.parameters() if parameter.requires_grad]
    width = 2 if compress in ("bf16", "fp16") else 4
    return sum(width * _sent_numbers(shape, compress) for shape in shapes)


def _sent_numbers(shape: tuple[int, ...], compress: str) -> int:
    """How many numbers stand for a gradient: PowerSGD sends a matrix as two thin ones, where that is shorter."""
    count = math.prod(shape)
    if compress != "powersgd" or len(shape) < 2:
        return count
    rows, columns = shape[0], count // shape[0]
    # PowerSGD's own rule, with the rank that a small matrix can have at most.
    thin = (rows + columns) * min(rows, columns, POWERSGD_RANK)
    return thin if thin * POWERSGD_MIN_RATE < count else count
