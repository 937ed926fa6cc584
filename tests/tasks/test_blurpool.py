"""A blur before every convolution that skips pixels."""

import pytest
import torch
from torch import nn

from stoker.errors import Problem
from stoker.tasks import blurpool, networks
from stoker.tasks.blurpool import BlurredConv, blurred, unblurred


def blurs(network: nn.Module) -> list[str]:
    return [name for name, module in network.named_modules() if isinstance(module, BlurredConv)]


def test_the_numbers_are_those_of_a_blur_by_hand() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(16, 8, 3, stride=2, padding=1)
    network = blurred(nn.Sequential(conv))
    x = torch.randn(2, 16, 9, 10)
    by_hand = torch.zeros_like(x)
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    for down, a in enumerate((1, 2, 1)):
        for across, b in enumerate((1, 2, 1)):
            by_hand += a * b / 16 * padded[:, :, down : down + 9, across : across + 10]
    torch.testing.assert_close(network(x), conv(by_hand))


def test_strided_convolutions_with_16_inputs_or_more_are_blurred_and_no_others() -> None:
    expected = [f"layer{stage}.0.{place}" for stage in (2, 3, 4) for place in ("conv1", "downsample.0")]
    network = blurred(networks.create("torchvision/resnet18", classes=7))
    assert blurs(network) == expected
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


def test_a_network_without_such_a_convolution_is_refused() -> None:
    narrow = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2), nn.Conv2d(15, 16, 3, stride=2), nn.Conv2d(16, 16, 3))
    with pytest.raises(Problem, match="nothing for blurpool to blur"):
        blurred(narrow)


def test_the_blur_is_not_trained_and_follows_the_network() -> None:
    plain = networks.create("stoker/resnet20", classes=7)
    weights = {id(p) for p in plain.parameters()}
    network = blurred(plain).to(torch.float64)
    assert {id(p) for p in network.parameters()} == weights
    network.train()(torch.randn(2, 3, 32, 32, dtype=torch.float64)).sum().backward()
    filters = [m.blur_filter for m in network.modules() if isinstance(m, BlurredConv)]
    assert len(filters) == 4
    for kept in filters:
        assert kept.dtype == torch.float64 and kept.grad is None
        torch.testing.assert_close(kept.sum((1, 2, 3)), torch.ones(len(kept), dtype=torch.float64))


def test_an_answer_changes_less_when_the_picture_is_shifted() -> None:
    changes = {}
    for is_blurred in (False, True):
        torch.manual_seed(1)
        network = networks.create("stoker/resnet20", classes=7)
        # Far from the border, where a shift brings in nothing new.
        picture = nn.functional.pad(torch.randn(8, 3, 16, 16), (16, 16, 16, 16))
        network = (blurred(network) if is_blurred else network).eval()
        answers = [network.blocks(network.conv(p)) for p in (picture, picture.roll(1, dims=3))]
        pooled = [a.mean((2, 3)) for a in answers]
        changes[is_blurred] = ((pooled[0] - pooled[1]).norm() / pooled[0].norm()).item()
    assert changes[True] < 0.7 * changes[False]


def test_weights_of_a_blurred_network_get_their_plain_names_back() -> None:
    plain = networks.create("torchvision/resnet18", classes=7)
    names = {name: tensor.data_ptr() for name, tensor in plain.state_dict().items()}
    state = blurred(plain).state_dict()
    assert "layer2.0.conv1.conv.weight" in state and f"layer2.0.conv1{blurpool.FILTER}" in state
    assert {name: tensor.data_ptr() for name, tensor in unblurred(state).items()} == names
    # A layer that is called conv and stands behind no blur keeps its name.
    own = {"stem.conv.weight": torch.zeros(1)}
    assert unblurred(own) == own
