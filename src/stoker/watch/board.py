"""What those who look are told: values by key, each with the version at which it last changed."""

import json
import secrets
import threading
from dataclasses import dataclass
from typing import Any

from stoker import records

RUN, PART = "run", "part"


@dataclass(frozen=True, kw_only=True)
class News:
    """What changed since a version."""

    version: int
    """that who has been told this is at"""
    is_whole: bool
    """whether this is all there is, so that anything else is gone"""
    texts: dict[str, str | None]
    """values as JSON by key; None for what is gone"""


class Board:
    """Written by the one reader of files, read by any number of clients, from any thread."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)
        """of this board: versions of another, before a restart, say nothing here"""
        self.version = 0
        self._entries: dict[str, tuple[int, str | None]] = {}
        self._lock = threading.Lock()

    def put(self, key: str, value: Any) -> None:
        """Show a value. One that is as it was before is no news."""
        text = json.dumps(records.finite(value), separators=(",", ":"), allow_nan=False)
        self._set(key, text)

    def drop(self, prefix: str) -> None:
        """Show nothing any more under keys that begin like this."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            self._set(key, None)

    def _set(self, key: str, text: str | None) -> None:
        with self._lock:
            if self._entries.get(key, (0, None))[1] != text:
                self.version += 1
                self._entries[key] = self.version, text

    def since(self, seen: str, *, run: str) -> News:
        """What is new to someone who looks at a run and has seen so much: `mark` of earlier news, or nothing."""
        name, _, number = seen.partition(".")
        is_whole = name != self.name or not number.isdecimal()
        version = 0 if is_whole else int(number)
        with self._lock:
            texts = {
                key: text
                for key, (changed, text) in self._entries.items()
                if changed > version
                and key.startswith((f"{RUN}/", f"{PART}/{run}/"))
                and not (is_whole and text is None)
            }
            return News(version=self.version, is_whole=is_whole, texts=texts)

    def mark(self, news: News) -> str:
        """How much someone has seen who was told these news."""
        return f"{self.name}.{news.version}"
