"""Some hosts on this machine, each with a name, a network and an address of its own, joined by a switch.

A host lives as long as one small process that holds its namespaces. That process ends with the tests, even where those
are killed, and takes the host's network along. So no name of ours is left behind, and many tests can run at once.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

INTERFACE = "veth0"
SWITCH = "switch"
ROOT = Path(__file__).parents[2]
NAMESPACES = ("--net", "--uts", "--mount")
BURST, QUEUE = "256kb", "100ms"
"""what a shaped port lets through at once, and how long it holds what has to wait"""
# Takes its name, puts a list of all hosts where names are looked up, and then waits for the end of its input.
HOLD = 'echo "$0" > /proc/sys/kernel/hostname && mount --bind "$1" /etc/hosts && echo ready && exec cat'
Started = subprocess.Popen[str]


def missing() -> str | None:
    """Why no hosts can be made here; None if they can."""
    if os.geteuid() != 0:
        return "only root can make hosts in network namespaces"
    lacking = [name for name in ("ip", "tc", "nsenter", "unshare") if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (Debian: iproute2 and util-linux)"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


def name(host: int) -> str:
    """What a host is called; the first is number 1."""
    return f"h{host}"


def address(host: int) -> str:
    """Where a host is found by the others."""
    return f"10.77.0.{host}"


class Hosts:
    """Hosts that can be worked on, and whose ports can be slowed down."""

    def __init__(self, holders: Mapping[int, Started]) -> None:
        self.numbers = tuple(holders)
        self._holders = holders
        self._started: list[Started] = []

    def rate(self, mbit: float | None, *, host: int | None = None) -> None:
        """Slow down what a host sends, or what all of them send; None takes the limit away."""
        for number in self.numbers if host is None else (host,):
            place = ["dev", INTERFACE, "root"]
            self._run(number, "tc", "qdisc", "replace", *place, "pfifo")
            if mbit is not None:
                shape = ["rate", f"{mbit}mbit", "burst", BURST, "latency", QUEUE]
                self._run(number, "tc", "qdisc", "replace", *place, "tbf", *shape)

    def start(self, host: int, words: Sequence[str], env: Mapping[str, str] | None = None) -> Started:
        """Start a program on a host, in the folder of this process; what it says is kept."""
        process = subprocess.Popen(
            [*_inside(self._holders[host]), "env", "-C", str(Path.cwd()), *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": INTERFACE, **(env or {})},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def torchrun(
        self, words: Sequence[str], processes: int = 1, *, env: Mapping[str, str] | None = None, timeout: float = 120
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run a Python program (its file, or -m and its module) in all hosts together, and wait for it."""
        launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", f"{len(self.numbers)}"]
        launch += ["--nproc-per-node", f"{processes}", "--rdzv-backend", "c10d", "--rdzv-id", "stoker"]
        agents = []
        for host in self.numbers:
            meeting = ["--rdzv-endpoint", f"{name(1)}:29400", "--local-addr", address(host)]
            agents.append(self.start(host, [*launch, *meeting, *words], {"OMP_NUM_THREADS": "1", **(env or {})}))
        try:
            # All are listened to at once: one whose pipe is full would keep the others waiting.
            with ThreadPoolExecutor(len(agents)) as pool:
                heard = list(pool.map(lambda agent: agent.communicate(timeout=timeout), agents))
        finally:
            for agent in agents:
                end(agent)
        return [
            subprocess.CompletedProcess(agent.args, agent.returncode, *both)
            for agent, both in zip(agents, heard, strict=True)
        ]

    def keys(self) -> list[str]:
        """What `enter` takes to go into each host."""
        return [str(holder.pid) for holder in self._holders.values()]

    def close(self) -> None:
        """End all that was started here, and then the hosts."""
        for process in self._started:
            end(process)
        for holder in self._holders.values():
            end(holder)

    def _run(self, host: int, *words: str) -> None:
        subprocess.run([*_inside(self._holders[host]), *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def joined(count: int = 2) -> Iterator[Hosts]:
    """Hosts h1, h2 ... in one network, until the end of the block; skips the test where they cannot be made."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    numbers = range(1, count + 1)
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "hosts"
        known.write_text("127.0.0.1 localhost\n" + "".join(f"{address(n)} {name(n)}\n" for n in numbers))
        with contextlib.ExitStack() as stack:
            holders = {number: _held(name(number), known, stack) for number in numbers}
            _join(_held(SWITCH, known, stack), holders)
            hosts = Hosts(holders)
            stack.callback(hosts.close)
            yield hosts


def enter(key: str) -> None:
    """Move this process, which must be a single thread, into the network of a host, and give it the host's name.

    A program that has imported torch once can so be forked into all hosts.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in ("net", "uts"):
        handle = os.open(f"/proc/{key}/ns/{namespace}", os.O_RDONLY)
        if libc.setns(handle, 0) != 0:
            raise OSError(ctypes.get_errno(), f"host {key} cannot be entered")
        os.close(handle)


def end(process: Started) -> None:
    """End a process that was started here, with all that it started itself, and let go of its pipes."""
    if process.poll() is None:
        found = psutil.Process(process.pid)
        for one in [*found.children(recursive=True), found]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _held(called: str, known: Path, stack: contextlib.ExitStack) -> Started:
    """A process that holds the namespaces of one host; the stack ends it."""
    words = ["unshare", *NAMESPACES, "sh", "-c", HOLD, called, str(known)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(end, holder)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n", f"host {called} could not be made"
    return holder


def _join(switch: Started, holders: Mapping[int, Started]) -> None:
    """Put a cable from each host into the switch."""
    cables = ["link add bridge type bridge", "link set bridge up"]
    for number, holder in holders.items():
        port = f"port{number}"
        cables += [f"link add {port} type veth peer name {INTERFACE} netns {holder.pid}"]
        cables += [f"link set {port} master bridge up"]
    _ip(switch, cables)
    for number, holder in holders.items():
        _ip(holder, [f"address add {address(number)}/24 dev {INTERFACE}", f"link set {INTERFACE} up", "link set lo up"])


def _ip(holder: Started, commands: Sequence[str]) -> None:
    """Carry out commands of `ip` in a host."""
    subprocess.run([*_inside(holder), "ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def _inside(holder: Started) -> list[str]:
    """The words that begin a command in a host."""
    return ["nsenter", "--target", str(holder.pid), *NAMESPACES, "--"]
