"""Being asked to stop. A signal or a notice sets a flag; the loop sees it at the next step and saves before it goes."""

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType

from stoker.machine import spot

# SLURM sends what `sbatch --signal` says, mostly one of the user signals (submitit takes SIGUSR2); then SIGTERM.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
STDERR = 2


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request to stop: by whom, and the time.monotonic() by which the machine goes away, where that is known."""

    by: str
    deadline: float | None


class StopRequest:
    """Who asked this process to stop, if anyone. The second time that a signal comes it gets the default treatment.

    With the address of a spot instance's metadata service, its notice is a request too; a thread waits for it.
    """

    def __init__(self, *, show: bool = False, spot_address: str | None = None) -> None:
        self.show = show
        self._service = None if spot_address is None else spot.Service(spot_address)
        # Only ever appended to, which needs no lock: a handler that waits for one held beneath it waits for ever.
        self._asked: list[Asked] = []
        self._before: dict[int, object] = {}
        self._over = threading.Event()

    def __enter__(self) -> "StopRequest":
        try:
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        except ValueError:
            # Only the main thread may set handlers; a notebook's helper thread goes without.
            self._before = {}
        if self._service is not None:
            threading.Thread(target=self._watch, args=(self._service,), name="spot notice", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # The thread is not waited for: it may be in the middle of a question, and then ends after a second.
        self._over.set()
        for number in self._before:
            self._restore(number)

    @property
    def by(self) -> str | None:
        """who asked first"""
        return self._asked[0].by if self._asked else None

    @property
    def deadline(self) -> float | None:
        """the time.monotonic() by which the machine goes away, the earliest that anyone named; None is unknown"""
        return min((asked.deadline for asked in self._asked if asked.deadline is not None), default=None)

    def seconds_left(self) -> float | None:
        """The time until the machine goes away; None where that is unknown."""
        deadline = self.deadline
        return None if deadline is None else left(deadline)

    def request(self, by: str, *, deadline: float | None = None) -> None:
        """Ask to stop. From any thread, and never waits."""
        self._add(Asked(by=by, deadline=deadline), "" if deadline is None else f"; {left(deadline):.0f} s are left")

    def _note(self, number: int, _: FrameType | None) -> None:
        self._restore(number)
        self._add(Asked(by=signal.Signals(number).name, deadline=None), "; the same signal again leaves at once")

    def _add(self, asked: Asked, rest: str) -> None:
        self._asked.append(asked)
        self._tell(f"\n{asked.by}: stopping after this step, then saving{rest}\n")

    def _restore(self, number: int) -> None:
        # None stands for a handler that Python did not set and can't put back.
        handler = self._before[number]
        signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]

    def _watch(self, service: spot.Service) -> None:
        notice = spot.awaited(service, over=self._over)
        if notice is not None and not self._over.is_set():
            self.request(f"spot notice ({notice.action})", deadline=notice.deadline)

    def _tell(self, text: str) -> None:
        """A line on stderr. Not print: a handler may have interrupted one. Nothing where a full pipe would wait."""
        if not self.show:
            return
        with contextlib.suppress(OSError):
            if select.select([], [STDERR], [], 0)[1]:
                os.write(STDERR, text.encode())


def left(deadline: float) -> float:
    """The seconds until a deadline; 0 where it is past."""
    return max(0.0, deadline - time.monotonic())
