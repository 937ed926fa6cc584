"""A live page in a process of its own, as `stoker watch` starts it."""

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from stoker.watch import server
folder, port, token = sys.argv[1:]
server.serve(Path(folder), host="127.0.0.1", port=int(port), token=token or None, show=False)
"""
PATIENCE_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(folder: Path, port: int, *, token: str = "") -> "subprocess.Popen[bytes]":
    """A server that answers."""
    process = subprocess.Popen([sys.executable, "-c", CODE, str(folder), str(port), token])
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return process
        time.sleep(0.05)
    process.kill()
    process.wait()
    raise AssertionError("the server did not start")


@contextlib.contextmanager
def served(folder: Path, *, token: str = "") -> Iterator[str]:
    """The address of a live page of a folder."""
    port = free_port()
    process = started(folder, port, token=token)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that sends on is an answer."""

    def redirect_request(self, *_: object) -> None:  # type: ignore[override]
        """Stay."""


def ask(address: str, **headers: str) -> "tuple[int, dict[str, str], str]":
    """Status, headers and text of an answer."""
    request = urllib.request.Request(
        address, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode()
