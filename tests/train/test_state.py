"""A state is one value that goes to disk and comes back."""

import re
from pathlib import Path

import pytest
import torch
from torch.amp.grad_scaler import GradScaler

import stoker
from stoker import runs
from stoker.config import Config
from stoker.errors import Problem
from stoker.runs import Run
from stoker.train import checkpoint
from stoker.train import state as states
from stoker.train.state import Position, TrainState


def trained(optimizer: str = "sgd", *, width: int = 4, seed: int = 0) -> TrainState:
    """A small network after some steps."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, width, 3), torch.nn.BatchNorm2d(width))
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    made = kinds[optimizer](network.parameters(), lr=0.1, **({"momentum": 0.9} if optimizer == "sgd" else {}))
    for _ in range(3):
        network(torch.randn(2, 3, 8, 8)).square().mean().backward()
        made.step()
        made.zero_grad()
    at = Position(seed=7, epoch=2, position=32, step=9, best={"top1": 12.5}, line_sums=[0.1 + 0.2], model="small")
    return TrainState(network=network, optimizer=made, scaler=GradScaler("cpu", enabled=True), at=at)


@pytest.fixture
def run() -> Run:
    return runs.create(Path("run"), Config(), resumed_from=None)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_state_comes_back_bit_for_bit(optimizer: str) -> None:
    first, second = trained(optimizer, seed=1), trained(optimizer, seed=2)
    first.ema = {"0.weight": torch.randn(4, 3, 3, 3)}
    states.from_files(second, states.to_files(first), where="here")
    assert second.at == first.at
    assert states.to_files(second) == states.to_files(first)
    for state in (first, second):
        torch.manual_seed(0)
        state.network(torch.randn(2, 3, 8, 8)).square().mean().backward()
        state.optimizer.step()
    assert states.to_files(second) == states.to_files(first), "the optimiser did not remember"


def test_the_weights_of_another_network_are_refused_with_what_differs() -> None:
    with pytest.raises(Problem, match=r"holds small .*\n.*0.bias: \(4,\) -> \(8,\)"):
        states.from_files(trained(width=8), states.to_files(trained()), where="here")


def test_the_two_newest_the_best_and_the_named_checkpoints_stay(run: Run) -> None:
    state = trained()
    for step in (1, 2, 3, 4, 5):
        state.at.step = step
        states.save(run, state, ledger={})
        if step in (1, 2):
            checkpoint.point(run, {1: "best", 2: "epoch_1"}[step], step)
        checkpoint.prune(run)
    assert checkpoint.steps(run) == [5, 4, 2, 1]
    assert checkpoint.find(run, "latest") == checkpoint.find(run, "5") == checkpoint.folder(run, 5)
    assert checkpoint.find(run, "best") == checkpoint.folder(run, 1)
    with pytest.raises(Problem, match=r"no checkpoint epoch_9 .*steps: 5, 4, 2, 1"):
        checkpoint.find(run, "epoch_9")


def test_a_checkpoint_saved_again_takes_the_place_of_the_old_one(run: Run) -> None:
    state = trained()
    states.save(run, state, ledger={})
    state.at.position = 48
    states.save(run, state, ledger={})
    fresh = trained(seed=3)
    assert states.load_newest(run, fresh) == []
    assert fresh.at.position == 48
    assert [p.name for p in run.checkpoints.iterdir()] == ["00000009"]


def test_nothing_in_the_program_unpickles() -> None:
    for path in Path(stoker.__file__).parent.rglob("*.py"):
        found = re.findall(r"\bpickle\b|torch\.load\(", path.read_text())
        assert not found, f"{path} uses {found}"
