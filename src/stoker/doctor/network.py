"""What the network does between the processes of a launcher, or between this host and another, and what that means."""

import ipaddress
import statistics
import urllib.parse
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from stoker import dist, progress, units
from stoker.dist import links
from stoker.doctor import flows
from stoker.doctor.flows import serve
from stoker.doctor.profile import LinkSpeed, Pair
from stoker.errors import Problem
from stoker.findings import Finding
from stoker.machine.links import Link, all_reduce_seconds

if TYPE_CHECKING:
    import torch

__all__ = ["PeerSpeed", "among_processes", "found", "serve", "to_peer"]

NET = Path("/sys/class/net")
MBIT = 1e6 / 8
PORTS_MBIT = (10, 100, 1000, 2500, 5000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000, 800_000)
PORT_SHARES = (0.85, 1.02)
"""of its label, which data gets through a port that is full: the rest is headers"""
UNKNOWN_MBIT = 65_535
"""what some drivers say when they do not know"""
NOMINAL_SHARE = 0.7
ONE_FLOW_SHARE, CAPPED_MBIT = 0.6, 100
"""Providers cap a connection where ports are fast; on slow ones, four take turns and their sum is noise."""
SLOW_SHARE = 0.5
MANY_FLOWS = 4
RESNET50_BYTES = 102_228_128
"""of its gradients: torchvision's resnet50 has 25,557,032 parameters"""
WARN_SECONDS, BAD_SECONDS = 0.25, 1.0
"""that an exchange of these may take: a step on a GPU takes about as long"""


@dataclass(frozen=True, kw_only=True)
class PeerSpeed:
    """What plain TCP does between this host and another."""

    host: str
    port: int
    round_trip_seconds: float
    to_bytes_per_second: float
    from_bytes_per_second: float
    four_flows_to_bytes_per_second: float
    four_flows_from_bytes_per_second: float
    interface: str | None
    """the way to the other host begins there"""
    interface_bytes_per_second: float | None
    """what it says it could do; None where it does not know"""


def among_processes(place: dist.World, device: "torch.device", *, show: bool) -> LinkSpeed | None:
    """What the links between all processes do; None for a single process. Every process calls it.

    Meets the other processes where that has not happened yet. The caller parts from them.
    """
    if place.size == 1:
        return None
    dist.start(place, device)
    progress.say(f"adding up over {place.size} processes", show=show and place.is_first)
    sweep = links.swept(place, device)
    pairs = links.pairs(place, device)
    return LinkSpeed(
        world=place.size,
        latency_seconds=sweep.link.latency_seconds,
        bytes_per_second=sweep.link.bytes_per_second,
        points=sweep.points,
        pairs=tuple(Pair(one=p.one, other=p.other, bytes_per_second=p.bytes_per_second) for p in pairs),
    )


def to_peer(address: str, *, show: bool, seconds: float = 1.0) -> PeerSpeed:
    """What TCP does between this host and one where `stoker doctor --serve` runs: HOST or HOST:PORT.

    Each of four measurements takes that many seconds: one connection and four, there and back.
    """
    host, port = parsed(address)
    peer, rates = flows.Peer(host=host, port=port, number=uuid.uuid4().hex), []
    # While this connection is open, the server serves nobody else.
    with flows.connected(peer, "echo") as held:
        try:
            round_trip = flows.round_trip_seconds(held)
            for count in (1, MANY_FLOWS):
                for what, way in (("take", "to"), ("give", "from")):
                    progress.say(f"{units.count_text(count, 'connection')} {way} {host}", show=show)
                    rates.append(flows.rate(peer, what, flows=count, seconds=seconds))
        except OSError as error:
            again = f"see that {flows.command(port)} still runs on {host}, and run this again"
            raise Problem(f"the connection to {host}:{port} broke: {error.strerror or error}", fix=again) from None
        name = interface(held.getsockname()[0])
    if not all(rates):
        raise Problem(f"nothing came through between here and {host} for {seconds:g} s", fix="see why, with `mtr`")
    return PeerSpeed(
        host=host,
        port=port,
        round_trip_seconds=round_trip,
        to_bytes_per_second=rates[0],
        from_bytes_per_second=rates[1],
        four_flows_to_bytes_per_second=rates[2],
        four_flows_from_bytes_per_second=rates[3],
        interface=name,
        interface_bytes_per_second=nominal(name) if name else None,
    )


