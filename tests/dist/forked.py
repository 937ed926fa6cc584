"""Starts processes that know of each other by the environment, as a launcher would, from one that has torch already."""

import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path


def started(size: int, work: Callable[[int], None], *, said: Path) -> list[int]:
    """Fork processes that do the work of their rank. What they say goes to a file each. Returns their ids."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            os.environ.update({name: str(value) for name, value in names.items()})
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            _work(rank, work, said.with_name(f"{said.name}.{rank}"))
        found.append(child)
    return found


def _work(rank: int, work: Callable[[int], None], said: Path) -> None:
    """Do the work and end, without the rest of the program that was forked."""
    handle = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    try:
        work(rank)
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_code(process: int) -> int:
    """Wait for a process; the number of the signal that killed it, below 0, or its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
