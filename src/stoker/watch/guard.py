"""Who may look at the live page: nobody from outside without the token, and no other site through a browser."""

import hashlib
import hmac
import ipaddress
import secrets
from typing import TYPE_CHECKING

from stoker.errors import Problem

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The token that is made here: one that was given is in the list of processes, for all on this machine to read.
MADE = "auto"
COOKIE = "stoker_token"
COOKIE_SECONDS = 30 * 24 * 3600
# A name that a browser was made to resolve to this machine is none of these.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")
HEADERS = {
    # Charts set the style of their parts; a script is only what this server sends.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
REFUSAL = """This page of runs asks for a token.

Open the address that `stoker watch` printed when it was started: it ends with ?token=...
If you came to it from another page, reload it.
A program sends the header  Authorization: Bearer TOKEN  instead.
"""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def made(token: str | None) -> str | None:
    """The token as it was given, or a new one where that was asked for."""
    return secrets.token_urlsafe(16) if token == MADE else token


def check(host: str, port: int, token: str | None) -> None:
    """Refuse to show runs to a network without a token."""
    if token is not None and len(token) < 8:
        raise Problem(
            f"a token of {len(token)} characters can be guessed",
            fix=f"let one be made: --token {MADE}",
        )
    if token is None and not is_loopback(host):
        raise Problem(
            f"on {host} anyone in the network could look at these runs",
            fix="leave --host out and look through a tunnel (on your own machine: "
            f"ssh -L {port}:127.0.0.1:{port} THIS-HOST), or ask for a token: --host {host} --token {MADE}",
        )


class Guard:
    """Lets requests with the token through to an app, and gives every answer its headers. Without a token, all pass."""

    def __init__(self, app: "ASGIApp", *, token: str | None) -> None:
        self.app, self.token = app, token
        # Cookies know no ports: pages with other tokens on the same machine keep their own.
        self.cookie = f"{COOKIE}_{hashlib.sha256((token or '').encode()).hexdigest()[:8]}"

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: "Message") -> None:
            if message["type"] == "http.response.start":
                given = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *given]}
            await send(message)

        from starlette.requests import Request

        refusal = self.refusal(Request(scope))
        await (refusal or self.app)(scope, receive, send_with_headers)

    def refusal(self, request: "Request") -> "Response | None":
        """The answer to a request that is not let through; None for one that is."""
        from starlette.responses import PlainTextResponse, RedirectResponse

        if self.token is None:
            return None
        if self.is_right(request.query_params.get("token", "")):
            # The token goes from the address into a cookie, so that it is not in the history or in a screenshot.
            moved = RedirectResponse("/", status_code=303)
            moved.set_cookie(
                self.cookie, self.token, max_age=COOKIE_SECONDS, httponly=True, samesite="strict",
                secure=request.url.scheme == "https",
            )  # fmt: skip
            return moved
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        kept = request.cookies.get(self.cookie, "")
        if self.is_right(kept) or (scheme.lower() == "bearer" and self.is_right(bearer.strip())):
            return None
        return PlainTextResponse(REFUSAL, status_code=401, headers={"WWW-Authenticate": "Bearer"})

    def is_right(self, given: str) -> bool:
        """Whether this is the token; how long the answer takes says nothing about it."""
        assert self.token is not None
        return hmac.compare_digest(given.encode(), self.token.encode())
