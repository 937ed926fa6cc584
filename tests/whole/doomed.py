"""Trains a run and kills itself with SIGKILL at a named moment: python doomed.py RUN THREADS MOMENT COUNT.

A moment is a function; COUNT says at which of its calls the kill comes. "never" trains to the end.
"""

import dataclasses
import os
import signal
import sys
from pathlib import Path
from typing import Any

from stoker import api, runs, settings
from stoker.data.loader import Loader
from stoker.tasks.classify import Classify
from stoker.train import book, checkpoint, saving, step


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


# What each moment means. fsync number 2 of a checkpoint is that of its second file: the folder is half written.
MOMENTS = {
    "in-step": (step, "seed_torch", False),
    "after-update": (step, "take", True),
    "in-checkpoint-file": (os, "fsync", False),
    "before-checkpoint-rename": (os, "rename", False),
    "after-checkpoint-rename": (os, "rename", True),
    "before-pointer": (checkpoint, "point", False),
    "in-evaluation": (Classify, "score", False),
    "after-evaluation": (book.Book, "evaluation", True),
    "in-line": (runs, "append_line", True),
    "in-data": (Loader, "__next__", False),
    "after-restore": (saving, "restore", True),
}


if __name__ == "__main__":
    folder, threads, moment, count = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    run = runs.open_run(folder)
    config = settings.with_values(runs.read_config(run), {"threads": threads})
    assert dataclasses.asdict(config)["loader"]["threads"] == threads
    runs.create(folder, config, resumed_from=None)
    if moment != "never":
        owner, name, after = MOMENTS[moment]
        kill_at(owner, name, count, after=after)
    assert api.work(folder, show=False).record.status == "done"
