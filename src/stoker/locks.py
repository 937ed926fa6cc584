"""The lock of a run: who holds it trains. It dies with its process."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from stoker.errors import Problem

PATIENCE = 4


@contextlib.contextmanager
def held(lock: Path) -> Iterator[None]:
    """Keep a second process from training the same run. A kill lets go of it."""
    with open(lock, "ab") as file:
        for patience in range(PATIENCE, -1, -1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                # Somebody may only be looking whether it is held.
                if patience == 0:
                    raise Problem(
                        f"{lock.parent} is being trained by another process",
                        fix="wait for it, stop it, or give another name with --name",
                    ) from None
                time.sleep(0.05)
        yield


def is_held(lock: Path) -> bool:
    """Whether a process trains a run now. Needs no right to write."""
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False
