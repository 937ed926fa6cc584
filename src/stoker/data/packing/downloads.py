"""Bytes over HTTP: a long file from front to back, however often the connection breaks, and many small ones."""

import http.client
import re
import socket
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from stoker import progress
from stoker.data.decode import Unreadable
from stoker.data.samples import LARGEST_BYTES
from stoker.errors import Problem

TIMEOUT_SECONDS = 60
# Between attempts that bring nothing; the first byte that comes begins them anew.
WAIT_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
# For one file of many: the others wait for it.
SHORT_WAIT_SECONDS = (0.5, 2.0, 8.0)
# Answers that may be another one a moment later.
PASSING = (408, 425, 429, 500, 502, 503, 504)
BROKEN = (OSError, http.client.HTTPException)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What tells a file on a server from a later file of the same name."""

    tag: str = ""
    modified: str = ""
    length: int | None = None

    def differs(self, other: "Mark") -> bool:
        """Whether two marks can't be those of one file. What one of them doesn't say proves nothing."""
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return any(mine and theirs and mine != theirs for mine, theirs in pairs)


class Download:
    """A file on a server, read from front to back. A connection that breaks is taken up again where it broke."""

    def __init__(self, url: str, *, at: int = 0, mark: Mark | None = None, show: bool = False) -> None:
        self.url, self.at = url, at
        self.mark, self.show = mark, show
        self.response: Any = None
        self.failures = 0

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; none at the end of the file."""
        while True:
            try:
                if self.response is None:
                    self.response = self.connected()
                piece: bytes = self.response.read(size)
            except BROKEN as error:
                self.wait(error)
                continue
            if piece:
                self.at += len(piece)
                self.failures = 0
                return piece
            length = self.mark.length if self.mark else None
            if length is None or self.at >= length:
                return b""
            self.wait(OSError("it ended early"))

    def connected(self) -> Any:
        """An answer whose next byte is the one wanted."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "stoker"}
        if self.at:
            headers["Range"] = f"bytes={self.at}-"
            if self.mark and (condition := self.mark.tag or self.mark.modified):
                headers["If-Range"] = condition
        try:
            response = urllib.request.urlopen(
                urllib.request.Request(self.url, headers=headers), timeout=TIMEOUT_SECONDS
            )
        except urllib.error.HTTPError as error:
            with error:
                refused(self.url, error)
        found = mark_of(response)
        if self.mark and self.mark.differs(found):
            response.close()
            raise Problem(
                f"{self.url} has changed since its first part was read",
                fix="delete the unfinished pack and pack the new file from the beginning",
            )
        self.mark = found
        if response.status != http.client.PARTIAL_CONTENT:
            # This server gives whole files only.
            skip(response, self.at)
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {self.at}-"):
            raise Problem(
                f"{self.url}: asked for bytes from {self.at}, the server gave {response.headers.get('Content-Range')}",
                fix="download the file with another program and pack it from the disk",
            )
        return response

    def wait(self, error: Exception) -> None:
        """Let go of a broken connection, and give the server time."""
        self.close()
        inner = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(inner, socket.gaierror) and self.at == 0:
            raise Problem(
                f"{self.url}: its server is not known by that name here: {reason(error)}",
                fix="check the address, and that this machine reaches the network",
            ) from None
        if self.failures == len(WAIT_SECONDS):
            raise Problem(
                f"{self.url} can't be read from byte {self.at} on, {self.failures + 1} times in a row: {reason(error)}",
                fix="when the server can be reached, run the same command again: it goes on with what it has",
            ) from None
        wait_seconds = WAIT_SECONDS[self.failures]
        progress.say(
            f"wait     {wait_seconds:g} s, then {self.url} again from byte {self.at:,} on: {reason(error)}",
            show=self.show,
        )
        time.sleep(wait_seconds)
        self.failures += 1

    def close(self) -> None:
        """Let go of the connection."""
        if self.response is not None:
            self.response.close()
            self.response = None


def mark_of(response: Any) -> Mark:
    """The mark that an answer carries."""
    headers = response.headers
    tag = headers.get("ETag", "")
    whole = re.fullmatch(r"bytes \d+-\d+/(\d+)", headers.get("Content-Range", ""))
    length = whole[1] if whole else headers.get("Content-Length")
    if response.status == http.client.PARTIAL_CONTENT and not whole:
        length = None
    return Mark(
        # A weak tag does not promise equal bytes.
        tag="" if tag.startswith("W/") else tag,
        modified=headers.get("Last-Modified", ""),
        length=int(length) if length else None,
    )


def skip(response: Any, count: int) -> None:
    """Read bytes and forget them."""
    while count:
        piece = response.read(min(count, 2**20))
        if not piece:
            raise OSError("it ended early")
        count -= len(piece)


def refused(url: str, error: urllib.error.HTTPError) -> NoReturn:
    """Raise what an answer that is no file means: a fault that passes, or one that does not."""
    if error.code in PASSING:
        raise OSError(f"the server answers {error.code} {error.reason}") from None
    raise Problem(f"{url}: the server answers {error.code} {error.reason}", fix="check the address") from None


def reason(error: BaseException) -> str:
    """Why a connection broke, in words."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(inner) or type(inner).__name__


def fetched(url: str) -> bytes:
    """One small file. Raises Unreadable when it can't be had after some attempts."""
    for wait_seconds in (*SHORT_WAIT_SECONDS, None):
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "stoker"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                raw: bytes = response.read(LARGEST_BYTES + 1)
                length = mark_of(response).length
            if len(raw) > LARGEST_BYTES:
                raise Unreadable("larger than 1 GiB")
            if length is None or len(raw) == length:
                return raw
            why = f"{len(raw)} of {length} bytes came"
        except urllib.error.HTTPError as error:
            with error:
                why = f"the server answers {error.code} {error.reason}"
            if error.code not in PASSING:
                break
        except (*BROKEN, ValueError) as error:
            why = reason(error)
        if wait_seconds is not None:
            time.sleep(wait_seconds)
    raise Unreadable(why)
