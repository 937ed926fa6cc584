"""The network is measured between real hosts, and a slow port, pair or host is named."""

import contextlib
import dataclasses
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stoker.dist import World
from stoker.doctor import flows, network
from stoker.doctor.network import PeerSpeed
from stoker.doctor.profile import LinkSpeed, Pair
from stoker.errors import Problem
from tests.whole import hosts
from tests.whole.hosts import Hosts

MBIT = 1e6 / 8
pytestmark = pytest.mark.alone
# A shell that starts the tests in the background has its children ignore Ctrl-C.
SERVE = (
    "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from stoker.doctor import network\nnetwork.serve(show=True, port={port})"
)
ASK = """
import dataclasses, json
from stoker.doctor import network
print(json.dumps(dataclasses.asdict(network.to_peer("h2", show=False, seconds=0.5))))
"""
UNDER_TORCHRUN = """
import dataclasses, json, torch
from stoker import dist
from stoker.doctor import network
torch.set_num_threads(1)
place = dist.world()
speed = network.among_processes(place, torch.device("cpu"), show=True)
dist.stop(place)
print(json.dumps(dataclasses.asdict(speed)))
"""


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Hosts]:
    """Two hosts; the second one serves."""
    with hosts.joined(2) as joined:
        server = joined.start(2, [sys.executable, "-c", SERVE.format(port=flows.PORT)])
        assert server.stderr is not None and "stoker doctor --peer h2" in server.stderr.readline()
        yield joined


@pytest.fixture
def own_server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server on this host, and its port."""
    port = free_port()
    words = [sys.executable, "-c", SERVE.format(port=port)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None and f"--peer {socket.gethostname()}:{port}" in server.stderr.readline()
        yield server, port
        server.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def ended(server: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a server after Ctrl-C, and what it said."""
    server.send_signal(signal.SIGINT)
    _, said = server.communicate(timeout=30)
    return server.returncode, said


def peer(rate_mbit: float, **changed: object) -> PeerSpeed:
    rate = rate_mbit * MBIT
    plain = PeerSpeed(
        host="h2", port=1, round_trip_seconds=1e-4, to_bytes_per_second=rate, from_bytes_per_second=rate,
        four_flows_to_bytes_per_second=rate, four_flows_from_bytes_per_second=rate,
        interface="eth0", interface_bytes_per_second=None,
    )  # fmt: skip
    return dataclasses.replace(plain, **changed)  # type: ignore[arg-type]


def among(rate_mbit: float, pairs: dict[str, float]) -> LinkSpeed:
    found = tuple(Pair(one=ends[0], other=ends[1], bytes_per_second=mbit * MBIT) for ends, mbit in pairs.items())
    return LinkSpeed(world=4, latency_seconds=1e-3, bytes_per_second=rate_mbit * MBIT, points=(), pairs=found)


@pytest.mark.parametrize(("label", "through", "level"), [(100, 95, "bad"), (1000, 948, "warn")])
def test_a_slow_port_to_another_host_is_measured_and_named(two_hosts: Hosts, label: int, through: float, level: str):
    two_hosts.rate(label)
    said, complained = two_hosts.start(1, [sys.executable, "-c", ASK]).communicate(timeout=60)
    speed = PeerSpeed(**json.loads(said or complained))
    assert speed.to_bytes_per_second / MBIT == pytest.approx(through, rel=0.1)
    assert speed.from_bytes_per_second / MBIT == pytest.approx(through, rel=0.1)
    assert speed.four_flows_to_bytes_per_second / MBIT == pytest.approx(through, rel=0.1)
    assert speed.four_flows_from_bytes_per_second / MBIT == pytest.approx(through, rel=0.1)
    assert speed.interface == hosts.INTERFACE and speed.interface_bytes_per_second is None, "no real port"
    (finding,) = network.found(speed)
    assert finding.level == level and finding.what.startswith(f"port limited to {label} Mbit/s: ")


def test_the_slow_port_is_named_under_torchrun_too(two_hosts: Hosts, tmp_path: Path):
    (tmp_path / "work.py").write_text(UNDER_TORCHRUN)
    two_hosts.rate(100)
    first, second = two_hosts.torchrun([str(tmp_path / "work.py")])
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout, "every process learns the same"
    assert (first.stderr + second.stderr).count("adding up over 2 processes") == 1
    values = json.loads(first.stdout)
    speed = LinkSpeed(**{**values, "pairs": tuple(Pair(**pair) for pair in values["pairs"])})
    assert speed.bytes_per_second / MBIT == pytest.approx(95, rel=0.1)
    (finding,) = network.found(speed)
    assert finding.level == "bad"
    assert finding.what.startswith("port limited to 100 Mbit/s: ")
    assert "between h1 and h2" in finding.what or "between h2 and h1" in finding.what


