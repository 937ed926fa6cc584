"""Batch norm over the samples of all processes together."""

from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.nn import functional
from torch.nn.modules._functions import SyncBatchNorm as FusedSync
from torch.nn.modules.batchnorm import _BatchNorm

from stoker.dist.place import World
from stoker.errors import Problem

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def synchronised(network: nn.Module, place: World) -> nn.Module:
    """The network with every batch norm over all processes. Weights, buffers and their names stay as they are."""
    if place.size == 1:
        return network
    made: dict[nn.Module, nn.Module] = {}
    for parent in list(network.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, _BatchNorm):
                if child not in made:
                    made[child] = joint(child)
                setattr(parent, name, made[child])
    return joint(network) if isinstance(network, _BatchNorm) else network


def joint(norm: _BatchNorm) -> nn.Module:
    """A batch norm of all processes in the place of one of this process."""
    if is_timm(type(norm)):
        return JointNorm(norm, after={name: norm.get_submodule(name) for name in ("drop", "act")})
    if type(norm) in PLAIN:
        return JointNorm(norm, after={})
    raise Problem(
        f"sync_bn can't join {type(norm).__module__}.{type(norm).__name__}: it is no plain batch norm",
        fix="leave --sync-bn out, or choose another --model",
    )


def is_timm(kind: type) -> bool:
    """Whether a kind of module is timm's batch norm with an activation. Told by name: timm may not be there."""
    return kind.__module__.startswith("timm.") and kind.__name__ == "BatchNormAct2d"


class JointNorm(_BatchNorm):
    """A batch norm whose training statistics are those of all processes; in evaluation it is a plain one.

    It takes over the parameters and buffers of a plain one, and what timm has follow it: dropout and activation. It is
    a batch norm to all who look for one: a frozen layer keeps its statistics.
    """

    def __init__(self, norm: _BatchNorm, *, after: dict[str, nn.Module]) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, affine=False, track_running_stats=False)
        self.affine, self.track_running_stats = norm.affine, norm.track_running_stats
        for name, parameter in norm._parameters.items():
            self.register_parameter(name, parameter)
        for name, buffer in norm._buffers.items():
            self.register_buffer(name, buffer)
        for name, module in after.items():
            setattr(self, name, module)
        self.after = tuple(after)
        self.train(norm.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise, then what follows."""
        if self.training:
            x = self.trained(x)
        else:
            # Without running statistics a plain batch norm takes those of the batch in evaluation too.
            alone = self.running_mean is None
            x = functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, training=alone, eps=self.eps
            )
        for name in self.after:
            x = getattr(self, name)(x)
        return x

    def trained(self, x: torch.Tensor) -> torch.Tensor:
        """The samples of this process, normalised by the statistics of all."""
        momentum = self.momentum or 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        group = torch.distributed.group.WORLD
        assert group is not None, "the processes have not met"
        kind: Any = FusedSync if x.is_cuda else JointStatistics
        y: torch.Tensor = kind.apply(
            x, self.weight, self.bias, self.running_mean, self.running_var, self.eps, momentum, group, group.size()
        )
        return y

    def extra_repr(self) -> str:
        """The settings, as a plain batch norm shows them."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class JointStatistics(torch.autograd.Function):
    """What torch's own synchronised batch norm, which is for GPUs alone, computes: with the same arguments, on a CPU.

    The count, mean and squared deviations of each process are gathered and joined in the order of the processes, so
    that all get the same bits, and large means cost no digits, as they would with sums of squares.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
        running_mean: torch.Tensor | None, running_var: torch.Tensor | None, eps: float, momentum: float,
        group: Any, size: int,
    ) -> torch.Tensor:  # fmt: skip
        """Normalise by the mean and variance of all processes."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        others = [dim for dim in range(x.dim()) if dim != 1]
        var, mean = torch.var_mean(wide, dim=others, correction=0)
        count = torch.full((1,), x.numel() // x.shape[1], dtype=wide.dtype)
        mine = torch.cat([mean, var, count])
        found = [torch.empty_like(mine) for _ in range(size)]
        torch.distributed.all_gather(found, mine, group=group)
        means, variances, counts = torch.split(torch.stack(found), [len(mean), len(mean), 1], dim=1)
        total = counts.sum()
        shares = counts / total
        mean = (means * shares).sum(0)
        var = ((variances + (means - mean) ** 2) * shares).sum(0)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var * (total / (total - 1)), momentum)
        scale = torch.rsqrt(var + eps)
        ctx.save_for_backward(x, weight, mean, scale, total)
        ctx.group = group
        return functional.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The derivative through the statistics of all processes, to which each has a part."""
        x, weight, mean, scale, total = ctx.saved_tensors
        shape = [1, -1] + [1] * (x.dim() - 2)
        others = [dim for dim in range(x.dim()) if dim != 1]
        above = gradients[0].to(mean.dtype)
        normal = (x.to(mean.dtype) - mean.view(shape)) * scale.view(shape)
        own_bias, own_weight = above.sum(others), (above * normal).sum(others)
        sums = torch.cat([own_bias, own_weight])
        torch.distributed.all_reduce(sums, group=ctx.group)
        all_bias, all_weight = (sums / total).chunk(2)
        slope = scale if weight is None else scale * weight
        below = (above - all_bias.view(shape) - normal * all_weight.view(shape)) * slope.view(shape)
        # The gradients of weight and bias are this process's own: they are averaged with all others.
        own = (None, None) if weight is None else (own_weight.to(weight.dtype), own_bias.to(weight.dtype))
        return below.to(x.dtype), *own, None, None, None, None, None, None
