"""Batch-norm statistics of a step of many atoms: each starts from the step's first ones; the changes are averaged.

One process that does all atoms, one after another, and many that do one each then arrive at the same statistics.
"""

import torch

from stoker import dist
from stoker.dist import World


class Statistics:
    """The buffers of a network, and what they were when the step began. Made once: walking a network takes time."""

    def __init__(self, network: torch.nn.Module) -> None:
        buffers = [b for b in network.buffers() if b.numel()]
        self.floats = [b for b in buffers if b.is_floating_point()]
        self.counts = [b for b in buffers if not b.is_floating_point()]
        self.first_floats = [b.clone() for b in self.floats]
        self.first_counts = [b.clone() for b in self.counts]
        self.changes = [torch.zeros_like(b) for b in self.floats]
        self.are_many = False

    def begin_step(self, *, atoms: int) -> None:
        """Remember the statistics that a step begins with."""
        self.are_many = atoms > 1
        copied(self.first_floats, self.floats)
        copied(self.first_counts, self.counts)
        if self.are_many and self.changes:
            torch._foreach_zero_(self.changes)

    def begin_atom(self) -> None:
        """Go back to the statistics that the step began with."""
        if self.are_many:
            self.restore()

    def end_atom(self, share: float) -> None:
        """Add this atom's part of the change."""
        if self.are_many and self.floats:
            change = torch._foreach_sub(self.floats, self.first_floats)
            torch._foreach_add_(self.changes, change, alpha=share)

    def end_step(self, world: World) -> None:
        """Take on the average change of all atoms of all processes."""
        if not self.are_many or not self.floats:
            return
        flat = torch.cat([change.reshape(-1) for change in self.changes])
        dist.add_up(flat, world)
        parts = torch.split(flat, [change.numel() for change in self.changes])
        for buffer, first, part in zip(self.floats, self.first_floats, parts, strict=True):
            buffer.copy_(first + part.view_as(first))

    def restore(self) -> None:
        """Bring the statistics back to what they were when the step began."""
        copied(self.floats, self.first_floats)
        copied(self.counts, self.first_counts)


def copied(dest: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    """Copy tensors into others, all at once."""
    if dest:
        with torch.no_grad():
            torch._foreach_copy_(dest, source)