def parsed(address: str) -> tuple[str, int]:
    """Host and port of "host", "host:port", "::1" or "[::1]:port"."""
    try:
        whole = f"[{address}]" if ":" in address and ipaddress.ip_address(address) else address
    except ValueError:
        whole = address
    try:
        parts = urllib.parse.urlsplit(f"//{whole}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.netloc != whole or "@" in whole:
        raise Problem(f"{address!r} is no address of a host", fix=f"give HOST or HOST:{flows.PORT}")
    return host, flows.PORT if port is None else port


def interface(own_address: str) -> str | None:
    """Which interface has an address of this host."""
    plain = own_address.split("%")[0].removeprefix("::ffff:")
    known = psutil.net_if_addrs().items()
    return next((name for name, has in known if plain in {one.address.split("%")[0] for one in has}), None)


def nominal(name: str, *, net: Path = NET) -> float | None:
    """Bytes per second that an interface says it could do; None where nothing real stands behind it."""
    # What is made of software alone (veth, tun) says 10 Gbit/s or anything else.
    if not (net / name / "device").exists() and not any((net / name).glob("lower_*")):
        return None
    stats = psutil.net_if_stats().get(name)
    return stats.speed * MBIT if stats and 0 < stats.speed < UNKNOWN_MBIT else None


def found(speed: LinkSpeed | PeerSpeed) -> tuple[Finding, ...]:
    """What is well and what is not with these links, and what it means for training."""
    return _of_peer(speed) if isinstance(speed, PeerSpeed) else _of_processes(speed)


def port_mbit(bytes_per_second: float) -> int | None:
    """The label of the port that would let just so much through; None if there is no such port."""
    least, most = PORT_SHARES
    return next((port for port in PORTS_MBIT if least <= bytes_per_second / (port * MBIT) <= most), None)


def _of_peer(speed: PeerSpeed) -> tuple[Finding, ...]:
    there = max(speed.to_bytes_per_second, speed.four_flows_to_bytes_per_second)
    back = max(speed.from_bytes_per_second, speed.four_flows_from_bytes_per_second)
    link = Link(latency_seconds=speed.round_trip_seconds, bytes_per_second=min(there, back))
    where = f"to and from {speed.host}, round trip {units.seconds_text(speed.round_trip_seconds)}"
    ports, said = [link.bytes_per_second], speed.interface_bytes_per_second
    results = [_about_rate(link, 2, where, ports=ports, name=speed.interface, said=said)]
    if min(there, back) < SLOW_SHARE * max(there, back):
        what = f"{_rate_text(there)} get to {speed.host}, but {_rate_text(back)} from it"
        fix = "see both ports with `ethtool`: one may run at half duplex, or be limited in one direction"
        results.append(Finding(level="warn", what=what, fix=fix))
    shares = {
        speed.to_bytes_per_second / there: f"the {_rate_text(there)} that {MANY_FLOWS} get to {speed.host}",
        speed.from_bytes_per_second / back: f"the {_rate_text(back)} that {MANY_FLOWS} get from {speed.host}",
    }
    if min(shares) < ONE_FLOW_SHARE and min(there, back) > CAPPED_MBIT * MBIT:
        what = f"one connection gets only {min(shares):.0%} of {shares[min(shares)]}"
        fix = f"let NCCL open more: NCCL_SOCKET_NTHREADS={MANY_FLOWS} NCCL_NSOCKS_PERTHREAD=2"
        results.append(Finding(level="warn", what=what, fix=f"{fix}; on AWS, use one placement group"))
    return tuple(results)


def _of_processes(speed: LinkSpeed) -> tuple[Finding, ...]:
    link = Link(latency_seconds=speed.latency_seconds, bytes_per_second=speed.bytes_per_second)
    latency = f"latency {units.seconds_text(speed.latency_seconds)}"
    if not speed.pairs:
        return (_about_rate(link, speed.world, f"among {speed.world} processes of one host, {latency}"),)
    hosts = {name for pair in speed.pairs for name in (pair.one, pair.other)}
    ports = [speed.bytes_per_second, statistics.median(pair.bytes_per_second for pair in speed.pairs)]
    where = f"between {_ends(speed.pairs[0])}" if len(hosts) == 2 else f"among {len(hosts)} hosts"
    return (_about_rate(link, speed.world, f"{where}, {latency}", ports=ports), *_slow(speed.pairs))


def _about_rate(
    link: Link,
    world: int,
    where: str,
    *,
    ports: Sequence[float] = (),
    name: str | None = None,
    said: float | None = None,
) -> Finding:
    """How fast a link is, which port that is, and what gradients take over it."""
    seconds = all_reduce_seconds(link, RESNET50_BYTES, world)
    meaning = f"gradients of ResNet-50 (102 MB) take {units.seconds_text(seconds)} a step over it"
    what = f"{_rate_text(link.bytes_per_second)} {where}"
    port = next((label for label in map(port_mbit, ports) if label is not None), None)
    is_short = said is not None and link.bytes_per_second < NOMINAL_SHARE * said
    if seconds <= WARN_SECONDS and not is_short:
        full = f", all that a port of {_rate_text(port * MBIT)} can do" if port is not None else ""
        return Finding(level="good", what=f"{what}{full}; {meaning}")
    if said is not None and is_short:
        what += f", although {name} says {_rate_text(said)}"
    if port is not None:
        what = f"port limited to {_rate_text(port * MBIT)}: {what}"
    fix = f"see `ethtool {name or 'INTERFACE'}` on both hosts, the cable, the switch and the plan you rent"
    if seconds > WARN_SECONDS:
        fix += "; until then send less with `--compress powersgd`, or less often with a larger batch"
    return Finding(level="bad" if seconds > BAD_SECONDS else "warn", what=f"{what}; {meaning}", fix=fix)


def _slow(pairs: Sequence[Pair]) -> list[Finding]:
    """Hosts that are slow in all they do, and other pairs that are, against the rest."""
    results, named = [], set()
    for host in sorted({name for pair in pairs for name in (pair.one, pair.other)}):
        own = [pair for pair in pairs if host in (pair.one, pair.other)]
        rest = [pair.bytes_per_second for pair in pairs if pair not in own]
        if len(own) > 1 and rest and all(p.bytes_per_second < SLOW_SHARE * statistics.median(rest) for p in own):
            rates = _rate_text(statistics.median(p.bytes_per_second for p in own))
            what = f"{host} is slow to all others: {rates}, where they have {_rate_text(statistics.median(rest))}"
            fix = f"see `ethtool` on {host}, its cable and its port; or train without it"
            results.append(Finding(level="bad", what=what, fix=fix))
            named |= set(own)
    for pair in pairs:
        rest = [other.bytes_per_second for other in pairs if other is not pair and other not in named]
        if pair not in named and rest and pair.bytes_per_second < SLOW_SHARE * statistics.median(rest):
            what = f"{_rate_text(pair.bytes_per_second)} between {_ends(pair)}, where others have"
            fix = f"see the way from {pair.one} to {pair.other} with `mtr`: what lies between them is slow"
            results.append(Finding(level="bad", what=f"{what} {_rate_text(statistics.median(rest))}", fix=fix))
    return results


def _ends(pair: Pair) -> str:
    """Both ends of a pair."""
    return f"{pair.one} and {pair.other}"


def _rate_text(bytes_per_second: float) -> str:
    """A rate as ports are labelled."""
    mbit = bytes_per_second / MBIT
    if mbit >= 9999.5:
        return f"{mbit / 1000:.3g} Gbit/s"
    return f"{mbit:.0f} Mbit/s" if mbit >= 100 else f"{mbit:.3g} Mbit/s"
