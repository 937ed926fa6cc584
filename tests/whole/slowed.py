"""Two processes of a run, one of them slowed in every step; then a plan by both: python -m tests.whole.slowed FOLDER.

FOLDER holds the run. Leaves slept.json, the seconds that the slow process slept, and plan.json, what the first planned.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from stoker import api, dist, runs
from stoker.plan import asking, probing
from stoker.tasks.classify import Classify
from tests.dist import forked

SLEEP_SECONDS, SLOW = 0.1, 1


def slow_down(slept: list[float]) -> None:
    """Let every step take longer, as a slow core would."""
    loss = Classify.loss

    def slow(self: Any, network: Any, inputs: Any) -> Any:
        began = time.perf_counter()
        time.sleep(SLEEP_SECONDS)
        slept.append(time.perf_counter() - began)
        return loss(self, network, inputs)

    Classify.loss = slow  # type: ignore[method-assign]


def trained(rank: int) -> None:
    slept: list[float] = []
    if rank == SLOW:
        slow_down(slept)
    api.work(FOLDER / "run", show=False)
    if rank == SLOW:
        (FOLDER / "slept.json").write_text(json.dumps(slept))


def planned(rank: int) -> None:
    asking.SECONDS, probing.ALTERNATIVES = 0.3, {}
    found = api.plan(config=runs.read_config(runs.Run(FOLDER / "run")), show=False)
    dist.stop(dist.world())
    if rank == 0:
        (FOLDER / "plan.json").write_text(json.dumps(api.as_json(found)))


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    for work in (trained, planned):
        codes = [forked.exit_code(child) for child in forked.started(2, work, said=FOLDER / "said")]
        if any(codes):
            raise SystemExit("\n".join(path.read_text() for path in sorted(FOLDER.glob("said.*"))))
