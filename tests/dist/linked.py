"""Processes that measure the links between them: python -m tests.dist.linked FOLDER [KEY OF A HOST]...

Without hosts there are two processes on this one, which allow each other different times. Each saves what it got.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path

import torch

from stoker import dist
from stoker.dist import links
from tests.dist import forked
from tests.whole import hosts

FOLDER, KEYS = Path(sys.argv[1]), sys.argv[2:]
CPU = torch.device("cpu")


def work(rank: int) -> None:
    torch.set_num_threads(1)
    if KEYS:
        hosts.enter(KEYS[rank])
        os.environ.update(MASTER_ADDR=hosts.address(1), GLOO_SOCKET_IFNAME=hosts.INTERFACE, LOCAL_RANK="0")
    place = dist.world()
    dist.start(place, CPU)
    if KEYS:
        sweeps = [links.swept(place, CPU, most_seconds=0.5)]
    else:
        # One process has all the time in the world, and the other has none.
        sizes = (4096, 65536, 1048576)
        sweeps = [links.swept(place, CPU, most_seconds=seconds[rank], sizes=sizes) for seconds in ((60, 60), (60, 0))]
    found = {"sweeps": sweeps, "pairs": links.pairs(place, CPU)}
    (FOLDER / f"{rank}.json").write_text(json.dumps(found, default=dataclasses.asdict))
    dist.stop(place)


if __name__ == "__main__":
    children = forked.started(len(KEYS) or 2, work, said=FOLDER / "said")
    codes = [forked.exit_code(child) for child in children]
    if any(codes):
        raise SystemExit("\n".join(path.read_text() for path in sorted(FOLDER.glob("said.*"))))
