"""A state is one value that goes to disk and comes back."""

import re
from pathlib import Path

import pytest
import torch
from timm.optim.lamb import Lamb
from torch.amp.grad_scaler import GradScaler

import stoker
from stoker import checkpoint, runs
from stoker.config import Config
from stoker.dist import World
from stoker.errors import Problem
from stoker.runs import Run
from stoker.train import state as states
from stoker.train.state import Position, TrainState


def trained(optimizer: str = "sgd", *, width: int = 4, seed: int = 0) -> TrainState:
    """A small network after some steps."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, width, 3), torch.nn.BatchNorm2d(width))
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "lamb": Lamb}
    made = kinds[optimizer](network.parameters(), lr=0.1, **({"momentum": 0.9} if optimizer == "sgd" else {}))
    for _ in range(3):
        network(torch.randn(2, 3, 8, 8)).square().mean().backward()
        made.step()
        made.zero_grad()
    at = Position(seed=7, epoch=2, position=32, step=9, best={"top1": 12.5}, line_sums=[[0.1 + 0.2]], model="small")
    return TrainState(network=network, optimizer=made, scaler=GradScaler("cpu", enabled=True), at=at)


def files(state: TrainState) -> dict[str, bytes]:
    """A state as it is on disk."""
    return {name: bytes(data) for name, data in states.files_of(states.snapshot(state)).items()}


def save(run: Run, state: TrainState) -> None:
    checkpoint.write(run, state.at.step, states.files_of(states.snapshot(state)))
    checkpoint.point(run, "latest", state.at.step)


@pytest.fixture
def run() -> Run:
    return runs.create(Path("run"), Config(), resumed_from=None)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lamb"])
def test_a_state_comes_back_bit_for_bit(optimizer: str) -> None:
    first, second = trained(optimizer, seed=1), trained(optimizer, seed=2)
    first.ema, second.ema = ({name: torch.randn(4, 3, 3, 3) for name in ("0.weight",)} for _ in range(2))
    first.at.trend.loss, first.at.trend.rate_factor = 1.5, 0.25
    states.from_files(second, files(first), where="here")
    assert second.at == first.at
    assert files(second) == files(first)
    for state in (first, second):
        torch.manual_seed(0)
        state.network(torch.randn(2, 3, 8, 8)).square().mean().backward()
        state.optimizer.step()
    assert files(second) == files(first), "the optimiser did not remember"


def test_the_weights_of_another_network_are_refused_with_what_differs() -> None:
    with pytest.raises(Problem, match=r"holds small .*\n.*0.bias: \(4,\) -> \(8,\)"):
        states.from_files(trained(width=8), files(trained()), where="here")


def test_the_two_newest_the_best_and_the_named_checkpoints_stay(run: Run) -> None:
    state = trained()
    for step in (1, 2, 3, 4, 5):
        state.at.step = step
        save(run, state)
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
    save(run, state)
    state.at.position = 48
    save(run, state)
    fresh = trained(seed=3)
    assert states.load_newest(run, fresh) == []
    assert fresh.at.position == 48
    assert [p.name for p in run.checkpoints.iterdir()] == ["00000009"]


def test_the_newest_whole_checkpoint_up_to_a_step_is_taken(run: Run) -> None:
    state = trained()
    for state.at.step in (2, 4, 6):
        save(run, state)
    fresh = trained(seed=3)
    assert states.load_newest(run, fresh, at_most=5) == [] and fresh.at.step == 4
    (checkpoint.folder(run, 4) / checkpoint.MODEL).write_bytes(b"torn")
    (torn,) = states.load_newest(run, fresh, at_most=4)
    assert fresh.at.step == 2 and "00000004" in torn


def test_a_run_without_a_whole_checkpoint_up_to_a_step_is_refused_and_the_state_stays(run: Run) -> None:
    state = trained()
    for state.at.step in (3, 6):
        save(run, state)
    (checkpoint.folder(run, 3) / checkpoint.MODEL).write_bytes(b"torn")
    with pytest.raises(Problem, match=r"no whole checkpoint up to step 5.*00000003") as found:
        states.load_newest(run, state, at_most=5)
    assert "--name" in found.value.fix and not found.value.goes_on and state.at.step == 6


def test_nothing_in_the_program_unpickles() -> None:
    for path in Path(stoker.__file__).parent.rglob("*.py"):
        found = re.findall(r"\bpickle\b|torch\.load\((?!.*weights_only=True)", path.read_text())
        assert not found, f"{path} uses {found}"


def test_a_network_gets_the_average_where_there_is_one_and_its_own_weights_where_training_goes_on() -> None:
    state = trained()
    state.ema = {name: torch.zeros_like(tensor) for name, tensor in state.network.state_dict().items()}
    loaded = trained(seed=5).network
    states.load_weights(loaded, files(state), where="here")
    assert all(not tensor.any() for tensor in loaded.state_dict().values())
    states.load_weights(loaded, files(state), where="here", averaged=False)
    assert loaded.state_dict()["0.weight"].equal(state.network.state_dict()["0.weight"])


def test_a_run_that_begins_to_average_begins_with_the_weights_it_has() -> None:
    old, new = trained(), trained(seed=5)
    new.ema = {name: tensor.clone() for name, tensor in new.network.state_dict().items()}
    states.from_files(new, files(old), where="here")
    assert new.ema["0.weight"].equal(old.network.state_dict()["0.weight"])


def test_each_process_gets_its_own_sums_back_and_on_another_number_the_first_gets_all() -> None:
    at = Position(seed=0, line_sums=[[0.1, 1.0], [0.2, 2.0]])
    assert [states.sums_of(at, World(rank=rank, size=2), count=2) for rank in (0, 1)] == at.line_sums
    assert states.sums_of(at, World(), count=2) == [0.1 + 0.2, 3.0]
    assert [states.sums_of(at, World(rank=rank, size=3), count=2) for rank in (0, 2)] == [[0.1 + 0.2, 3.0], [0.0, 0.0]]
    assert states.sums_of(Position(seed=0), World(), count=2) == [0.0, 0.0]
