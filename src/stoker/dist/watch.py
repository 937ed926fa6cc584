"""Watching the other processes: one that is dead or stuck ends this one, with the reason, within a minute."""

import contextlib
import dataclasses
import datetime
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import runs
from stoker.dist.place import World
from stoker.errors import Problem
from stoker.records import Event

if TYPE_CHECKING:
    import torch

BEAT_SECONDS = 2.0
"""between two signs of life"""
LOOK_SECONDS = 1.0
"""between two looks at what has come in"""
LOST_SECONDS = 30.0
"""without a sign of life, after which a process counts as lost"""
STUCK_SECONDS = 45.0
"""without progress in a step, after which a process counts as stuck, unless its steps are long"""
STUCK_STEPS = 10
"""the longest steps that a process may stand still for, where that is more"""
FAILED_SECONDS = 10.0
"""for the others to end by themselves when one has ended with an error: mostly all meet the same one"""
WRITE_SECONDS = 5.0
"""for the last line of the events: the disk may be what is stuck"""
STOPPED = 75
"""exit code that says: start me again"""
# Others wait in comm for the one that is stuck. It counts as part of a step, but nobody is stuck in it himself.
STUCK_PHASES = frozenset({"data_wait", "transfer", "compute", "optimizer"})
STEP_PHASES = STUCK_PHASES | {"comm"}
GOODBYE = "goodbye"


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A sign of life, as it stands in the store that all processes share."""

    count: int
    """of signs of life, so that each differs from the one before"""
    name: str
    step: int
    phase: str
    still_seconds: float
    """that the training thread has not moved; 0 where it need not"""
    longest_seconds: float
    """of a step so far, the first one left out"""
    end: str = ""
    """how this process has ended: goodbye, or the error; empty while it runs"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The last sign of life of a process, and when it came in, by the clock of this one: those of others differ."""

    beat: Beat
    at: float


def reason_to_stop(seen: Mapping[int, Seen], *, answered_at: float, now: float) -> str | None:
    """Why there is no use in going on, if so. Silence counts only as long as the store answers."""
    if 0 in seen and seen[0].beat.end == GOODBYE:
        # The store may end with the first process, and then there is nothing left to go by.
        return None
    if now - answered_at >= LOST_SECONDS:
        return f"the machine of process 0, where the processes meet, has not answered for {now - answered_at:.0f} s"
    for one in seen.values():
        beat, silent_seconds = one.beat, answered_at - one.at
        if beat.end not in ("", GOODBYE) and silent_seconds >= FAILED_SECONDS:
            return f"{beat.name} has ended at step {beat.step}: {beat.end}"
        if not beat.end and silent_seconds >= LOST_SECONDS:
            last = f"(last: step {beat.step}, {beat.phase})"
            return f"{beat.name} has given no sign of life for {silent_seconds:.0f} s {last}"
    running = [one for one in seen.values() if not one.beat.end]
    limit = max([STUCK_SECONDS, *(STUCK_STEPS * one.beat.longest_seconds for one in running)])
    # Between two signs of life the seconds go on; without any, nothing is known of them.
    still = {
        one.beat.still_seconds + min(now - one.at, 2 * BEAT_SECONDS): one.beat
        for one in running
        if one.beat.still_seconds > 0
    }
    if still and (seconds := max(still)) >= limit:
        # The others wait for the one that stopped first, perhaps in a phase that does not look like waiting.
        beat = still[seconds]
        return f"{beat.name} has made no progress for {seconds:.0f} s (step {beat.step}, {beat.phase})"
    return None


