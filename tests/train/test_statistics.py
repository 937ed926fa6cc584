"""What a step does to batch-norm statistics does not depend on who computes its atoms."""

import torch

from stoker.dist import World
from stoker.train.statistics import Statistics


def test_statistics_of_two_atoms_are_the_average_of_each_from_the_same_start() -> None:
    torch.manual_seed(0)
    norm, alone = torch.nn.BatchNorm1d(3), [torch.nn.BatchNorm1d(3) for _ in range(2)]
    atoms, shares = [torch.randn(4, 3), torch.randn(8, 3) + 1], [1 / 3, 2 / 3]
    statistics = Statistics(norm)
    statistics.begin_step(atoms=2)
    for atom, share in zip(atoms, shares, strict=True):
        statistics.begin_atom()
        norm(atom)
        statistics.end_atom(share)
    statistics.end_step(World())
    for one, atom in zip(alone, atoms, strict=True):
        one(atom)
    expected = sum(share * one.running_var for one, share in zip(alone, shares, strict=True))  # type: ignore[operator]
    torch.testing.assert_close(norm.running_var, expected)
    assert norm.num_batches_tracked == 1


def test_a_buffer_that_no_atom_changes_keeps_its_bits() -> None:
    class Fixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.randn(100))

    network = Fixed()
    before = network.table.clone()  # type: ignore[operator, union-attr]
    statistics = Statistics(network)
    statistics.begin_step(atoms=3)
    for _ in range(3):
        statistics.begin_atom()
        statistics.end_atom(1 / 3)
    statistics.end_step(World())
    assert torch.equal(network.table, before)  # type: ignore[arg-type]


def test_a_step_that_is_given_up_leaves_the_statistics_as_they_were() -> None:
    norm = torch.nn.BatchNorm1d(3)
    norm(torch.randn(8, 3))
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    statistics = Statistics(norm)
    for atoms in (1, 2):
        statistics.begin_step(atoms=atoms)
        statistics.begin_atom()
        norm(torch.randn(4, 3))
        statistics.restore()
        assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())
