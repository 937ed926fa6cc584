"""Which weights learn at which pace: the head, the layers below it, norms and biases, and what is frozen."""

import re
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from stoker.config import OptimConfig, TuneConfig
from stoker.tasks import networks

# What may follow a numbered stage in a name and still lead to its blocks: layer1.0, stages.2.blocks.5, s1.b2,
# denseblock1.denselayer3, block1.block1-0.
INNER = re.compile(r"\d+|(b|[a-z]*block|[a-z]*layer)[\d_-]*\d")
FROZEN = "is_frozen_by_stoker"


def grouped(network: nn.Module, optim: OptimConfig, tune: TuneConfig) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser. The rate of a group is the run's, times its `factor`.

    With the defaults it is one group with all weights, in the order of the network.
    """
    factors = rate_factors(network, tune)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        is_plain = parameter.ndim <= 1 or name.endswith(".bias")
        decay = 0.0 if is_plain and not optim.norm_decay else optim.weight_decay
        groups.setdefault((decay, factors.get(name, 1.0)), []).append(parameter)
    return [{"params": params, "weight_decay": decay, "factor": by} for (decay, by), params in groups.items()]


def rate_factors(network: nn.Module, tune: TuneConfig) -> dict[str, float]:
    """What the rate of each weight is multiplied by, where it is not 1 for all."""
    if tune.head_rate == 1 and tune.layer_decay == 1:
        return {}
    head = networks.head(network)
    body = layers(network, head=head)
    factors = {name: tune.layer_decay ** (len(body) - i) for i, layer in enumerate(body) for name in layer}
    return factors | {name: tune.head_rate for name, _ in network.named_parameters() if is_inside(name, head)}


def layers(network: nn.Module, *, head: str) -> list[list[str]]:
    """The names of the weights below the head, layer by layer, the first layer first. A residual block is one layer."""
    matrices = {name for name, parameter in network.named_parameters() if parameter.ndim > 1}
    found: dict[str, list[str]] = {}
    at = ""
    for name, _ in network.named_parameters():
        if is_inside(name, head):
            continue
        # Names without a number that follow each other are one layer: the class token, positions and patches of a ViT.
        at = block_of(name) or (at if at.startswith("unnumbered ") else f"unnumbered {name}")
        found.setdefault(at, []).append(name)
    merged: list[list[str]] = []
    for names in found.values():
        # A norm has no matrix. It goes with the convolution before it.
        if merged and not matrices.intersection(names):
            merged[-1] += names
        else:
            merged.append(names)
    return merged


def block_of(name: str) -> str:
    """The part of a weight's name that says its block, such as layer1.0 or stages.2.blocks.5; empty if none does."""
    parts = name.split(".")[:-1]
    end = next((i for i, part in enumerate(parts) if re.search(r"\d", part)), None)
    if end is None:
        return ""
    while end + 1 < len(parts):
        following = parts[end + 1]
        if following == "blocks" and end + 2 < len(parts) and parts[end + 2].isdigit():
            end += 2
        elif INNER.fullmatch(following):
            end += 1
        else:
            break
    return ".".join(parts[: end + 1])


def is_inside(name: str, module: str) -> bool:
    """Whether a weight belongs to a module."""
    return name.startswith(f"{module}.")


def freeze(network: nn.Module, *, head: str, is_frozen: bool) -> None:
    """Keep all weights but the head's from learning, or let them learn again. Those that never learn stay so."""
    for name, parameter in network.named_parameters():
        if is_frozen and parameter.requires_grad and not is_inside(name, head):
            parameter.requires_grad_(False)
            setattr(parameter, FROZEN, True)
        elif not is_frozen and hasattr(parameter, FROZEN):
            parameter.requires_grad_(True)
            delattr(parameter, FROZEN)


def training_mode(network: nn.Module, *, head: str, is_frozen: bool) -> None:
    """Training mode. The batch norms of a frozen part answer as in evaluation, and keep their statistics."""
    network.train()
    if is_frozen:
        for module in batch_norms(network, head=head):
            module.eval()


def batch_norms(network: nn.Module, *, head: str) -> Iterable[nn.Module]:
    """The batch norms outside of the head."""
    for name, module in network.named_modules():
        if isinstance(module, _BatchNorm) and not is_inside(name, head):
            yield module
