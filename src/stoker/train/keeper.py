"""The one that writes a run's checkpoints: a thread beside training that does its jobs in the order they come."""

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import Self

from stoker import checkpoint, runs, units
from stoker.errors import Problem
from stoker.records import Event
from stoker.runs import Run
from stoker.train import mirror as mirrors
from stoker.train import state as states

# Snapshots that may be in memory at a time. Whoever brings one more waits.
MOST_SNAPSHOTS = 2
LEAST_SECONDS, MOST_SECONDS = 10.0, 3600.0


def interval_seconds(*, save_seconds: float, mtbf_hours: float, write_seconds: float | None = None) -> float:
    """The time between two checkpoints at which saving and redoing cost least together: sqrt(2 x MTBF x save).

    Young, "A first order approximation to the optimum checkpoint interval", 1974; Daly 2006. `save_seconds` is what a
    save takes from training; `write_seconds` what it takes beside training, and two of those must not overlap.
    """
    best = math.sqrt(2 * mtbf_hours * 3600 * save_seconds)
    return max(min(max(best, LEAST_SECONDS), MOST_SECONDS), 2 * (write_seconds or 0.0))


class Keeper:
    """Writes the checkpoints of a run. What fails is reported and survived, and costs no checkpoint that is whole."""

    def __init__(self, run: Run, *, keep_last: int, mirror: Path | None) -> None:
        self.run, self.keep_last, self.mirror = run, keep_last, mirror
        self.write_seconds: float | None = None
        """from taking up the last snapshot to its checkpoint on disk"""
        self.job_seconds: float | None = None
        """the same, with what comes after: removing old ones, and the mirror"""
        self._jobs: queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = queue.SimpleQueue()
        # A daemon: a disk that does not answer must not keep a process whose time is over.
        self.cpu_seconds = 0.0
        """that the writer has kept a core busy"""
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)
        self._is_late = False
        self._snapshots: deque[states.Snapshot] = deque()
        self._room = threading.Semaphore(MOST_SNAPSHOTS)
        self._written: set[int] = set()
        self._problems: deque[str] = deque()
        self._last: Problem | None = None
        self._bug: BaseException | None = None
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._jobs.put(None)
        if self._is_late:
            return
        # What was handed in is work, however training ended.
        self._thread.join()
        if error[0] is None:
            self._rethrow()

    def save(self, snapshot: "states.Snapshot", step: int, names: tuple[str, ...] = ()) -> None:
        """Hand in a snapshot to be written as the checkpoint of a step. Waits only where two are not written yet."""
        self._rethrow()
        self._room.acquire()
        self._snapshots.append(snapshot)
        self._submit(lambda: self._save(step, names))

    def name(self, step: int, name: str) -> None:
        """Point a name at a checkpoint, after the jobs before; nothing where it was not written."""
        self._submit(lambda: self._name(step, name))

    def remove_after(self, step: int) -> None:
        """Remove the checkpoints of all later steps, when training goes back to one. Returns when that is done."""
        self._submit(lambda: self._remove_after(step)).result()
        self._rethrow()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all that was handed in is on disk and in the mirror. A Problem where the last save failed.

        Where the time is too short, nobody waits for the rest from then on.
        """
        try:
            self._submit(lambda: None).result(seconds)
            self._is_late = False
        except TooLate:
            self._is_late = True
            raise Problem(
                f"{self.run.folder}: the last checkpoint was not written within {units.seconds_text(seconds or 0.0)}",
                fix="start the same command again: it goes on from the last whole checkpoint",
                goes_on=True,
            ) from None
        self._rethrow()
        if self._last is not None:
            raise self._last

    def problems(self) -> list[str]:
        """What went wrong since the last call."""
        return [self._problems.popleft() for _ in range(len(self._problems))]

    def _submit(self, job: Callable[[], None]) -> "Future[None]":
        done: Future[None] = Future()
        self._jobs.put((done, job))
        return done

    def _work(self) -> None:
        """Do the jobs in the order they come, until there are no more."""
        while (handed_in := self._jobs.get()) is not None:
            done, job = handed_in
            try:
                job()
            except BaseException as error:
                # What is no user's fault is kept for the training thread: it must not vanish with this one.
                self._bug = self._bug or error
            self.cpu_seconds = time.thread_time()
            done.set_result(None)

    def _rethrow(self) -> None:
        if self._bug is not None:
            raise self._bug

    def _save(self, step: int, names: tuple[str, ...]) -> None:
        began = time.perf_counter()
        try:
            self._write(step)
            self.write_seconds = time.perf_counter() - began
            for name in ("latest", *names):
                checkpoint.point(self.run, name, step)
            self._last = None
        except (Problem, OSError) as error:
            self._last = self._reported("not-saved", f"step {step} is not saved", error)
            return
        finally:
            # The snapshot is out of memory by now, however it went.
            self._room.release()
        try:
            checkpoint.prune(self.run, keep=self.keep_last, trusted=self._written)
            self.saved_steps = set(checkpoint.steps(self.run))
        except OSError as error:
            self._reported("not-removed", "old checkpoints are not removed", error)
        self._mirror(step)
        self.job_seconds = time.perf_counter() - began

    def _write(self, step: int) -> None:
        files = states.files_of(self._snapshots.popleft())
        # A checkpoint must never know of lines that a power cut could take away.
        runs.sync(self.run.metrics)
        size = sum(map(len, files.values()))
        checkpoint.make_room(self.run, size + checkpoint.SLACK_BYTES, trusted=self._written)
        try:
            checkpoint.write(self.run, step, files)
        except Problem:
            # The disk said it was full although space was left: a quota, say. Older checkpoints give way, if any can.
            older = checkpoint.spare(self.run, trusted=self._written)
            if not older:
                raise
            for old in older:
                checkpoint.remove(self.run, old)
            checkpoint.write(self.run, step, files)
        self._written.add(step)

    def _name(self, step: int, name: str) -> None:
        if checkpoint.folder(self.run, step).exists():
            try:
                checkpoint.point(self.run, name, step)
            except (Problem, OSError) as error:
                self._reported("not-saved", f"step {step} is not named {name}", error)
            else:
                self._mirror(None)

    def _remove_after(self, step: int) -> None:
        try:
            checkpoint.remove_after(self.run, step)
            if self.mirror is not None:
                mirrors.remove_after(self.run, self.mirror, step)
        except (Problem, OSError) as error:
            self._reported("not-removed", f"checkpoints after step {step} are not removed", error)

    def _mirror(self, step: int | None) -> None:
        if self.mirror is not None:
            try:
                mirrors.to_mirror(self.run, self.mirror, step, keep=self.keep_last)
            except (Problem, OSError) as error:
                self._reported("not-mirrored", "not mirrored" if step is None else f"step {step} not mirrored", error)

    def _reported(self, kind: str, what: str, error: Problem | OSError) -> Problem:
        """Enter what went wrong in the events and for the screen."""
        problem = error
        if not isinstance(problem, Problem):
            problem = Problem(f"{self.run.folder} can't be written: {error}", fix="see whether its disk is there")
        self._problems.append(f"{what}: {problem}")
        with contextlib.suppress(Problem, OSError):  # the events are on the same disk
            runs.append_line(self.run.events, Event(at=time.time(), kind=kind, what=f"{what}: {problem}"))
        return problem
