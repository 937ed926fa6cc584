"""The scores of a network over all held-out samples, each counted once."""

import contextlib
from dataclasses import dataclass

import torch

from stoker import dist
from stoker.data import order
from stoker.data.sources import Dataset
from stoker.train import average, step
from stoker.train.step import Gear, Interrupted


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The sums and count of the scores over all processes, and how many samples could not be read."""

    sums: torch.Tensor
    bad: int
    unreadable: dict[str, str]
    """by place, with the reason; of this process's share"""


def evaluated(gear: Gear, data: Dataset, flags: dist.Agreement, *, batch: int, threads: int) -> Evaluation | None:
    """Evaluate the network, or the average of its weights; None where the run was asked to stop meanwhile."""
    task, state, site = gear.task, gear.state, gear.site
    world, device, count = site.world, site.device, len(data.held_out)
    plans = order.evaluation_plans(count, batch=batch, rank=world.rank, world=world.size)
    batches = task.batches(data.held_out, plans, seed=None, threads=threads, pin=device.type == "cuda")
    sums = torch.zeros(len(task.score_names) + 2, dtype=torch.float64, device=device)
    rounds = -(-count // (batch * world.size))
    state.network.eval()
    try:
        with contextlib.closing(batches), average.in_use(state):
            for _ in range(rounds):
                site.watch.at(state.at.step, "eval")
                if flags.tell((site.stop.by is not None, False))[0]:
                    return None
                try:
                    one = step.awaited(batches, site)
                except StopIteration:
                    continue  # another process has one batch more
                except Interrupted:
                    return None
                if len(one.labels):
                    sums[:-1] += task.score(state.network, task.moved(one, device))
            sums[-1] = len(batches.bad)
            places = {batches.index.place(sample): reason for sample, reason in batches.bad.items()}
    finally:
        step.set_training(gear)
    dist.add_up(sums, world)
    return Evaluation(sums=sums[:-1], bad=int(sums[-1]), unreadable=places)
