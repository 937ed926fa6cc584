"""The link between processes as two figures, and what an exchange over it takes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Link:
    """What every exchange costs at least, and the rate at which the rest of it flows."""

    latency_seconds: float
    bytes_per_second: float


def all_reduce_seconds(link: Link, size_bytes: float, world: int) -> float:
    """How long `world` processes take to add up that many bytes in a ring; alone, no time at all."""
    if world <= 1:
        return 0.0
    return link.latency_seconds + sent_share(world) * size_bytes / link.bytes_per_second


def sent_share(world: int) -> float:
    """How much of what is added up each process of a ring sends: a part less than twice all of it."""
    return 2 * (world - 1) / world
