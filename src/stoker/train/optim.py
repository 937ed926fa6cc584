"""The optimiser, and the learning rate as a pure function of the step."""

import bisect
import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

import torch

from stoker.config import OptimConfig

# Batch size that `lr` is given for (Goyal et al., "Accurate, large minibatch SGD", 2017).
BASE_BATCH = 256
# torch's OneCycleLR: the rate begins at 1/25 of the peak and ends at 1/10,000 of the beginning.
CYCLE_START, CYCLE_END = 1 / 25, 1 / 250_000
CYCLE_RISE = 0.3


def peak_rate(config: OptimConfig, *, batch: int) -> float:
    """The highest rate of a run: `lr` scaled from 256 samples to the batch."""
    times = batch / BASE_BATCH
    return config.lr * (times if config.optimizer == "sgd" else math.sqrt(times))


def rate(config: OptimConfig, *, step: int, steps_an_epoch: int, epochs: int, batch: int) -> float:
    """The learning rate of a step."""
    peak = peak_rate(config, batch=batch)
    whole = steps_an_epoch * epochs
    rise = round(config.warmup_epochs * steps_an_epoch)
    if config.schedule == "onecycle":
        return peak * one_cycle(step, rise=rise or round(CYCLE_RISE * whole), whole=whole)
    if step < rise:
        return peak * (step + 1) / rise
    if config.schedule == "constant":
        return peak
    if config.schedule == "step":
        return peak * config.drop_factor ** bisect.bisect_right(sorted(config.drop_epochs), step // steps_an_epoch)
    return peak * half_cosine((step - rise) / max(1, whole - rise))


@dataclass(frozen=True)
class Rates:
    """The learning rates of one run."""

    config: OptimConfig
    _: KW_ONLY
    steps_an_epoch: int
    epochs: int
    batch: int

    def at(self, step: int) -> float:
        """The rate of a step."""
        return rate(self.config, step=step, steps_an_epoch=self.steps_an_epoch, epochs=self.epochs, batch=self.batch)


def half_cosine(share: float) -> float:
    """From 1 at share 0 to 0 at share 1."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def one_cycle(step: int, *, rise: int, whole: int) -> float:
    """Up along half a cosine and down along another, as torch's OneCycleLR does by default."""
    top = max(1, rise) - 1
    if step <= top:
        return 1 - (1 - CYCLE_START) * half_cosine(step / top if top else 1.0)
    return CYCLE_END + (1 - CYCLE_END) * half_cosine((step - top) / max(1, whole - 1 - top))


def optimizer(config: OptimConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser of the settings. Its rate is set at every step."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )
