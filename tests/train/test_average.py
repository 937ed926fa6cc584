"""The average of the weights follows them, and takes their place for a while."""

import pytest
import torch
from torch.amp.grad_scaler import GradScaler

from stoker.train import average
from stoker.train.average import Average
from stoker.train.state import Position, TrainState


@pytest.fixture
def state() -> TrainState:
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    scaler = GradScaler("cpu", enabled=False)
    return TrainState(
        network=network, optimizer=optimizer, scaler=scaler, at=Position(seed=0), ema=average.begun(network)
    )


def test_the_average_is_the_exponential_mean_of_the_weights(state: TrainState) -> None:
    assert state.ema is not None
    follower, expected = Average(state, decay=0.5), state.network[0].weight.detach().clone()  # type: ignore[index]
    for step in range(100, 104):
        with torch.no_grad():
            state.network[0].weight.add_(torch.randn(2, 2))  # type: ignore[index]
        state.network(torch.randn(4, 2))
        follower.follow(step=step)
        expected = 0.5 * expected + 0.5 * state.network[0].weight.detach()  # type: ignore[index]
    torch.testing.assert_close(state.ema["0.weight"], expected)
    assert state.ema["1.num_batches_tracked"] == 4
    assert not torch.equal(state.ema["1.running_mean"], state.network.state_dict()["1.running_mean"])


def test_early_steps_weigh_more(state: TrainState) -> None:
    assert state.ema is not None
    first = state.ema["0.weight"].clone()
    with torch.no_grad():
        state.network[0].weight.add_(10.0)  # type: ignore[index]
    Average(state, decay=0.9999).follow(step=0)
    torch.testing.assert_close(state.ema["0.weight"], first + 9.0)


def test_the_network_has_the_average_for_a_while_and_then_its_own_weights_again(state: TrainState) -> None:
    own = {name: tensor.clone() for name, tensor in state.network.state_dict().items()}
    state.ema = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
    with average.in_use(state):
        assert not any(tensor.any() for tensor in state.network.state_dict().values())
    assert all(tensor.equal(own[name]) for name, tensor in state.network.state_dict().items())


def test_without_an_average_nothing_happens(state: TrainState) -> None:
    state.ema = None
    Average(state, decay=0.9).follow(step=1)
    with average.in_use(state):
        assert state.ema is None
