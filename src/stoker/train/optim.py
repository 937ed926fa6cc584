"""The optimiser, and the learning rate as a pure function of the place in the run."""

import bisect
import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from stoker.config import OptimConfig, TuneConfig
from stoker.data.order import Route
from stoker.errors import Problem
from stoker.train import groups

# Batch size that `lr` is given for (Goyal et al., "Accurate, large minibatch SGD", 2017).
BASE_BATCH = 256
# torch's OneCycleLR: the rate begins at 1/25 of the peak and ends at 1/10,000 of the beginning.
CYCLE_START, CYCLE_END = 1 / 25, 1 / 250_000
CYCLE_RISE = 0.3
# Rates for 256 samples that people train with, from scratch and fine-tuning: Goyal et al. 2017 and the Caltech-256 runs
# below for sgd; between ConvNeXt's (0.001) and ResNet strikes back's (0.004 and above) for adamw and lamb.
SOUND = {
    ("sgd", False): 0.1, ("sgd", True): 0.02,
    ("adamw", False): 0.002, ("adamw", True): 0.0004,
    ("lamb", False): 0.002, ("lamb", True): 0.0004,
}  # fmt: skip
FAR_OFF = 3.001
MEASURED = (
    "What such a rate can cost: fine-tuning ResNet-152 on Caltech-256 with batches of 16, a rate of 0.01 in the place "
    "of 0.00125 brought the accuracy from 83.6 % down to 63.5 %"
)


def rule_rate(config: OptimConfig, *, batch: int, lr: float | None = None) -> float:
    """The highest rate of a run by the rule: `lr` scaled from 256 samples to the batch."""
    times = batch / BASE_BATCH
    return (lr or config.lr) * (times if config.optimizer in ("sgd", "lars") else math.sqrt(times))


def peak_rate(config: OptimConfig, *, batch: int, fixed: float | None = None) -> float:
    """The highest rate of a stage: as it was fixed, or by the rule."""
    return fixed or config.peak_lr or rule_rate(config, batch=batch)


def sound_rate(config: OptimConfig, tune: TuneConfig, *, batch: int) -> float:
    """The peak rate that people train with, for this batch; the run's own rule where nobody has said."""
    return rule_rate(config, batch=batch, lr=SOUND.get((config.optimizer, tune.weights != "")))


def warning(config: OptimConfig, tune: TuneConfig, *, batch: int, fixed: float | None = None) -> str | None:
    """What to say about a rate that is far off what its batch calls for, before hours are spent with it."""
    peak = peak_rate(config, batch=batch, fixed=fixed)
    bases = [SOUND.get((config.optimizer, tune.weights != ""))]
    if fixed or config.peak_lr:
        # The run's own rule counts too, where a rate was given past it.
        bases.append(config.lr)
    for base in bases:
        if base is None:
            continue
        rule = rule_rate(config, batch=batch, lr=base)
        off = max(peak / rule, rule / peak)
        if off > FAR_OFF:
            kind = "a pretrained network" if tune.weights else "a network from scratch"
            side = "above" if peak > rule else "below"
            return (
                f"a peak rate of {peak:.4g} for {batch} samples is {off:.3g} x {side} the rule "
                f"({config.optimizer}, {kind}: {base:g} for 256 samples, so {rule:.4g} for {batch}); "
                f"try --lr {base:g}, or --lr-find. {MEASURED}"
            )
    return None


def shape(config: OptimConfig, *, tick: float, steps_an_epoch: int, epochs: int) -> float:
    """The share of the peak rate at a place in the run, `tick` steps from its beginning."""
    whole = steps_an_epoch * epochs
    rise = round(config.warmup_epochs * steps_an_epoch)
    if config.schedule == "onecycle":
        return one_cycle(tick, rise=rise or round(CYCLE_RISE * whole), whole=whole)
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
    route: Route
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


def optimizer(config: OptimConfig, tune: TuneConfig, network: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimiser of the settings. Its rates are set at every step: that of the run times the group's factor."""
    parts, rate = groups.grouped(network, config, tune), config.lr
    if config.optimizer in ("lamb", "lars"):
        return large_batch_optimizer(config, parts)
    # One kernel for all weights; on a CPU torch's own choice is as fast.
    is_fused = True if next(network.parameters()).device.type == "cuda" else None
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parts, lr=rate, weight_decay=config.weight_decay, fused=is_fused)
    return torch.optim.SGD(
        parts,
        lr=rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=is_fused,
    )


def large_batch_optimizer(config: OptimConfig, parts: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """LAMB or LARS, which scale each layer's step by the size of its weights."""
    try:
        from timm.optim.lamb import Lamb
        from timm.optim.lars import Lars
    except ImportError:
        raise Problem(f"{config.optimizer} comes from timm, which is not installed", fix="pip install timm") from None
    if config.optimizer == "lamb":
        return Lamb(parts, lr=config.lr, weight_decay=config.weight_decay, max_grad_norm=None)
    return Lars(  # type: ignore[no-untyped-call]
        parts, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, weight_decay=config.weight_decay
    )


def rated(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of a step."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def clipped(config: OptimConfig, network: torch.nn.Module) -> None:
    """Scale all gradients down where they are together larger than allowed. Waits for nothing."""
    if config.clip:
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
