"""Plain TCP between two hosts: one serves, the other asks it to echo, to take bytes and to give some, and counts.

A connection begins with a line of the client: the version word, a number that it has drawn for all its connections,
what it wants, and for how many seconds. The server answers with the version word and "ready" or "busy".
"""

import contextlib
import os
import socket
import statistics
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stoker import progress, units
from stoker.errors import Problem

PORT = 29333
NAME, VERSION = "stoker-flows", "1"
LINE_BYTES = 200
CHUNK_BYTES = 64 * units.KIB
SILENCE_SECONDS = 10.0
"""after which the other side is given up"""
LONGEST_SECONDS = 10.0
"""that a server gives or takes bytes for"""
SETTLING_SHARE = 0.2
"""of a measurement, at its start, which does not count: the rate of a connection grows first"""
ROUND_TRIPS = 50


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Where a server is expected, and the number that tells it which connections are ours."""

    host: str
    port: int
    number: str


class Desk:
    """Who is served: all connections of one client, until its last one is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number, self._open = "", 0

    def admits(self, number: str) -> bool:
        """Whether a connection is let in; one that is must leave."""
        with self._lock:
            if self._open and number != self._number:
                return False
            self._number, self._open = number, self._open + 1
            return True

    def leave(self) -> None:
        """A connection is over."""
        with self._lock:
            self._open -= 1


def serve(*, port: int = PORT, show: bool) -> None:
    """Let other hosts measure the way to this one, one after another, until Ctrl-C."""
    # Both versions of IP where the system has both.
    both = socket.has_dualstack_ipv6()
    try:
        listening = socket.create_server(
            ("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both
        )
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Problem(f"port {port} cannot be opened: {reason}", fix=f"try {command(port + 1)}") from None
    desk, words = Desk(), f"stoker doctor --peer {socket.gethostname()}{'' if port == PORT else f':{port}'}"
    with listening:
        progress.say(f"ready on port {port}: on another host, run `{words}`; Ctrl-C ends this", show=show)
        try:
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=_answer, args=(connection, desk), daemon=True).start()
        except KeyboardInterrupt:
            progress.say("ended", show=show)


def command(port: int) -> str:
    """What to run on the other host."""
    return "`stoker doctor --serve`" if port == PORT else f"`stoker doctor --serve --port {port}`"


def connected(peer: Peer, what: str, *, seconds: float = 0.0) -> socket.socket:
    """A connection on which a server waits for what was asked for."""
    where, fix = f"{peer.host}:{peer.port}", f"on {peer.host}, run {command(peer.port)}; then run this again"
    try:
        connection = socket.create_connection((peer.host, peer.port), timeout=SILENCE_SECONDS)
    except socket.gaierror:
        raise Problem(f"no host is known by the name {peer.host}", fix="give its address instead") from None
    except ConnectionRefusedError:
        raise Problem(f"nothing serves at {where}", fix=fix) from None
    except OSError as error:
        firewall = f"see that a firewall lets port {peer.port} through, and {fix}"
        raise Problem(f"{where} cannot be reached: {error.strerror or error}", fix=firewall) from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.sendall(f"{NAME} {VERSION} {peer.number} {what} {seconds}\n".encode())
        _check(_line(connection), where)
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError):
            raise Problem(f"what is at {where} does not answer: {error.strerror or error}", fix=fix) from None
        raise
    return connection


