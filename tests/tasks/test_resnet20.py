"""ResNet-20 is the network of the papers."""

import pytest
import torch
from torch import nn

from stoker.tasks.resnet20 import ResNet20


def test_it_has_the_published_size_and_depth() -> None:
    network = ResNet20(classes=10)
    # He et al. count 0.27 M; with the two 1 x 1 shortcuts it is 272,474.
    assert sum(p.numel() for p in network.parameters()) == 272_474
    threes = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(threes) + 1 == 20
    assert [m.stride for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)] == [(2, 2)] * 2


def test_its_stages_halve_the_picture_and_double_the_planes() -> None:
    network = ResNet20(classes=10).eval()
    shapes = []
    x = network.conv(torch.zeros(1, 3, 32, 32))
    for block in network.blocks:
        x = block(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_it_begins_with_kaiming_s_spread_and_batch_norms_at_one() -> None:
    torch.manual_seed(0)
    network = ResNet20(classes=10)
    widest = network.blocks[8].conv2.weight
    assert widest.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert network.fc.weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.1)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 21
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)


def test_a_block_adds_what_came_in() -> None:
    network = ResNet20(classes=10).eval()
    block = network.blocks[1]
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 16, 8, 8)
    torch.testing.assert_close(block(x), x)


def test_it_takes_pictures_of_other_sizes() -> None:
    assert ResNet20(classes=3)(torch.zeros(2, 3, 45, 33)).shape == (2, 3)
