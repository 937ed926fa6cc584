"""The notice that AWS gives before it takes a spot instance back, read from the machine's own metadata service.

Only the second version of the service (IMDSv2) is spoken: a token first, then the question. The first version is
switched off on new machines, and every machine that has it has the second one too.
"""

import contextlib
import datetime
import http.client
import json
import threading
import time
import urllib.parse
from dataclasses import dataclass

from stoker.errors import Problem

ADDRESS = "http://169.254.169.254"
# AWS asks for a look every five seconds; a notice comes two minutes ahead.
POLL_SECONDS = 2.0
TIMEOUT_SECONDS = 1.0
# Where so many first attempts find no service, this is no AWS machine.
ATTEMPTS = 2
# The longest life that the service gives a token.
TOKEN_LIFE_SECONDS = 21_600
# More than any answer of the service has.
MOST_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What happens to this machine, and when."""

    action: str  # "terminate", "stop", "hibernate", or what AWS thinks of next
    deadline: float | None  # by time.monotonic(); None where the notice has no time that can be read


class Service:
    """The metadata service of this machine, which may not be there."""

    def __init__(self, address: str) -> None:
        try:
            place = urllib.parse.urlsplit(address if "//" in address else f"//{address}")
            host, port = place.hostname or "", place.port or 80
        except ValueError:
            host, port = "", 0
        if not host:
            raise Problem(
                f"{address!r} is no address of a metadata service",
                fix=f"see AWS_EC2_METADATA_SERVICE_ENDPOINT; on AWS it is {ADDRESS}",
            )
        self.host, self.port = host, port
        self.was_there = False
        """whether it ever gave a token"""
        self._token: str | None = None

    def notice(self) -> Notice | None:
        """The notice, if there is one. Raises OSError, HTTPException or ValueError where the answer is none."""
        for _ in range(2):
            if self._token is None:
                self._token = self._new_token()
            status, body = self._answer("GET", "/latest/meta-data/spot/instance-action", token=self._token)
            if status != 401:
                return parsed(body) if status == 200 else None
            self._token = None  # it has expired: ask for another, once
        return None

    def _new_token(self) -> str:
        status, body = self._answer("PUT", "/latest/api/token", life_seconds=TOKEN_LIFE_SECONDS)
        if status != 200:
            raise ValueError(f"the token request was answered with {status}")
        self.was_there = True
        return body.decode("ascii").strip()

    def _answer(
        self, method: str, path: str, *, token: str | None = None, life_seconds: int | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one exchange. http.client knows no proxy, and none could answer for this machine."""
        headers = {} if token is None else {"X-aws-ec2-metadata-token": token}
        if life_seconds is not None:
            headers["X-aws-ec2-metadata-token-ttl-seconds"] = str(life_seconds)
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(MOST_BYTES)


def awaited(service: Service, *, over: threading.Event) -> Notice | None:
    """Wait for the notice. None when `over` is set first, or where the first attempts find no service."""
    attempts = 0
    while not over.is_set():
        # A service that was there once may fail for a while: it is asked for ever.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            notice = service.notice()
            if notice is not None:
                return notice
        attempts += 1
        if not service.was_there and attempts >= ATTEMPTS:
            return None
        over.wait(POLL_SECONDS)
    return None


def parsed(body: bytes) -> Notice | None:
    """An answer as a notice; None where it is none. An action that is not known is a notice all the same."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not isinstance(values.get("action"), str):
        return None
    try:
        at = datetime.datetime.fromisoformat(values["time"])
    except (KeyError, TypeError, ValueError):
        return Notice(action=values["action"], deadline=None)
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    # The wall clock may be set while the run goes on, the monotonic one may not.
    return Notice(action=values["action"], deadline=time.monotonic() + at.timestamp() - time.time())
