"""Networks by name, from three libraries."""

import importlib.util
import subprocess
import sys

import pytest
import torch

from stoker.errors import Problem
from stoker.tasks import networks


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("resnet18", "timm/resnet18"),
        ("torchvision/resnet18", "torchvision/resnet18"),
        ("shufflenet_v2_x0_5", "torchvision/shufflenet_v2_x0_5"),
        ("resnet20", "stoker/resnet20"),
        ("stoker/resnet20", "stoker/resnet20"),
        ("resnet50.a1_in1k", "timm/resnet50.a1_in1k"),
    ],
)
def test_a_name_is_completed_by_its_library(name: str, full: str) -> None:
    assert networks.resolved(name) == full


@pytest.mark.parametrize("name", ["resnet81", "timm/resnet81", "torchvision/test_resnet", "stoker/resnet18"])
def test_an_unknown_name_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(Problem, match=r"nearest names: .*resnet"):
        networks.resolved(name)


def test_a_library_that_is_not_installed_knows_nothing_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks.importlib.util, "find_spec", lambda name: None if name == "timm" else object())
    assert networks.known("timm") == []
    assert networks.resolved("resnet18") == "torchvision/resnet18"
    with pytest.raises(Problem, match=r"timm is not installed"):
        networks.resolved("test_resnet")


@pytest.mark.parametrize("name", ["timm/test_resnet", "torchvision/googlenet", "stoker/resnet20"])
def test_a_network_has_an_output_a_class(name: str) -> None:
    network = networks.create(name, classes=7)
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("timm/resnet18", "fc"),
        ("timm/mobilenetv2_100", "classifier"),
        ("timm/vit_tiny_patch16_224", "head"),
        ("timm/convnext_tiny", "head.fc"),
        ("timm/deit_tiny_distilled_patch16_224", "head"),
        ("torchvision/resnet18", "fc"),
        ("torchvision/mobilenet_v2", "classifier.1"),
        ("torchvision/vgg11", "classifier.6"),
        ("torchvision/densenet121", "classifier"),
        ("torchvision/efficientnet_b0", "classifier.1"),
        ("torchvision/vit_b_16", "heads.head"),
        ("torchvision/squeezenet1_1", "classifier.1"),
        ("stoker/resnet20", "fc"),
    ],
)
def test_the_head_is_the_layer_that_answers_with_the_classes(name: str, head: str) -> None:
    with torch.device("meta"):
        network = networks.create(name, classes=7)
    assert networks.head(network) == head
    assert networks.outputs(network.get_submodule(head)) == 7


def test_a_network_without_a_head_is_refused() -> None:
    with pytest.raises(Problem, match="Sequential has no last layer"):
        networks.head(torch.nn.Sequential(torch.nn.Conv2d(3, 7, 3)))
    with torch.device("meta"):
        bare = networks.create("timm/test_resnet", classes=0)
    with pytest.raises(Problem, match="has no last layer"):
        networks.head(bare)


def test_a_hidden_module_seems_not_to_be_installed_until_it_may_be_loaded_again() -> None:
    sys.modules.pop("this", None)
    with networks.hidden("this"), pytest.raises(ImportError):
        import this  # noqa: F401
    assert "this" not in sys.modules
    with networks.hidden("json"):
        import json
    assert sys.modules["json"] is json, "what is loaded stays"


def test_names_of_networks_are_found_without_loading_a_tracker() -> None:
    code = "import sys; from stoker.tasks import networks; networks.resolved('resnet18'); print('wandb' in sys.modules)"
    assert importlib.util.find_spec("wandb"), "where it is not installed this test shows nothing"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
