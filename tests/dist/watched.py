"""Pairs of processes of which one meets its fate, and what the other one makes of it: python watched.py FOLDER."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed

from stoker import dist
from stoker.dist import watch as watch_module
from tests.dist import forked

CPU = torch.device("cpu")
FOLDER = Path(sys.argv[-1])
STEPS = 8


def step(watch: dist.Watch, number: int) -> None:
    """A step that needs the other process, as training does."""
    watch.at(number, "data_wait")
    time.sleep(0.02)
    watch.at(number, "comm")
    torch.distributed.all_reduce(torch.ones(1))
    watch.at(number + 1, "logging")


def watched(name: str, then: Callable[[dist.Watch, int], None]) -> list[int]:
    """Two processes that take some steps, say so, and then do what this case is about."""

    def work(rank: int) -> None:
        torch.set_num_threads(1)
        place = dist.world()
        dist.start(place, CPU)
        with dist.Watch(place, CPU, events=FOLDER / f"{name}.events" if rank == 0 else None) as watch:
            for number in range(STEPS):
                step(watch, number)
            # The other one must have been seen alive before it can be missed.
            while not watch._seen:
                time.sleep(0.05)
            (FOLDER / f"{name}.{rank}.ready").touch()
            then(watch, rank)

    return forked.started(2, work, said=FOLDER / name)


def ready(name: str) -> None:
    while len(list(FOLDER.glob(f"{name}.*.ready"))) < 2:
        time.sleep(0.05)


def forever(watch: dist.Watch, phase: str) -> None:
    watch.at(STEPS, phase)
    while True:
        time.sleep(0.1)


def go_on(watch: dist.Watch, rank: int) -> None:
    """Train on, until a step fails because of the other process; its loss is told; then wait for the end."""
    agreement = dist.Agreement(dist.world(), count=1)
    try:
        for number in range(STEPS, 100_000):
            watch.at(number, "comm")
            agreement.tell([False])
            time.sleep(0.01)
    except dist.PeerLost as error:
        print("told:", dist.told(error), flush=True)
    forever(watch, "eval")


def evaluate(watch: dist.Watch, rank: int) -> None:
    """Nothing that needs the other process: nobody but the watch can notice."""
    forever(watch, "eval")


def hang(watch: dist.Watch, rank: int) -> None:
    """The second process gets no data any more, the first one waits for it."""
    if rank == 1:
        forever(watch, "data_wait")
    watch.at(STEPS, "comm")
    torch.distributed.all_reduce(torch.ones(1))


def dawdle(watch: dist.Watch, rank: int) -> None:
    """A long evaluation of the one, after the other has left in peace, is nothing to worry about."""
    if rank == 0:
        watch.at(STEPS, "eval")
        time.sleep(1.5 * watch_module.LOST_SECONDS)


def sleep(watch: dist.Watch, rank: int) -> None:
    """The machine sleeps for a while, with both processes in the middle of a step."""
    watch.at(STEPS, "data_wait")
    while not (FOLDER / "awake").exists():
        time.sleep(0.05)


def fail(watch: dist.Watch, rank: int) -> None:
    """The second process ends with an error but, as a process that still cleans up, keeps its connections."""
    if rank == 1:
        watch.__exit__(None, ValueError("the disk is full\nand more"), None)
        time.sleep(60)
    forever(watch, "eval")


CASES = {
    "killed": go_on, "stopped": evaluate, "first_stopped": evaluate, "stuck": hang, "fine": dawdle, "failed": fail,
    "slept": sleep,
}  # fmt: skip


def main() -> None:
    watch_module.BEAT_SECONDS = watch_module.LOOK_SECONDS = 0.2
    watch_module.LOST_SECONDS, watch_module.STUCK_SECONDS, watch_module.FAILED_SECONDS = 3.0, 4.5, 1.0
    running = {name: watched(name, then) for name, then in CASES.items()}
    for name in CASES:
        ready(name)
    os.kill(running["killed"][1], signal.SIGKILL)
    os.kill(running["stopped"][1], signal.SIGSTOP)
    os.kill(running["first_stopped"][0], signal.SIGSTOP)
    for process in running["slept"]:
        os.kill(process, signal.SIGSTOP)
    time.sleep(watch_module.STUCK_SECONDS + 1)
    for process in running["slept"]:
        os.kill(process, signal.SIGCONT)
    time.sleep(1)
    (FOLDER / "awake").touch()
    codes = {}
    for name, (first, second) in running.items():
        victim, other = (first, second) if name == "first_stopped" else (second, first)
        codes[name] = {"other": forked.exit_code(other)}
        if name in ("stopped", "first_stopped", "failed"):
            os.kill(victim, signal.SIGKILL)
        codes[name]["victim"] = forked.exit_code(victim)
    (FOLDER / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()