class Watch:
    """Two threads beside training: one exchanges signs of life with the other processes, one judges them.

    Two, because the store may be what does not answer. With one process there are none.
    """

    def __init__(self, place: World, device: "torch.device", *, events: Path | None) -> None:
        self.place = place
        self.events = events
        gpu = f" ({device})" if device.type == "cuda" else ""
        self.name = f"process {place.rank} on {socket.gethostname()}{gpu}"
        self._now = (0, "setup", time.monotonic())
        self._has_finished_a_step = False
        self._longest_seconds = 0.0
        self._awake_since = self._answered_at = time.monotonic()
        self._seen: dict[int, Seen] = {}
        self._count = 0
        self._end = ""
        self._mine = self._beat()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._store: Any = None

    def __enter__(self) -> "Watch":
        if self.place.size > 1:
            from torch.distributed import distributed_c10d

            # A connection of its own: the training thread's may be waiting for something.
            shared: Any = distributed_c10d._get_default_store()
            self._store = shared.clone()
            self._store.set_timeout(datetime.timedelta(seconds=LOST_SECONDS))
            self._awake_since = self._answered_at = time.monotonic()
            self._threads = [threading.Thread(target=work, daemon=True) for work in (self._talk, self._judge)]
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._end = GOODBYE if error is None else (str(error).splitlines() or [""])[0] or type(error).__name__
        self._over.set()
        for thread in self._threads:
            # A store that does not answer must not keep a process that is through.
            thread.join(timeout=WRITE_SECONDS)

    def at(self, step: int, phase: str) -> None:
        """Note that the training thread has come to a phase, after so many finished steps. Costs next to nothing."""
        if step == self._now[0] + 1:
            self._has_finished_a_step = True
        self._now = (step, phase, time.monotonic())

    def _talk(self) -> None:
        """Give and take signs of life until the end, and say goodbye."""
        is_last = False
        while not is_last:
            is_last = self._over.is_set()
            # Without an answer the judge counts the seconds.
            with contextlib.suppress(RuntimeError):
                self._exchange()
            self._over.wait(BEAT_SECONDS)

    def _exchange(self) -> None:
        """Leave a sign of life in the store and take those of the others."""
        self._count += 1
        # How long it stands still is for the judge to say: only he knows whether this process has slept.
        step, phase, _ = self._now
        mine = dataclasses.replace(self._mine, count=self._count, step=step, phase=phase, end=self._end)
        self._store.set(key(self.place.rank), json.dumps(dataclasses.asdict(mine)))
        seen = dict(self._seen)
        others = [rank for rank in range(self.place.size) if rank != self.place.rank]
        # One that has not come to its watch yet has nothing there.
        there = [rank for rank in others if rank in seen or self._store.check([key(rank)])]
        found = self._store.multi_get([key(rank) for rank in there]) if there else []
        now = time.monotonic()
        for rank, text in zip(there, found, strict=True):
            beat = Beat(**json.loads(text))
            if rank not in seen or seen[rank].beat != beat:
                seen[rank] = Seen(beat=beat, at=now)
        # A new dict, because the judge may be looking at the old one.
        self._seen, self._answered_at = seen, now

    def _beat(self) -> Beat:
        """The sign of life of this moment."""
        step, phase, since = self._now
        is_judged = self._has_finished_a_step and phase in STUCK_PHASES
        still_seconds = time.monotonic() - max(since, self._awake_since) if is_judged else 0.0
        return Beat(
            count=0,
            name=self.name,
            step=step,
            phase=phase,
            still_seconds=still_seconds,
            longest_seconds=self._longest_seconds,
        )

    def _judge(self) -> None:
        """Look at the signs of life until the end, and end the process when there is a reason."""
        step, step_seconds, is_first, looked_at = -1, 0.0, True, time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            now = time.monotonic()
            elapsed, looked_at = now - looked_at, now
            if elapsed > LOOK_SECONDS + LOST_SECONDS / 6:
                # This process itself was held up: what it has not heard meanwhile says nothing about the others.
                self._awake_since = now
            at_step, phase, _ = self._now
            if at_step != step:
                if not is_first:
                    self._longest_seconds = max(self._longest_seconds, step_seconds)
                step, step_seconds, is_first = at_step, 0.0, not self._has_finished_a_step
            elif phase in STEP_PHASES:
                step_seconds += elapsed
            seen = {rank: dataclasses.replace(s, at=max(s.at, self._awake_since)) for rank, s in self._seen.items()}
            self._mine = self._beat()
            seen[self.place.rank] = Seen(beat=self._mine, at=now)
            reason = reason_to_stop(seen, answered_at=max(self._answered_at, self._awake_since), now=now)
            if reason is not None and not self._over.is_set():
                self._stop(reason)

    def _stop(self, reason: str) -> None:
        """End this process, whatever its training thread waits for."""
        text = f"{reason}; this process stops. The run is saved up to its last checkpoint: start the same command again"
        # Not print: another thread may hold its lock.
        os.write(2, f"\n{text}\n".encode())
        if self.events is not None:
            writer = threading.Thread(target=self._write_event, args=(text,), daemon=True)
            writer.start()
            writer.join(timeout=WRITE_SECONDS)
        # The others come to the same judgement. If this process went at once, they would see only broken connections.
        time.sleep(LOOK_SECONDS + 2 * BEAT_SECONDS)
        os._exit(STOPPED)

    def _write_event(self, text: str) -> None:
        """Enter the reason in the events of the run, as far as that is still possible."""
        with contextlib.suppress(OSError, Problem):
            assert self.events is not None
            runs.append_line(self.events, Event(at=time.time(), kind="peer_lost", what=text))


def key(rank: int) -> str:
    """Where a process leaves its signs of life."""
    return f"stoker/watch/{rank}"
