"""A metadata service as AWS machines have one, as far as spot notices go. It speaks IMDSv2."""

import contextlib
import datetime
import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN_PATH = "/latest/api/token"
NOTICE_PATH = "/latest/meta-data/spot/instance-action"


@dataclass(kw_only=True)
class Metadata:
    """What the service says, and how. May be changed between requests."""

    has_tokens: bool = True
    """without them it is the first version of the service, which answers every question at once"""
    delay_seconds: float = 0.0
    """time before each answer"""
    broken: int = 0
    """status of every answer, where it is not 0"""
    states: list[int] = field(default_factory=list)
    """of each coming answer, an error in its place; 0 is none"""
    body: bytes | None = None
    """the notice as it is sent; None where there is none"""
    address: str = ""
    asked: list[str] = field(default_factory=list)
    """each request's method and path, with the status of its answer"""
    tokens: set[str] = field(default_factory=set)
    is_over: threading.Event = field(default_factory=threading.Event)

    def notice(self, action: str, *, seconds: float) -> None:
        """Say from now on that this happens to the machine in so many seconds."""
        at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        # AWS gives whole seconds; the tests of the arithmetic need them finer.
        self.body = json.dumps({"action": action, "time": at.isoformat().replace("+00:00", "Z")}).encode()

    def expire_tokens(self) -> None:
        """Forget all tokens given so far."""
        self.tokens.clear()

    def count(self, method: str) -> int:
        """How many requests of a method have come."""
        return sum(line.startswith(method) for line in list(self.asked))

    def wait_for(self, method: str, count: int) -> None:
        """Wait until so many more requests of a method have come."""
        wanted, until = self.count(method) + count, time.monotonic() + 30
        while self.count(method) < wanted:
            assert time.monotonic() < until, f"no {method}, only {self.asked}"
            time.sleep(0.005)

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        """Status and body for a request."""
        state = self.states.pop(0) if self.states else self.broken
        if state:
            return state, b"broken"
        if handler.command == "PUT":
            if not self.has_tokens or handler.path != TOKEN_PATH:
                return 405, b""
            if not 1 <= int(handler.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0")) <= 21600:
                return 400, b""
            token = f"TOKEN{len(self.asked)}=="
            self.tokens.add(token)
            return 200, token.encode()
        if self.has_tokens and handler.headers.get("X-aws-ec2-metadata-token") not in self.tokens:
            return 401, b""
        if handler.path != NOTICE_PATH or self.body is None:
            return 404, b"<html>not found</html>"
        return 200, self.body


@contextlib.contextmanager
def served(**how: object) -> Iterator[Metadata]:
    """Serve metadata on a free port of this machine for a while."""
    metadata = Metadata(**how)  # type: ignore[arg-type]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            metadata.is_over.wait(metadata.delay_seconds)
            status, body = metadata.answer(self)
            metadata.asked.append(f"{self.command} {self.path} {status}")
            # Who waits no longer has closed the connection.
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        metadata.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield metadata
        finally:
            metadata.is_over.set()
            server.shutdown()
            thread.join()
