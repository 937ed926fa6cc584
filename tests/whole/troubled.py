"""Starts of runs that meet trouble on the way: python troubled.py STARTS.json, with lists of a start and a trouble."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stoker import checkpoint, dist
from stoker.machine.interrupts import StopRequest
from stoker.tasks.classify import Classify
from stoker.train import step

from . import doomed


def starve(*, most: int, rank: int) -> None:
    """Let memory end for atoms of more samples, in one process."""
    loss = Classify.loss

    def starved(self: Any, model: Any, inputs: Any) -> Any:
        if len(inputs.labels) > most and dist.world().rank == rank:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(self, model, inputs)

    Classify.loss = starved  # type: ignore[method-assign]


def before_update(act: Callable[[Any, float], None]) -> None:
    """Do something with the gear and the rate before each update of the weights."""
    update = step.update

    def acted(gear: Any, *, rate: float) -> None:
        act(gear, rate)
        update(gear, rate=rate)

    step.update = acted


def poison(*, at_step: int, above: float) -> None:
    """Let an update make numbers that are none, while the rate is above a limit."""

    def act(gear: Any, rate: float) -> None:
        if gear.state.at.step == at_step and rate > above:
            for parameter in gear.state.network.parameters():
                parameter.grad.fill_(torch.nan)

    before_update(act)


def interrupt(*, at_step: int, rank: int, number: int = signal.SIGTERM) -> None:
    """Send a signal to one process."""

    def act(gear: Any, _: float) -> None:
        if gear.state.at.step == at_step and gear.site.world.rank == rank:
            os.kill(os.getpid(), number)

    before_update(act)


def interrupt_twice(*, at_step: int) -> None:
    """Send the same signal again to a process whose step does not end."""

    def act(gear: Any, _: float) -> None:
        if gear.state.at.step == at_step:
            os.kill(os.getpid(), signal.SIGTERM)
            assert gear.site.stop.by == "SIGTERM"
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            threading.Event().wait()

    before_update(act)


def no_time(*, at_step: int) -> None:
    """Let the machine go away at once, and its disk be too slow for one more checkpoint."""
    write = checkpoint.write

    def slow(run: Any, saved: int, files: Any) -> Any:
        if saved > at_step:
            threading.Event().wait(600)
        return write(run, saved, files)

    def act(gear: Any, _: float) -> None:
        if gear.state.at.step == at_step:
            stop: StopRequest = gear.site.stop
            stop.request("spot notice (terminate)", deadline=time.monotonic() + 0.2)

    checkpoint.write = slow
    before_update(act)


TROUBLES: dict[str, Callable[..., None]] = {
    "memory": starve,
    "divergence": poison,
    "signal": interrupt,
    "two signals": interrupt_twice,
    "no time": no_time,
}


def started(*troubles: tuple[doomed.Start, str, dict[str, Any]]) -> list[list[int]]:
    """The exit codes of the processes of each start."""
    rows = [(dataclasses.asdict(one), name, how) for one, name, how in troubles]
    asked = Path(troubles[0][0].folder).absolute().parent / "starts.json"
    asked.write_text(json.dumps(rows))
    words = [sys.executable, "-m", "tests.whole.troubled", str(asked)]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=100)
    found = [json.loads(line.removeprefix("codes ")) for line in done.stdout.splitlines() if line.startswith("codes ")]
    assert len(found) == len(troubles), done.stderr[-3000:]
    return found


if __name__ == "__main__":
    begin = doomed.begin
    for values, name, how in json.loads(Path(sys.argv[1]).read_text()):

        def troubled(*args: Any, name: str = name, how: dict[str, Any] = how) -> None:
            if name:
                TROUBLES[name](**how)
            begin(*args)

        doomed.begin = troubled
        print(f"codes {json.dumps(doomed.carried_out(doomed.Start(**values)))}", flush=True)
