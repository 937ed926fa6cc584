"""The live page: one reader of files, any number of browsers, and news as they come (server-sent events)."""

import contextlib
import errno
import json
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from stoker import progress, runs
from stoker.errors import Problem
from stoker.report import look
from stoker.watch import guard
from stoker.watch.board import Board
from stoker.watch.feed import Feed

if TYPE_CHECKING:
    import anyio
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request

POLL_SECONDS = 1.0
# A silent stream is taken for dead by proxies and tunnels; and only a write finds out that nobody reads.
BREATH_SECONDS = 10.0
HERE = Path(__file__).parent
ASSETS = {
    "page.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "list.js": "text/javascript",
    "detail.js": "text/javascript",
    "charts.js": "text/javascript",
    "text.js": "text/javascript",
}
ID = re.compile("[0-9a-f]{12}")
MOST_STREAMS = 100
PORTS_TRIED = 100


class Hub:
    """Polls the feed while somebody looks, and wakes all who wait for news."""

    def __init__(self, folder: Path) -> None:
        self.board = Board()
        self.feed = Feed(folder, self.board)
        self.looking: Counter[str] = Counter()
        """how many look at each run, by its id; "" is for the list alone"""
        self.is_over = False
        self._tick: anyio.Event | None = None
        self._polled = 0.0

    async def watch(self) -> None:
        """Poll until it is over."""
        import anyio

        while not self.is_over:
            if self.looking and time.monotonic() - self._polled >= POLL_SECONDS:
                looked_at = frozenset(self.looking) - {""}
                await anyio.to_thread.run_sync(self.feed.poll, looked_at)
                self._polled = time.monotonic()
                self.wake()
            await anyio.sleep(0.1)
        self.wake()

    def wake(self) -> None:
        """Let all who wait look for news."""
        tick, self._tick = self._tick, None
        if tick is not None:
            tick.set()

    async def news(self, run: str, seen: str) -> AsyncIterator[str]:
        """What one client is told, for as long as it listens: all at first, then what changes."""
        import anyio

        self.looking[run] += 1
        # Who is new need not wait for the next round.
        self._polled = 0.0
        try:
            yield f"retry: 1000\nevent: hello\ndata: {json.dumps({'now': time.time(), 'board': self.board.name})}\n\n"
            told_at = time.monotonic()
            is_new = True
            while not self.is_over:
                if self._tick is None:
                    self._tick = anyio.Event()
                with anyio.move_on_after(BREATH_SECONDS):
                    await self._tick.wait()
                news = self.board.since(seen, run=run)
                if news.texts or (is_new and self.board.version):
                    is_new, seen, told_at = False, self.board.mark(news), time.monotonic()
                    yield message(seen, news.texts, is_whole=news.is_whole)
                elif time.monotonic() - told_at >= BREATH_SECONDS:
                    told_at = time.monotonic()
                    yield ": still here\n\n"
        finally:
            self.looking[run] -= 1
            self.looking += Counter()  # drops what nobody looks at


def message(mark: str, texts: dict[str, str | None], *, is_whole: bool) -> str:
    """News as one event. The values are JSON already, which holds no line break."""
    inner = ",".join(f"{json.dumps(key)}:{'null' if text is None else text}" for key, text in texts.items())
    data = f'{{"whole":{json.dumps(is_whole)},"now":{time.time()},"values":{{{inner}}}}}'
    return f"id: {mark}\nevent: news\ndata: {data}\n\n"


