"""BlurPool: a blur before every convolution that skips pixels, so that a shift of the picture changes less."""

import torch
from torch import nn
from torch.nn import functional

from stoker.errors import Problem

# Convolutions with fewer inputs, which is the first one, are left alone, as FFCV's ImageNet recipes do.
LEAST_INPUTS = 16
CONV, FILTER = ".conv.", ".blur_filter"


class BlurredConv(nn.Module):
    """A convolution behind a blur of 3 x 3 pixels.

    The blur is a buffer: it goes where the network goes, and is neither trained nor decayed. It is saved too, under
    the names that FFCV's training code gives, so that weights say whether they were made with it.
    """

    blur_filter: torch.Tensor

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        self.register_buffer("blur_filter", binomial(conv.in_channels).to(conv.weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution of the blurred picture, beyond whose border is 0."""
        blurred_picture = functional.conv2d(x, self.blur_filter, padding=1, groups=self.conv.in_channels)
        answer: torch.Tensor = self.conv(blurred_picture)
        return answer


def binomial(channels: int) -> torch.Tensor:
    """The weights of the blur, 1 2 1 by 1 2 1, for every channel apart. They add up to 1."""
    row = torch.tensor([0.25, 0.5, 0.25])
    return torch.outer(row, row).repeat(channels, 1, 1, 1)


def blurred(network: nn.Module) -> nn.Module:
    """The same network, changed in place: a blur before every convolution that skips pixels."""
    places = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Conv2d) and max(child.stride) > 1 and child.in_channels >= LEAST_INPUTS
    ]
    if not places:
        raise Problem(
            f"{type(network).__name__} has no convolution with a stride above 1 and {LEAST_INPUTS} or more inputs, "
            "so there is nothing for blurpool to blur",
            fix="leave --blurpool out, or give another --model, such as resnet50",
        )
    for parent, name, conv in places:
        setattr(parent, name, BlurredConv(conv))
    return network


def unblurred(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of a blurred network under the names of the plain one, and without the blur."""
    wrapped = {name.removesuffix(FILTER) for name in tensors if name.endswith(FILTER)}
    plain = {}
    for name, tensor in tensors.items():
        place, _, rest = name.rpartition(CONV)
        if not name.endswith(FILTER):
            plain[f"{place}.{rest}" if place in wrapped else name] = tensor
    return plain
