"""Networks by name, from two libraries."""

import pytest

from stoker.errors import Problem
from stoker.tasks import networks


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("resnet18", "timm/resnet18"),
        ("torchvision/resnet18", "torchvision/resnet18"),
        ("shufflenet_v2_x0_5", "torchvision/shufflenet_v2_x0_5"),
    ],
)
def test_a_name_is_completed_by_its_library(name: str, full: str) -> None:
    assert networks.resolved(name) == full


@pytest.mark.parametrize("name", ["resnet81", "timm/resnet81", "torchvision/test_resnet"])
def test_an_unknown_name_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(Problem, match=r"nearest names: .*resnet"):
        networks.resolved(name)


@pytest.mark.parametrize("name", ["timm/test_resnet", "torchvision/googlenet"])
def test_a_network_has_an_output_a_class(name: str) -> None:
    import torch

    network = networks.create(name, classes=7)
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 7)