def app(hub: Hub, *, token: str | None, host: str) -> "Starlette":
    """The pages and the stream, behind their guard."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    async def page(request: "Request") -> Response:
        name = request.path_params.get("name", "page.html")
        if name not in ASSETS:
            return PlainTextResponse("there is no such page\n", status_code=404)
        text = (HERE / name).read_bytes()
        return Response(text, media_type=ASSETS[name], headers={"Cache-Control": "no-cache"})

    async def vega(_: "Request") -> Response:
        import anyio

        text = await anyio.to_thread.run_sync(look.script)
        headers = {"Cache-Control": "private, max-age=604800"}
        return Response(text, media_type="text/javascript", headers=headers)

    async def style(_: "Request") -> Response:
        return JSONResponse({"light": look.LIGHT, "dark": look.DARK, "buckets": look.COLOURS})

    async def events(request: "Request") -> Response:
        run = request.query_params.get("run", "")
        if hub.looking.total() >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open\n", status_code=503)
        stream = hub.news(run if ID.fullmatch(run) else "", request.headers.get("last-event-id", ""))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    guards = [Middleware(guard.Guard, token=token), Middleware(GZipMiddleware, minimum_size=4096)]
    if guard.is_loopback(host):
        guards.insert(1, Middleware(TrustedHostMiddleware, allowed_hosts=[*guard.LOOPBACK_NAMES, host]))
    routes = [Route("/", page), Route("/vega.js", vega), Route("/look.json", style), Route("/events", events)]
    return Starlette(routes=[*routes, Route("/{name}", page)], middleware=guards)


def serve(folder: Path, *, host: str, port: int, token: str | None, show: bool = True) -> None:
    """Show the runs under a folder to browsers, until Ctrl-C."""
    import anyio
    import uvicorn

    if not folder.is_dir() and folder != runs.ROOT:
        raise Problem(f"{folder} is no folder", fix=f"give the folder that holds the runs: stoker watch {runs.ROOT}")
    # A new token must be told: nobody could come in without it.
    token, show = guard.made(token), show or token == guard.MADE
    guard.check(host, port, token)
    with bound(host, port) as listening:
        hub = Hub(folder)
        config = uvicorn.Config(
            app(hub, token=token, host=host), log_level="critical", lifespan="off", server_header=False, ws="none",
            timeout_graceful_shutdown=2, access_log=False,
        )  # fmt: skip
        for line in greeting(folder, host=host, port=port, token=token):
            progress.say(line, show=show)
        with contextlib.suppress(KeyboardInterrupt):
            anyio.run(served, hub, uvicorn.Server(config), listening)


async def served(hub: Hub, server: "uvicorn.Server", listening: socket.socket) -> None:
    """Run the server beside the reader. Streams end by themselves, so that nothing keeps the server from ending."""
    import anyio

    async def end_streams() -> None:
        while not server.should_exit:
            await anyio.sleep(0.1)
        hub.is_over = True
        hub.wake()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hub.watch)
        tasks.start_soon(end_streams)
        await server.serve(sockets=[listening])
        hub.is_over = True
        tasks.cancel_scope.cancel()


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Where the port is taken, the next free one is named."""
    if not 0 < port < 65536:
        raise Problem(f"{port} is no port", fix="give one from 1024 to 65535: --port 8770")
    try:
        return listening_on(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = next_free(host, port)
            raise Problem(f"port {port} of {host} is taken", fix=f"give another: --port {free}") from None
        hint = "give a port above 1023" if error.errno == errno.EACCES else "give an address of this machine: --host"
        raise Problem(f"{host}:{port} can't be listened on: {error.strerror or error}", fix=hint) from None


def listening_on(host: str, port: int) -> socket.socket:
    """A socket of an address."""
    family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except BaseException:
        found.close()
        raise
    return found


def next_free(host: str, port: int) -> int:
    """The next port that nothing listens on."""
    for number in range(port + 1, min(port + PORTS_TRIED, 65536)):
        with contextlib.suppress(OSError):
            listening_on(host, number).close()
            return number
    with listening_on(host, 0) as found:
        return int(found.getsockname()[1])


def greeting(folder: Path, *, host: str, port: int, token: str | None) -> list[str]:
    """What to open, here and from elsewhere."""
    asked = f"?token={token}" if token else ""
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    name = socket.gethostname()
    said = [f"watch    {folder}", f"open     http://{name if host in ('0.0.0.0', '::') else shown}:{port}/{asked}"]
    if guard.is_loopback(host):
        to = "127.0.0.1" if host == "localhost" else shown
        here = "the same address" if to == "127.0.0.1" else f"http://127.0.0.1:{port}/{asked}"
        said.append(f"remote   on your own machine: ssh -L {port}:{to}:{port} {name}   and open {here}")
    return [*said, "end      Ctrl-C"]
