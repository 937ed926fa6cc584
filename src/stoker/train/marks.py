"""Marks in a GPU's stream of work: CUDA events, used again and again, looked at later and never waited for."""

import collections
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from stoker.train.ledger import Passed

# A bucket that the training thread was in for less than this is passed over: its mark becomes that of the next.
BRIEF_SECONDS = 30e-6
# Marks that are under way before they are looked at.
LOOK_AT = 256
# Steps after which the GPU is held back for a step, and how often after that.
FIRST_HELD, HELD_EVERY = 12, 1000
# Turns of a GPU's clock in a second, to sleep by; it need not be right.
CLOCK = 2_000_000_000
LONGEST_HOLD_SECONDS = 0.5
MOST_FAILURES = 3


WORK = ("transfer", "compute", "optimizer")


@dataclass(slots=True)
class Mark:
    """A place in the stream, and what the time after it is counted to."""

    event: torch.cuda.Event
    bucket: str
    at: float
    """when it was put there, by the host's clock"""
    is_held: bool
    """whether all work after it had come before the GPU began with it"""
    ends_step: bool = False


class Stream:
    """The marks of one process on its GPU. See stoker.train.ledger.Marks for what it promises."""

    def __init__(self, device: torch.device) -> None:
        # Kept: asking for it costs more than a mark. Backward passes run on the stream of their forward pass.
        self._stream = torch.cuda.current_stream(device)
        self.pure_seconds: float | None = None
        self.host_seconds = 0.0
        """what the training thread took for the last step's work"""
        self._marks: collections.deque[Mark] = collections.deque()
        self._counted: collections.deque[Passed] = collections.deque()
        self._free: list[torch.cuda.Event] = []
        self._until_held = FIRST_HELD
        self._step_at = time.perf_counter()
        self._patience = 2.0
        self._is_held = False
        self._held_seconds = 0.0
        self._failures = 0

    def enter(self, bucket: str) -> None:
        """Put a mark behind all work so far."""
        now = time.perf_counter()
        last = self._marks[-1] if self._marks else None
        if last is not None and last.bucket == "other" and not last.ends_step and now - last.at < BRIEF_SECONDS:
            last.bucket = bucket
            return
        if len(self._marks) >= LOOK_AT:
            self._look()
        self._put(bucket, now)

    def _put(self, bucket: str, now: float) -> None:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        self._marks.append(Mark(event=event, bucket=bucket, at=now, is_held=self._is_held))

    def _look(self) -> None:
        """Count the time between marks that the GPU has passed."""
        while len(self._marks) > 1 and self._marks[1].event.query():
            first, second = self._marks.popleft(), self._marks[0]
            seconds = first.event.elapsed_time(second.event) / 1000
            self._counted.append(Passed(bucket=first.bucket, seconds=seconds, ends_step=second.ends_step))
            self._free.append(first.event)
            if first.is_held and first.bucket in WORK:
                self._held_seconds += seconds
            if first.is_held and second.ends_step:
                self.pure_seconds, self._held_seconds = self._held_seconds, 0.0

    def passed(self) -> Iterator[Passed]:
        """What the GPU has gone through since the last call."""
        if len(self._marks) > 1 and self._marks[-2].event.query():
            # The GPU has nothing else to do: it is at the last mark in a moment.
            self._marks[-1].event.synchronize()
        self._look()
        while self._counted:
            yield self._counted.popleft()

    def begin_step(self) -> None:
        """Once in a while hold the GPU back until a step's work has come: then it waits for none of it."""
        self._step_at = now = time.perf_counter()
        if self._until_held > 0:
            self._until_held -= 1
            return
        self._until_held = HELD_EVERY
        self._put("other", now)
        torch.cuda._sleep(int(min(self._patience * self.host_seconds + 0.002, LONGEST_HOLD_SECONDS) * CLOCK))
        self._is_held = True
        self._put("other", now)

    def hold(self) -> None:
        """Hold the GPU back in the next step."""
        self._until_held = 0

    def end_step(self) -> None:
        """Say that the step ends at the last mark."""
        self._marks[-1].ends_step = True
        self.host_seconds = time.perf_counter() - self._step_at
        if not self._is_held:
            return
        self._is_held = False
        self._marks[-1].is_held = False
        if len(self._marks) > 1 and self._marks[-2].event.query():
            # The GPU is close behind, so it may have waited for work: this step says nothing. Hold it longer, soon.
            # Where that never helps, the training thread waits for the GPU within each step: then it is left alone.
            self._failures += 1
            self._release()
            self._patience *= 2
            self._until_held = FIRST_HELD if self._failures < MOST_FAILURES else HELD_EVERY

    def _release(self) -> None:
        """Take back what was said of a step that was held."""
        self._is_held, self._held_seconds = False, 0.0
        for mark in self._marks:
            mark.is_held = False

    def forget(self) -> None:
        """Steps are of another kind from here on: measure anew."""
        self._release()
        self.pure_seconds, self._until_held = None, FIRST_HELD
