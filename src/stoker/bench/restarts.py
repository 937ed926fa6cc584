"""Being stopped and going on, as it happens: a training process of its own, a SIGTERM, and the same command again."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker import checkpoint, progress, records
from stoker.bench.ground import Load
from stoker.bench.spread import Spread, spread
from stoker.errors import Problem
from stoker.records import LedgerRow
from stoker.runs import Run
from stoker.work import STOPPED

# Steps that a process takes before it is stopped.
STEPS = 2
GLANCE_SECONDS = 0.05
# A start takes some seconds. What takes this long will never end.
MOST_SECONDS = 300.0
OPERATIONAL = (
    "--epochs", "100", "--eval-epochs", "1000", "--checkpoint-epochs", "1000", "--checkpoint-minutes", "100000",
    "--log-steps", "1", "--peak-lr", "0.001",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """How long stopping and going on take, in seconds."""

    saved: Spread
    """from SIGTERM to a whole checkpoint on disk, under the name latest"""
    ended: Spread
    """from SIGTERM to the end of the process"""
    resumed: Spread
    """from the start of a process to the end of the first step that it goes on with"""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """One start of a run that was stopped after some steps."""

    first_step_seconds: float
    saved_seconds: float
    ended_seconds: float


def measured(load: Load, folder: Path, *, rounds: int, show: bool) -> Restarts:
    """Start a run, stop it, and then go on with it and stop it again, round after round."""
    run, found = Run(folder / "run"), []
    for number in range(rounds + 1):
        what = "begins a run" if number == 0 else f"goes on, {number} of {rounds}"
        progress.say(f"a process {what}, and is stopped", show=show)
        found.append(stopped(load, run, number=number + 1))
    again = found[1:]
    return Restarts(
        saved=spread(one.saved_seconds for one in again),
        ended=spread(one.ended_seconds for one in again),
        resumed=spread(one.first_step_seconds for one in again),
    )


def stopped(load: Load, run: Run, *, number: int) -> Stop:
    """One start of a run, the first or a later one, up to its end by SIGTERM."""
    started_at = time.time()
    with process(load, run) as child:
        rows = awaited(child, run, number=number)
        asked_at = time.time()
        child.send_signal(signal.SIGTERM)
        code = child.wait(MOST_SECONDS)
        ended_at = time.time()
    pointer = run.pointer("latest")
    step = checkpoint.pointed_step(pointer) or 0
    if code != STOPPED or step <= rows[0].step:
        raise failed(run, f"ended with exit code {code} at step {step}")
    checkpoint.verify(checkpoint.folder(run, step))
    return Stop(
        first_step_seconds=rows[0].at - started_at,
        saved_seconds=pointer.stat().st_mtime - asked_at,
        ended_seconds=ended_at - asked_at,
    )


@contextlib.contextmanager
def process(load: Load, run: Run) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that trains a run on the built-in dataset. It does not outlive the block."""
    flags = {name: str(value) for name, value in vars(load).items()} | {
        "data": f"dials:{max(256, 2 * load.batch)}x64", "cache": str(run.folder.parent / "data"),
        "name": str(run.folder.absolute()),
    }  # fmt: skip
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    with open(log(run), "wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "stoker", "train", *words, *OPERATIONAL], stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield child
        finally:
            child.kill()
            child.wait()


def awaited(child: "subprocess.Popen[bytes]", run: Run, *, number: int) -> list[LedgerRow]:
    """Wait until a start of a run has taken its steps; returns what the ledger says of each."""
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until and child.poll() is None:
        rows = records.read_lines(run.ledger, LedgerRow) if run.ledger.exists() else []
        taken = [row for row in rows if row.attempt == number and row.steps]
        if len(taken) >= STEPS:
            return taken
        time.sleep(GLANCE_SECONDS)
    raise failed(run, "ended" if child.poll() is not None else f"took no {STEPS} steps in {MOST_SECONDS:.0f} s")


def log(run: Run) -> Path:
    """What the processes of a run say."""
    return run.folder.with_suffix(".log")


def failed(run: Run, what: str) -> Problem:
    """What to say about a process that did not do as it should: its own last words."""
    said = log(run).read_text(errors="replace").strip()[-1000:]
    return Problem(f"a training process {what} and said:\n{said}", fix="see that this run works: stoker train")
