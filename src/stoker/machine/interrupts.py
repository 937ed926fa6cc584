"""Being asked to stop. A signal sets a flag; the loop sees it at the next step and saves before it goes."""

import os
import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Which signal asked this process to stop, if any. A second one gets the default treatment."""

    def __init__(self, *, show: bool = False) -> None:
        self.show = show
        self.by: str | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        try:
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        except ValueError:
            # Only the main thread may set handlers; a notebook's helper thread goes without.
            self._before = {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _: FrameType | None) -> None:
        self.by = signal.Signals(number).name
        if self.show:
            # Not print: a handler may have interrupted one.
            os.write(2, b"\nstopping after this step, then saving; the same signal again leaves at once\n")
        signal.signal(number, self._before[number])  # type: ignore[arg-type]
