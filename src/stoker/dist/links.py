"""What the links between the processes can do: all of them at once, and each pair of hosts alone."""

import itertools
import math
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.dist.place import World
from stoker.machine.links import Link, sent_share
from stoker.units import KIB, MIB

if TYPE_CHECKING:
    import torch

SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
LEAST_REPEATS, MOST_REPEATS = 2, 20
REPEATS_SECONDS = 0.1
"""a size that takes little is tried more often, up to this time"""
ALL_PAIRS_HOSTS = 8
"""with more hosts than this, only neighbours are tried: all pairs would take too long"""
PAIR_SECONDS = 0.2
FIRST_BYTES, LEAST_BYTES, MOST_BYTES = MIB // 2, MIB, 64 * MIB
"""sent between two hosts: before the clock runs, and what is timed"""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """All-reduces of growing sizes, and the link that explains their times."""

    world: int
    points: tuple[tuple[int, float], ...]
    """bytes and seconds"""
    link: Link


@dataclass(frozen=True, kw_only=True)
class PairSpeed:
    """How fast data flows between two hosts, in the slower of the two directions."""

    one: str
    other: str
    bytes_per_second: float


def swept(place: World, device: "torch.device", *, most_seconds: float = 2.0, sizes: Sequence[int] = SIZES) -> Sweep:
    """Time all-reduces of growing sizes, as far as the time allows. All processes call it, and get the same."""
    assert place.size > 1, "one process has nobody to exchange with"
    # The first exchanges open connections, and say nothing.
    _median_seconds(sizes[0], device)
    began, points = time.monotonic(), list[tuple[int, float]]()
    for size in sizes:
        if points and not _goes_on(points, size, left_seconds=most_seconds - (time.monotonic() - began), device=device):
            break
        points.append((size, _median_seconds(size, device)))
    return Sweep(world=place.size, points=tuple(points), link=fitted(points, place.size))


def fitted(points: Sequence[tuple[int, float]], world: int) -> Link:
    """The link that explains the times best: T(S) = latency + 2(n-1)/n * S / bytes_per_second.

    Each point weighs as much as one over its time: the small ones tell the latency, the large ones the rate. A link
    that lets a little through at once makes small ones so fast that the latency would be below zero. Then it is the
    shortest of the times, and the rate alone is fitted.
    """
    assert points, "no exchange was timed"
    rows = [(sent_share(world) * size, seconds) for size, seconds in points]
    if len({size for size, _ in points}) == 1:
        return Link(
            latency_seconds=0.0, bytes_per_second=math.fsum(sent for sent, _ in rows) / math.fsum(s for _, s in rows)
        )
    weights, sizes, squares = (math.fsum(sent**power / seconds for sent, seconds in rows) for power in (0, 1, 2))
    count, all_sent = len(rows), math.fsum(sent for sent, _ in rows)
    determinant = weights * squares - sizes * sizes
    latency = (count * squares - all_sent * sizes) / determinant
    if latency < 0:
        latency = min(seconds for _, seconds in points)
    seconds_a_byte = (all_sent - latency * sizes) / squares
    if seconds_a_byte <= 0:  # the large ones took no longer than the small ones: at least what one of them had
        return Link(latency_seconds=latency, bytes_per_second=max(sent / seconds for sent, seconds in rows))
    return Link(latency_seconds=latency, bytes_per_second=1 / seconds_a_byte)


def pairs(place: World, device: "torch.device") -> tuple[PairSpeed, ...]:
    """How fast each pair of hosts is while all others are silent. All processes call it, and get the same.

    With many hosts only neighbours are tried. Processes of one host are no pair.
    """
    import torch
    import torch.distributed

    names = [""] * place.size
    if place.size > 1:
        torch.distributed.all_gather_object(names, socket.gethostname())
    tried = host_pairs(names)
    if not tried:
        return ()
    seconds_a_byte = torch.zeros(len(tried), 2, dtype=torch.float64, device=device)
    for number, ranks in enumerate(tried):
        for direction, (sender, receiver) in enumerate((ranks, ranks[::-1])):
            torch.distributed.barrier()
            if place.rank == sender:
                seconds_a_byte[number, direction] = _sent(receiver, device)
            elif place.rank == receiver:
                _received(sender, device)
    torch.distributed.all_reduce(seconds_a_byte)
    return tuple(
        PairSpeed(one=names[one], other=names[other], bytes_per_second=1 / max(both))
        for (one, other), both in zip(tried, seconds_a_byte.tolist(), strict=True)
    )


