"""The links between processes are measured, and told apart by the names of their hosts."""

import json
from pathlib import Path
from typing import Any

import pytest

from stoker.dist import links
from stoker.doctor import network
from stoker.doctor.profile import LinkSpeed, Pair
from stoker.machine.links import Link, all_reduce_seconds
from tests.dist.conftest import run_module
from tests.whole import hosts

MIB = 2**20
SIZES = (4096, 65536, MIB, 16 * MIB)
pytestmark = pytest.mark.alone


def linked(folder: Path, keys: list[str]) -> list[dict[str, Any]]:
    """What each process got."""
    run_module("tests.dist.linked", folder, *keys)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize("world", [2, 3, 16])
@pytest.mark.parametrize(("latency", "rate"), [(3e-4, 12e6), (0.02, 5e9)])
def test_the_fit_finds_the_link_that_made_the_times(latency: float, rate: float, world: int):
    link = Link(latency_seconds=latency, bytes_per_second=rate)
    got = links.fitted([(size, all_reduce_seconds(link, size, world)) for size in SIZES], world)
    assert got.latency_seconds == pytest.approx(latency, rel=1e-6)
    assert got.bytes_per_second == pytest.approx(rate, rel=1e-6)


def test_a_link_that_lets_a_little_through_at_once_keeps_its_rate():
    # Measured over gloo on a link of 10 Mbit/s, whose first 256 KiB are free.
    got = links.fitted([(4096, 0.00084), (65536, 0.0548), (262144, 0.2184)], 2)
    assert got.latency_seconds == 0.00084
    assert got.bytes_per_second * 8 == pytest.approx(9.6e6, rel=0.06)


def test_times_that_do_not_grow_give_the_rate_of_the_fastest():
    got = links.fitted([(4096, 0.002), (65536, 0.001)], 2)
    assert got.latency_seconds > 0 and got.bytes_per_second == 65536 / 0.001


def test_one_size_alone_gives_a_rate():
    assert links.fitted([(3_000_000, 4.0)], 3) == Link(latency_seconds=0.0, bytes_per_second=1e6)


def test_one_process_exchanges_nothing():
    assert all_reduce_seconds(Link(latency_seconds=1.0, bytes_per_second=1.0), 1e9, 1) == 0


def test_each_pair_of_hosts_is_tried_once_by_its_first_processes():
    assert links.host_pairs(["a", "a", "b", "b", "c"]) == ((0, 2), (0, 4), (2, 4))
    assert links.host_pairs(["a", "a"]) == ()


def test_with_many_hosts_only_neighbours_are_tried():
    ring = links.host_pairs([f"h{number // 2}" for number in range(18)])
    assert len(ring) == 9 and ring[0] == (0, 2) and ring[-1] == (16, 0)


def test_all_processes_leave_the_sweep_at_the_same_size(tmp_path: Path):
    first, second = linked(tmp_path, [])
    assert first == second
    whole, cut_short = first["sweeps"]
    assert [size for size, _ in whole["points"]] == [4096, 65536, 1048576]
    assert [size for size, _ in cut_short["points"]] == [4096]
    assert all(seconds > 0 for _, seconds in whole["points"])
    assert first["pairs"] == [], "both are on one host"


def test_the_slow_host_among_three_is_slow_in_both_of_its_pairs(tmp_path: Path):
    with hosts.joined(3) as joined:
        joined.rate(200)
        joined.rate(20, host=3)
        found = linked(tmp_path, joined.keys())
    assert found[0] == found[1] == found[2]
    rates = {(pair["one"], pair["other"]): pair["bytes_per_second"] * 8e-6 for pair in found[0]["pairs"]}
    assert rates == {
        ("h1", "h2"): pytest.approx(191, rel=0.3),
        ("h1", "h3"): pytest.approx(19, rel=0.15),
        ("h2", "h3"): pytest.approx(19, rel=0.15),
    }
    pairs = tuple(Pair(**pair) for pair in found[0]["pairs"])
    (sweep,) = found[0]["sweeps"]
    speed = LinkSpeed(world=3, points=(), pairs=pairs, **sweep["link"])
    assert "h3 is slow to all others" in network.found(speed)[1].what
    assert sweep["link"]["bytes_per_second"] * 8e-6 == pytest.approx(19, rel=0.3), "a ring is as fast as its slowest"