def test_one_process_has_no_link():
    assert network.among_processes(World(), None, show=True) is None  # type: ignore[arg-type]


def test_the_meaning_of_a_slow_port_is_told_in_seconds_of_a_step():
    (finding,) = network.found(peer(95.6))
    assert "95.6 Mbit/s to and from h2" in finding.what
    assert "gradients of ResNet-50 (102 MB) take 8.6 s a step" in finding.what
    assert finding.fix and "--compress powersgd" in finding.fix


@pytest.mark.parametrize(("mbit", "label"), [(9.4, 10), (949, 1000), (2350, 2500), (24_000, 25_000), (86, 100)])
def test_a_rate_just_below_a_label_is_that_port(mbit: float, label: int):
    assert network.port_mbit(mbit * MBIT) == label


@pytest.mark.parametrize("mbit", [84, 300, 103, 700])
def test_a_rate_between_the_labels_is_no_port(mbit: float):
    assert network.port_mbit(mbit * MBIT) is None
    (finding,) = network.found(peer(mbit))
    assert "port" not in finding.what and finding.level in ("warn", "bad")


def test_a_fast_link_is_well_and_its_port_is_told():
    (finding,) = network.found(peer(9_420))
    assert finding.level == "good" and finding.fix is None
    assert finding.what.startswith("9420 Mbit/s to and from h2") and "a port of 10 Gbit/s" in finding.what


def test_a_link_slower_than_its_interface_says_is_no_good():
    assert [f.level for f in network.found(peer(9_420, interface_bytes_per_second=10_000 * MBIT))] == ["good"]
    (finding,) = network.found(peer(9_420, interface_bytes_per_second=25_000 * MBIT))
    assert finding.level == "warn" and "although eth0 says 25 Gbit/s" in finding.what


def test_a_way_that_is_slow_in_one_direction_is_told():
    found = network.found(peer(940, from_bytes_per_second=95 * MBIT, four_flows_from_bytes_per_second=95 * MBIT))
    assert [f.level for f in found] == ["bad", "warn"]
    assert found[0].what.startswith("port limited to 100 Mbit/s")
    assert "940 Mbit/s get to h2, but 95 Mbit/s from it" in found[1].what


def test_a_cap_on_each_connection_is_told():
    found = network.found(peer(20_000, from_bytes_per_second=5_000 * MBIT))
    assert [f.level for f in found] == ["good", "warn"]
    assert found[1].what == "one connection gets only 25% of the 20 Gbit/s that 4 get from h2"


def test_processes_of_one_host_have_no_port():
    (finding,) = network.found(among(94_000, {}))
    assert finding.level == "good" and "port" not in finding.what


def test_the_host_that_is_slow_to_all_others_is_named_once():
    pairs = {"ab": 940, "ac": 930, "ad": 95, "bc": 950, "bd": 94, "cd": 96}
    everywhere, slow = network.found(among(95, pairs))
    assert "among 4 hosts" in everywhere.what
    assert slow.what == "d is slow to all others: 95 Mbit/s, where they have 940 Mbit/s"


def test_the_one_slow_pair_is_named_and_its_hosts_are_not():
    pairs = {"ab": 940, "ac": 930, "ad": 95, "bc": 950, "bd": 940, "cd": 960}
    _, slow = network.found(among(95, pairs))
    assert slow.what == "95 Mbit/s between a and d, where others have 940 Mbit/s"


def test_equal_pairs_are_not_named():
    assert len(network.found(among(95, {"ab": 95, "ac": 60, "bc": 95}))) == 1


def test_without_a_server_the_command_for_the_other_host_is_told():
    port = free_port()
    with pytest.raises(Problem, match=f"nothing serves at 127.0.0.1:{port}") as caught:
        network.to_peer(f"127.0.0.1:{port}", show=False)
    assert f"on 127.0.0.1, run `stoker doctor --serve --port {port}`" in caught.value.fix


