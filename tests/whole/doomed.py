"""Starts of runs that kill themselves with SIGKILL at a named moment: python doomed.py STARTS.json.

STARTS.json holds a list of starts (class Start), done one after another, each in freshly forked processes: libraries
are loaded once, so that a start costs a tenth of what a new Python would. Prints each start with its exit codes.
"""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker import api, checkpoint, records, runs, settings
from stoker.data.loader import Loader
from stoker.records import LedgerRow
from stoker.runs import Run
from stoker.tasks.classify import Classify
from stoker.train import book, keeper, loop, saving, start, step
from stoker.train import state as states

# Loaded once, for all starts; a machine may have no timm.
with contextlib.suppress(ImportError):
    import timm.layers

    assert timm.layers
# What each moment means. At the second file of a checkpoint its folder is half written.
MOMENTS = {
    "in-step": (step, "seed_torch", False),
    "after-gradients": (step, "gradients", True),
    "after-update": (step, "update", True),
    "in-checkpoint-file": (checkpoint, "write_file", False),
    "before-checkpoint-rename": (os, "rename", False),
    "after-checkpoint-rename": (os, "rename", True),
    "before-pointer": (checkpoint, "point", False),
    "in-snapshot": (states, "snapshot", False),
    "in-pruning": (checkpoint, "prune", False),
    "in-evaluation": (Classify, "score", False),
    "after-evaluation": (book.Book, "evaluation", True),
    "in-line": (runs, "append_line", True),
    "in-data": (Loader, "__next__", False),
    "after-restore": (saving, "restore", True),
    "at-new-gear": (step, "geared", False),
}
PATIENCE_SECONDS = 10
assert keeper and loop and start, "loaded once, for all starts"


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a run: in how many processes, and where it ends."""

    folder: str
    moment: str = "never"
    """never trains to the end; after is a time from the first line of its ledger on"""
    count: int = 1
    """at which call of the function the kill comes, or after how many milliseconds"""
    threads: int = 1
    processes: int = 1
    rank: int = 0
    """which process is killed"""


def kill_at(owner: Any, name: str, count: int, *, after: bool) -> None:
    """Let the count-th call of a function be the process's last."""
    original = getattr(owner, name)
    calls = [0]

    def doomed(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == count and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        value = original(*args, **kwargs)
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    setattr(owner, name, doomed)


def kill_at_epoch(epoch: int) -> None:
    """Let the first step of an epoch be the process's last."""
    original = step.gradients

    def doomed(gear: step.Gear, *args: Any, **kwargs: Any) -> Any:
        if gear.state.at.epoch == epoch and gear.state.at.position == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(gear, *args, **kwargs)

    step.gradients = doomed


def begin(one: Start, rank: int, port: int) -> None:
    """What a process of a start does. Does not return."""
    code = 1
    try:
        if one.processes > 1:
            places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": one.processes, "LOCAL_WORLD_SIZE": one.processes}
            os.environ.update({key: str(value) for key, value in places.items()})
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if one.moment == "at-epoch" and rank == one.rank:
            kill_at_epoch(one.count)
        elif one.moment not in ("never", "after") and rank == one.rank:
            owner, name, after = MOMENTS[one.moment]
            kill_at(owner, name, one.count, after=after)
        status = api.work(one.folder, show=False).record.status
        code = {"done": 0, "stopped": 75}.get(status, 3)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def kill_later(run: Run, child: int, *, milliseconds: int) -> None:
    """Kill a process from outside, some time after its first sign of life; it may get to its end before."""
    lines = len(records.read_lines(run.ledger, LedgerRow))
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if len(records.read_lines(run.ledger, LedgerRow)) > lines:
            time.sleep(milliseconds / 1000)
            os.kill(child, signal.SIGKILL)
            return
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def carried_out(one: Start) -> list[int]:
    """Make a start and wait for its end. A process that is killed takes the others with it."""
    run = runs.open_run(Path(one.folder))
    config = settings.with_values(runs.read_config(run), {"threads": one.threads})
    runs.create(run.folder, config, resumed_from=None)
    port, children = free_port(), []
    for rank in range(one.processes):
        child = os.fork()
        if child == 0:
            begin(one, rank, port)
        children.append(child)
    if one.moment == "after":
        kill_later(run, children[one.rank], milliseconds=one.count)
    return ends(children)


def ends(children: list[int]) -> list[int]:
    """The exit codes of processes. When one was killed, the others get some time to see it, as torchrun gives them."""
    codes: dict[int, int] = {}
    since = None
    while len(codes) < len(children):
        for child in [child for child in children if child not in codes]:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                codes[child] = os.waitstatus_to_exitcode(status)
                since = since or time.monotonic()
            elif since is not None and time.monotonic() - since > PATIENCE_SECONDS:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return [codes[child] for child in children]


if __name__ == "__main__":
    for values in json.loads(Path(sys.argv[1]).read_text()):
        start_of = Start(**values)
        print(json.dumps({**dataclasses.asdict(start_of), "codes": carried_out(start_of)}), flush=True)
