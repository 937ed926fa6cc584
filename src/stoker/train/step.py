"""One optimisation step: each atom forward and backward, then one update of the weights.

What a step does to the weights does not depend on how many processes share its atoms.
"""

from collections.abc import Iterator
from typing import Any

import torch

from stoker import dist
from stoker.data import random
from stoker.data.loader import Batch
from stoker.dist import World
from stoker.tasks import Task
from stoker.train.ledger import Ledger
from stoker.train.state import TrainState


def take(
    state: TrainState,
    *,
    model: Any,
    task: Task,
    batches: Iterator[Batch],
    atoms: int,
    rate: float,
    world: World,
    device: torch.device,
    ledger: Ledger,
    compute: str,
) -> torch.Tensor:
    """Take a step at a learning rate. Returns the sums and count of this process's scores."""
    mine = range(world.rank, atoms, world.size)
    statistics = Statistics(state.network, atoms=atoms)
    sums = torch.zeros(len(task.score_names) + 1, dtype=torch.float64, device=device)
    for atom in mine:
        with ledger.into("data_wait"):
            batch = next(batches)
        with ledger.into("transfer"):
            inputs = task.moved(batch, device)
        with ledger.into(compute), dist.quietly(model, last=atom == mine[-1]):
            seed_torch(state.at.seed, step=state.at.step, atom=atom, device=device)
            statistics.begin_atom()
            loss, scores = task.loss(model, inputs)
            # The gradients are divided by the number of processes; a share of the step must not be divided again.
            state.scaler.scale(loss * (batch.plan.share * world.size)).backward()
            statistics.end_atom(batch.plan.share)
            sums += scores
    with ledger.into("comm"):
        dist.average(model, world)
        statistics.end_step(world)
    with ledger.into("optimizer"):
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.optimizer.zero_grad(set_to_none=True)
    return sums


def seed_torch(seed: int, *, step: int, atom: int, device: torch.device) -> None:
    """Seed torch's own generators (dropout) for one atom."""
    low, high, _, _ = random.word_block(seed, epoch=atom, position=step, purpose=random.TORCH)
    drawn = (high << 32 | low) & (2**63 - 1)
    # torch.manual_seed would look for every kind of device there is, at ten times the cost.
    torch.default_generator.manual_seed(drawn)
    if device.type == "cuda":
        torch.cuda.manual_seed(drawn)


class Statistics:
    """Batch-norm statistics of a step of many atoms: each starts from the step's first ones; the changes are averaged.

    One process that does all atoms, one after another, and many that do one each then arrive at the same statistics.
    """

    def __init__(self, network: torch.nn.Module, *, atoms: int) -> None:
        buffers = list(network.buffers()) if atoms > 1 else []
        self.floats = [b for b in buffers if b.is_floating_point()]
        self.counts = [b for b in buffers if not b.is_floating_point()]
        self.first_floats = [b.clone() for b in self.floats]
        self.first_counts = [b.clone() for b in self.counts]
        self.changes = [torch.zeros_like(b) for b in self.floats]

    def begin_atom(self) -> None:
        """Go back to the statistics that the step began with."""
        if self.floats:
            torch._foreach_copy_(self.floats, self.first_floats)
        if self.counts:
            torch._foreach_copy_(self.counts, self.first_counts)

    def end_atom(self, share: float) -> None:
        """Add this atom's part of the change."""
        for change, now, first in zip(self.changes, self.floats, self.first_floats, strict=True):
            change.add_(now - first, alpha=share)

    def end_step(self, world: World) -> None:
        """Take on the average change of all atoms of all processes."""
        if not self.floats:
            return
        flat = torch.cat([change.reshape(-1) for change in self.changes])
        dist.add_up(flat, world)
        parts = torch.split(flat, [change.numel() for change in self.changes])
        for buffer, first, part in zip(self.floats, self.first_floats, parts, strict=True):
            buffer.copy_(first + part.view_as(first))
