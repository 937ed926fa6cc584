"""The learning rate as a pure function of the settings and the place in the run. Knows no torch, so reports use it."""

import bisect
import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from stoker.config import OptimConfig

if TYPE_CHECKING:
    from stoker.data.order import Route

# Batch size that `lr` is given for (Goyal et al., "Accurate, large minibatch SGD", 2017).
BASE_BATCH = 256
# torch's OneCycleLR: the rate begins at 1/25 of the peak and ends at 1/10,000 of the beginning.
CYCLE_START, CYCLE_END = 1 / 25, 1 / 250_000
CYCLE_RISE = 0.3


def is_linear(config: OptimConfig) -> bool:
    """Whether the rate grows with the batch itself; if not, with its square root."""
    return config.optimizer in ("sgd", "lars")


def rule_rate(config: OptimConfig, *, batch: int, lr: float | None = None) -> float:
    """The highest rate of a run by the rule: `lr` scaled from 256 samples to the batch."""
    times = batch / BASE_BATCH
    return (lr or config.lr) * (times if is_linear(config) else math.sqrt(times))


def peak_rate(config: OptimConfig, *, batch: int, fixed: float | None = None) -> float:
    """The highest rate of a stage: as it was fixed, or by the rule."""
    return fixed or config.peak_lr or rule_rate(config, batch=batch)


def rise_steps(config: OptimConfig, *, steps_an_epoch: int, epochs: int) -> int:
    """Steps over which the rate rises to its peak."""
    rise = round(config.warmup_epochs * steps_an_epoch)
    return rise or round(CYCLE_RISE * steps_an_epoch * epochs) if config.schedule == "onecycle" else rise


def shape(config: OptimConfig, *, tick: float, steps_an_epoch: int, epochs: int) -> float:
    """The share of the peak rate at a place in the run, `tick` steps from its beginning."""
    whole = steps_an_epoch * epochs
    rise = rise_steps(config, steps_an_epoch=steps_an_epoch, epochs=epochs)
    if config.schedule == "onecycle":
        return one_cycle(tick, rise=rise, whole=whole)
    if tick < rise:
        return (tick + 1) / rise
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "step":
        return config.drop_factor ** bisect.bisect_right(sorted(config.drop_epochs), int(tick // steps_an_epoch))
    share = (tick - rise) / max(1, whole - rise)
    return 1 - min(1.0, share) if config.schedule == "linear" else half_cosine(share)


@dataclass(frozen=True)
class Rates:
    """The learning rates of one run."""

    config: OptimConfig
    route: "Route"
    _: KW_ONLY
    factor: float = 1.0
    """what a run that went astray has its rates multiplied by"""

    def at(self, epoch: int, position: int) -> float:
        """The rate of the step that begins at a position."""
        route, stage = self.route, self.route.stage(epoch)
        share = shape(
            self.config,
            tick=route.tick(epoch, position),
            steps_an_epoch=route.paces[0].steps,
            epochs=route.epochs,
        )
        return self.factor * peak_rate(self.config, batch=stage.batch, fixed=stage.peak_rate) * share


def half_cosine(share: float) -> float:
    """From 1 at share 0 to 0 at share 1."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def one_cycle(tick: float, *, rise: int, whole: int) -> float:
    """Up along half a cosine and down along another, as torch's OneCycleLR does by default."""
    top = max(1, rise) - 1
    if tick <= top:
        return 1 - (1 - CYCLE_START) * half_cosine(tick / top if top else 1.0)
    return CYCLE_END + (1 - CYCLE_END) * half_cosine((tick - top) / max(1, whole - 1 - top))