def round_trip_seconds(connection: socket.socket) -> float:
    """How long a byte takes there and back; the median of some."""
    found = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        connection.sendall(b".")
        if not connection.recv(1):
            raise ConnectionResetError("it was closed")
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def rate(peer: Peer, what: str, *, flows: int, seconds: float) -> float:
    """Bytes per second that a server takes or gives on some connections together; 0 where nothing came through."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(flows) as pool:
        # All are open before one begins, so that they run at the same time.
        opened = [stack.enter_context(connected(peer, what, seconds=seconds)) for _ in range(flows)]
        side = _give if what == "take" else _take
        return sum(pool.map(lambda one: side(one, seconds), opened))


def _give(connection: socket.socket, seconds: float) -> float:
    """Send bytes for a time; the rate that the other side has seen."""
    send_for(connection, seconds)
    said = _line(connection)
    # What is still on its way would only delay what comes next: closing now throws it away.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if not said:
        raise ConnectionResetError("it was closed")
    return float(said)


def _take(connection: socket.socket, seconds: float) -> float:
    """Let the other side send; the rate at which it comes in."""
    connection.sendall(b".")
    return received_rate(connection, seconds)


def send_for(connection: socket.socket, seconds: float) -> None:
    """Send bytes for a time, and say that these were all."""
    # Random ones, because a tunnel that compresses would look faster than it is.
    data, until = os.urandom(CHUNK_BYTES), time.monotonic() + seconds
    while time.monotonic() < until:
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def received_rate(connection: socket.socket, seconds: float) -> float:
    """Bytes per second that come in, after the beginning and before the end of the time; 0 where none did."""
    buffer = bytearray(CHUNK_BYTES)
    count, first = 0, None
    began = ended = time.monotonic()
    while size := connection.recv_into(buffer):
        now = time.monotonic()
        first = now if first is None else first
        if now - first < SETTLING_SHARE * seconds:
            began = ended = now
        elif now - first <= seconds:
            count, ended = count + size, now
        else:
            break
    return count / (ended - began) if count else 0.0


def _answer(connection: socket.socket, desk: Desk) -> None:
    """Serve one connection. Whatever a stranger sends, it is closed and forgotten."""
    with connection, contextlib.suppress(OSError, ValueError):
        connection.settimeout(SILENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        words = _line(connection).split()
        if words[:2] != [NAME, VERSION] or len(words) != 5:
            # The word tells another version what is here; a stranger learns no more than that.
            connection.sendall(f"{NAME} {VERSION}\n".encode())
            return
        _, _, number, what, seconds = words
        if not desk.admits(number):
            connection.sendall(f"{NAME} {VERSION} busy\n".encode())
            return
        try:
            connection.sendall(f"{NAME} {VERSION} ready\n".encode())
            _do(connection, what, min(max(float(seconds), 0.0), LONGEST_SECONDS))
        finally:
            desk.leave()


def _do(connection: socket.socket, what: str, seconds: float) -> None:
    """What a client has asked for."""
    if what == "echo":
        # It lasts as long as all that the client measures meanwhile.
        connection.settimeout(12 * LONGEST_SECONDS)
        while said := connection.recv(1):
            connection.sendall(said)
    elif what == "take":
        connection.sendall(f"{received_rate(connection, seconds)}\n".encode())
        # To close it now, with bytes that nobody has read, could take the answer back.
        while connection.recv(CHUNK_BYTES):
            pass
    elif what == "give" and connection.recv(1):
        send_for(connection, seconds)


def _line(connection: socket.socket) -> str:
    """A line of the other side, or as much as came before it closed the connection or went on for too long."""
    said = b""
    while not said.endswith(b"\n") and len(said) < LINE_BYTES and (more := connection.recv(1)):
        said += more
    return said.decode(errors="replace").strip()


def _check(answer: str, where: str) -> None:
    """Refuse a server that does not speak as we do."""
    words = answer.split()
    if words[:1] != [NAME]:
        said = f"it said {answer[:60]!r}" if answer else "it said nothing"
        raise Problem(
            f"what is at {where} is not `stoker doctor --serve`: {said}",
            fix=f"serve on another port ({command(PORT + 1)}) and give it: --peer HOST:{PORT + 1}",
        )
    if words[1:] == [VERSION, "busy"]:
        raise Problem(f"{where} serves another client now", fix="run this again in some seconds")
    if words[1:] != [VERSION, "ready"]:
        raise Problem(
            f"{where} speaks version {' '.join(words[1:]) or '?'} of the protocol, and this host version {VERSION}",
            fix="install the same Stoker on both",
        )
