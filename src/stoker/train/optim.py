"""The optimiser, and whether its rate fits the batch."""

from typing import Any

import torch

from stoker.config import OptimConfig, TuneConfig
from stoker.errors import Problem
from stoker.train import groups
from stoker.train.rates import peak_rate, rule_rate

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


def begun(optimizer: torch.optim.Optimizer) -> None:
    """Begin the momentum of fused SGD at 0, as its first step does.

    Where the first step is passed over, because its gradients overflowed, torch leaves memory in the place of momentum
    that nobody has written to, and the next step adds that to the weights.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        return
    for group in optimizer.param_groups:
        for weight in group["params"] if group["fused"] and group["momentum"] else ():
            if weight.grad is not None and not optimizer.state[weight]:
                optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)


def clipped(config: OptimConfig, network: torch.nn.Module) -> None:
    """Scale all gradients down where they are together larger than allowed. Waits for nothing."""
    if config.clip:
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
