"""An exponential average of the weights over the steps of a run: often better than the weights themselves."""

import contextlib
from collections.abc import Iterator

import torch

from stoker.train.state import TrainState


def begun(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The average before the first step: the weights."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


class Average:
    """Moves the average of a state along, where it keeps one."""

    def __init__(self, state: TrainState, *, decay: float) -> None:
        self.decay = decay
        pairs = list(zip(state.ema.values(), state.network.state_dict().values())) if state.ema is not None else []
        self.floats = [(a, b) for a, b in pairs if a.is_floating_point()]
        self.counts = [(a, b) for a, b in pairs if not a.is_floating_point()]

    def follow(self, *, step: int) -> None:
        """Take in the weights after a step. Early steps weigh more, or the first weights would stay in it for long."""
        if not self.floats:
            return
        # As tf.train.ExponentialMovingAverage does with num_updates.
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_([a for a, _ in self.floats], [b for _, b in self.floats], 1 - decay)
            for average, now in self.counts:
                average.copy_(now)


@contextlib.contextmanager
def in_use(state: TrainState) -> Iterator[None]:
    """Let the network have its average for a while, where there is one."""
    if state.ema is None:
        yield
        return
    own = [tensor.detach() for tensor in state.network.state_dict().values()]
    kept = [tensor.clone() for tensor in own]
    try:
        with torch.no_grad():
            for tensor, average in zip(own, state.ema.values(), strict=True):
                tensor.copy_(average)
        yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(own, kept, strict=True):
                tensor.copy_(before)
