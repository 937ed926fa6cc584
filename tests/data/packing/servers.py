"""A real web server that misbehaves on demand."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Site:
    """What the server serves, and how. May be changed between requests."""

    files: dict[str, bytes]
    ranges: bool = True
    tag: str | None = '"one"'
    drops: list[int] = field(default_factory=list)
    """of each coming answer, the bytes after which the connection is dropped"""
    states: list[int] = field(default_factory=list)
    """of each coming answer, an error in its place; 0 is none"""
    has_length: bool = True
    asked: list[str] = field(default_factory=list)
    """the Range of each request; empty where it had none"""
    url: str = ""

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        wanted = handler.headers.get("Range", "")
        self.asked.append(wanted)
        state = self.states.pop(0) if self.states else 0
        body = self.files.get(handler.path.lstrip("/"))
        if state or body is None:
            handler.send_error(state or 404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if self.tag is not None and handler.headers.get("If-Range", self.tag) != self.tag:
            start = 0
        part = body[start:]
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.has_length:
            handler.send_header("Content-Length", str(len(part)))
        if self.tag is not None:
            handler.send_header("ETag", self.tag)
        handler.end_headers()
        with contextlib.suppress(ConnectionError):
            handler.wfile.write(part[: self.drops.pop(0) if self.drops else len(part)])


@contextlib.contextmanager
def served(site: Site) -> Iterator[Site]:
    """Serve a site on this machine for a while."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