def host_pairs(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Which processes speak for each pair of hosts, by the name of the host that each process is on."""
    firsts = [rank for rank, name in enumerate(names) if name not in names[:rank]]
    if len(firsts) > ALL_PAIRS_HOSTS:
        return tuple(itertools.pairwise([*firsts, firsts[0]]))
    return tuple(itertools.combinations(firsts, 2))


def _goes_on(points: Sequence[tuple[int, float]], size: int, *, left_seconds: float, device: "torch.device") -> bool:
    """Whether all processes have the time for exchanges of a larger size. Every process gets the same answer."""
    last_size, last_seconds = points[-1]
    # The last size includes the latency, so that this is more than what it will take.
    wanted_seconds = last_seconds * size / last_size * (LEAST_REPEATS + 1)
    return _most(float(wanted_seconds > left_seconds), device) == 0


def _median_seconds(size: int, device: "torch.device") -> float:
    """How long an all-reduce takes, for the process that waits longest for it; the median of some."""
    import torch

    buffer = torch.zeros(size // 4, device=device)
    warm = _most(_all_reduce_seconds(buffer), device)
    # All processes have the same number here, so that they repeat it equally often.
    repeats = min(max(int(REPEATS_SECONDS / warm), LEAST_REPEATS), MOST_REPEATS)
    return _most(statistics.median(_all_reduce_seconds(buffer) for _ in range(repeats)), device)


def _all_reduce_seconds(buffer: "torch.Tensor") -> float:
    """How long an all-reduce takes that all processes begin together."""
    import torch.distributed

    torch.distributed.barrier()
    _settle(buffer.device)
    began = time.perf_counter()
    torch.distributed.all_reduce(buffer)
    _settle(buffer.device)
    return time.perf_counter() - began


def _most(number: float, device: "torch.device") -> float:
    """The largest of the numbers that the processes have."""
    import torch
    import torch.distributed

    found = torch.tensor(number, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
    return float(found.item())


def _sent(receiver: int, device: "torch.device") -> float:
    """Send data to another process; how many seconds each byte took."""
    import torch
    import torch.distributed

    # The first exchange opens the connection, and uses up what a link lets through at once.
    _timed_send(torch.zeros(FIRST_BYTES, dtype=torch.uint8, device=device), receiver)
    again = _timed_send(torch.zeros(FIRST_BYTES, dtype=torch.uint8, device=device), receiver)
    size: int = min(max(int(FIRST_BYTES * PAIR_SECONDS / again), LEAST_BYTES), MOST_BYTES)
    torch.distributed.send(torch.tensor(size, device=device), receiver)
    seconds = _timed_send(torch.zeros(size, dtype=torch.uint8, device=device), receiver)
    return seconds / size


def _timed_send(data: "torch.Tensor", receiver: int) -> float:
    """Send data; how long it takes until the other has it."""
    import torch
    import torch.distributed

    answer = torch.zeros(1, dtype=torch.uint8, device=data.device)
    _settle(data.device)
    began = time.perf_counter()
    torch.distributed.send(data, receiver)
    torch.distributed.recv(answer, receiver)
    _settle(data.device)
    return time.perf_counter() - began


def _received(sender: int, device: "torch.device") -> None:
    """The other side of `_sent`."""
    import torch
    import torch.distributed

    size = torch.tensor(FIRST_BYTES, device=device)
    for is_announced in (False, False, True):
        if is_announced:
            torch.distributed.recv(size, sender)
        data = torch.empty(int(size.item()), dtype=torch.uint8, device=device)
        torch.distributed.recv(data, sender)
        torch.distributed.send(data[:1], sender)


def _settle(device: "torch.device") -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