def test_an_unknown_host_is_told():
    with pytest.raises(Problem, match=r"no host is known by the name nobody\.invalid"):
        network.to_peer("nobody.invalid", show=False)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not `stoker doctor --serve`: it said 'SSH-2.0-OpenSSH_9.2'"),
        (b"", "is not `stoker doctor --serve`: it said nothing"),
        (b"x" * 1000, "is not `stoker doctor --serve`: it said 'xxx"),
        (b"stoker-flows 2\n", "speaks version 2 of the protocol, and this host version 1"),
        (b"stoker-flows 1 busy\n", "serves another client now"),
    ],
)
def test_another_server_is_refused(answer: bytes, what: str):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak() -> None:
            connection, _ = listening.accept()
            # It may be gone before all is said.
            with connection, contextlib.suppress(OSError):
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1000)

        speaker = threading.Thread(target=speak)
        speaker.start()
        with pytest.raises(Problem) as caught:
            network.to_peer(f"127.0.0.1:{listening.getsockname()[1]}", show=False)
        speaker.join()
    assert what in caught.value.what


def test_a_server_outlives_strangers_and_serves_one_client_at_a_time(own_server: tuple[subprocess.Popen[str], int]):
    server, port = own_server
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n")
        assert stranger.makefile().read() == "stoker-flows 1\n"
    with socket.create_connection(("127.0.0.1", port)) as liar:
        liar.sendall(b"stoker-flows 1 number give seconds\n")
        assert liar.makefile().read() == "stoker-flows 1 ready\n"
    with (
        flows.connected(flows.Peer(host="127.0.0.1", port=port, number="mine"), "echo"),
        pytest.raises(Problem, match="serves another client now"),
    ):
        network.to_peer(f"127.0.0.1:{port}", show=False)
    assert ended(server) == (0, "ended\n"), "nothing of this was worth a word"


def test_the_server_ends_cleanly_and_a_client_is_told(own_server: tuple[subprocess.Popen[str], int]):
    server, port = own_server
    with flows.connected(flows.Peer(host="localhost", port=port, number="mine"), "echo") as held:
        assert flows.round_trip_seconds(held) > 0
        assert ended(server) == (0, "ended\n")
        with pytest.raises(OSError, match=r"closed|reset|pipe"):
            flows.round_trip_seconds(held)


def test_a_server_that_goes_away_in_between_is_told(monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object, **__: object) -> float:
        raise ConnectionResetError("it was closed")

    monkeypatch.setattr(flows, "connected", lambda peer, what: socket.socket())
    monkeypatch.setattr(flows, "round_trip_seconds", gone)
    with pytest.raises(Problem, match="the connection to h2:29333 broke: it was closed"):
        network.to_peer("h2", show=False)


def test_a_port_that_is_taken_is_told(own_server: tuple[subprocess.Popen[str], int]):
    _, port = own_server
    with pytest.raises(Problem, match=f"port {port} cannot be opened") as caught:
        network.serve(port=port, show=False)
    assert f"--port {port + 1}" in caught.value.fix


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("h2", "h2", 29333), ("h2:17", "h2", 17), ("fe80::1", "fe80::1", 29333), ("[::1]:17", "::1", 17)],
)
def test_an_address_is_a_host_and_perhaps_a_port(address: str, host: str, port: int):
    assert network.parsed(address) == (host, port)


@pytest.mark.parametrize("address", ["", ":17", "h2:port", "h2:70000", "http://h2", "h2/path", "me@h2"])
def test_a_bad_address_is_refused(address: str):
    with pytest.raises(Problem, match="is no address of a host"):
        network.parsed(address)


def test_the_interface_is_the_one_that_has_the_address():
    assert network.interface("127.0.0.1") == network.interface("::ffff:127.0.0.1") == "lo"
    assert network.interface("192.0.2.1") is None


@pytest.mark.parametrize(("said", "expected"), [(1000, 1000 * MBIT), (0, None), (-1, None), (65535, None)])
def test_what_an_interface_says_is_taken_only_where_it_can_know(
    said: int, expected: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        psutil, "net_if_stats", lambda: {name: SimpleNamespace(speed=said) for name in ("real", "veth")}
    )
    (tmp_path / "real" / "device").mkdir(parents=True)
    (tmp_path / "veth").mkdir()
    assert network.nominal("real", net=tmp_path) == expected
    assert network.nominal("veth", net=tmp_path) is None
    assert network.nominal("gone", net=tmp_path) is None
