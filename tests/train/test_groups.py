"""Which weights learn at which pace."""

from collections import Counter

import pytest
import torch
from torch import nn

from stoker.config import OptimConfig, TuneConfig
from stoker.tasks import networks
from stoker.tasks.blurpool import blurred
from stoker.train import groups


def paces(network: nn.Module, optim: OptimConfig, tune: TuneConfig) -> dict[str, tuple[float, float]]:
    """Weight decay and factor of every weight, by its name."""
    name_of = {id(p): name for name, p in network.named_parameters()}
    found = [
        (name_of[id(p)], (group["weight_decay"], group["factor"]))
        for group in groups.grouped(network, optim, tune)
        for p in group["params"]
    ]
    assert len(found) == len(name_of) == len(dict(found)), "every weight is in one group"
    return dict(found)


def test_the_defaults_are_one_group_in_the_order_of_the_network() -> None:
    network = networks.create("timm/test_resnet", classes=7)
    (group,) = groups.grouped(network, OptimConfig(), TuneConfig())
    assert [id(p) for p in group["params"]] == [id(p) for p in network.parameters()]
    assert (group["weight_decay"], group["factor"]) == (1e-4, 1.0)


def test_a_network_without_a_head_is_fine_as_long_as_nothing_asks_for_it() -> None:
    assert len(groups.grouped(nn.Conv2d(3, 4, 3), OptimConfig(), TuneConfig())) == 1


def test_norms_and_biases_are_spared_from_decay() -> None:
    network = networks.create("timm/test_vit", classes=7)
    found = paces(network, OptimConfig(weight_decay=0.05, norm_decay=False), TuneConfig())
    for name, parameter in network.named_parameters():
        is_spared = name.endswith(".bias") or "norm" in name
        assert found[name] == (0.0 if is_spared else 0.05, 1.0), (name, parameter.shape)


def test_the_head_has_its_own_rate() -> None:
    network = networks.create("torchvision/mobilenet_v2", classes=7)
    found = paces(network, OptimConfig(), TuneConfig(head_rate=10.0))
    assert {name for name, (_, factor) in found.items() if factor == 10.0} == {
        "classifier.1.weight",
        "classifier.1.bias",
    }
    assert Counter(factor for _, factor in found.values()) == {1.0: len(found) - 2, 10.0: 2}


def test_each_layer_further_from_the_head_learns_more_slowly() -> None:
    network = networks.create("stoker/resnet20", classes=7)
    found = paces(network, OptimConfig(), TuneConfig(layer_decay=0.5, head_rate=3.0))
    factors = {name: factor for name, (_, factor) in found.items()}
    assert factors["fc.weight"] == factors["fc.bias"] == 3.0
    for block in range(9):
        inside = {factor for name, factor in factors.items() if name.startswith(f"blocks.{block}.")}
        assert inside == {0.5 ** (9 - block)}
    assert factors["conv.weight"] == factors["bn.weight"] == factors["bn.bias"] == 0.5**10


def test_an_optimiser_takes_the_groups() -> None:
    network = networks.create("stoker/resnet20", classes=7)
    made = groups.grouped(network, OptimConfig(norm_decay=False), TuneConfig(layer_decay=0.5))
    optimizer = torch.optim.SGD(made, lr=1.0)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.0, 1e-4}
    assert {group["factor"] for group in optimizer.param_groups} == {0.5**i for i in range(11)}


@pytest.mark.parametrize(
    ("model", "count", "some"),
    [
        # The stem and the residual blocks: 2 + 2 + 2 + 2, and 3 + 4 + 6 + 3.
        ("timm/resnet18", 1 + 8, "layer1.0"),
        ("torchvision/resnet50", 1 + 16, "layer4.2"),
        # 17 inverted residuals between the first and the last convolution.
        ("torchvision/mobilenet_v2", 1 + 17 + 1, "features.3"),
        ("timm/mobilenetv2_100", 1 + 17 + 1, "blocks.2.1"),
        # Token, positions and patches; then the blocks.
        ("timm/vit_tiny_patch16_224", 1 + 12, "blocks.11"),
        ("torchvision/vit_b_16", 1 + 12, "encoder.layers.encoder_layer_3"),
        # 3 + 3 + 9 + 3 blocks, and three times a downsampling.
        ("timm/convnext_tiny", 1 + 18 + 3, "stages.2.blocks.8"),
        ("torchvision/convnext_tiny", 1 + 18 + 3, "features.5.8"),
        ("timm/swin_tiny_patch4_window7_224", 1 + 12 + 3, "layers.2.blocks.5"),
        # 6 + 12 + 24 + 16 dense layers and three transitions.
        ("torchvision/densenet121", 1 + 58 + 3, "features.denseblock4.denselayer16"),
        ("torchvision/vgg16", 13 + 2, "classifier.3"),
        ("timm/efficientnet_b0", 1 + 16 + 1, "blocks.6.0"),
        ("torchvision/googlenet", 3 + 9, "inception5b"),
        ("timm/regnetx_002", 1 + 13, "s4.b7"),
    ],
)
def test_layers_are_the_blocks_of_a_network(model: str, count: int, some: str) -> None:
    with torch.device("meta"):
        network = networks.create(model, classes=7)
    found = groups.layers(network, head=networks.head(network))
    assert len(found) == count
    (layer,) = [layer for layer in found if layer[0].startswith(f"{some}.")]
    assert {name for name, _ in network.named_parameters() if name.startswith(f"{some}.")} <= set(layer)


def test_blurs_do_not_change_the_layers() -> None:
    network = networks.create("torchvision/resnet18", classes=7)
    before = len(groups.layers(network, head="fc"))
    assert len(groups.layers(blurred(network), head="fc")) == before


def test_only_the_head_of_a_frozen_network_learns_and_then_all_of_it() -> None:
    network = networks.create("timm/test_resnet", classes=7)
    fixed = network.get_parameter("layer1.0.conv1.weight").requires_grad_(False)
    groups.freeze(network, head="fc", is_frozen=True)
    assert {name for name, p in network.named_parameters() if p.requires_grad} == {"fc.weight", "fc.bias"}
    groups.freeze(network, head="fc", is_frozen=True)
    groups.freeze(network, head="fc", is_frozen=False)
    # What the library keeps from learning still does not learn.
    assert [p for p in network.parameters() if not p.requires_grad] == [fixed]


def test_a_frozen_body_keeps_its_batch_statistics_and_the_dropout_before_the_head_works() -> None:
    network = networks.create("torchvision/mobilenet_v2", classes=7)
    before = {name: tensor.clone() for name, tensor in network.named_buffers()}
    groups.freeze(network, head="classifier.1", is_frozen=True)
    groups.training_mode(network, head="classifier.1", is_frozen=True)
    assert network.training and network.get_submodule("classifier.0").training
    network(torch.randn(4, 3, 32, 32)).sum().backward()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.named_buffers())
    groups.training_mode(network, head="classifier.1", is_frozen=False)
    network(torch.randn(4, 3, 32, 32))
    assert all(module.training for module in network.modules())
    assert not any(torch.equal(t, before[n]) for n, t in network.named_buffers() if "running" in n)
