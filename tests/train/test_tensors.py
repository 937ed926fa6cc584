"""A packed file is what safetensors reads."""

import pytest
import torch
from safetensors.torch import load

from stoker.train import tensors


def test_every_kind_and_layout_comes_back_bit_for_bit() -> None:
    torch.manual_seed(0)
    given = {f"{kind}".removeprefix("torch."): (torch.randn(3, 5) * 9).to(kind) for kind in tensors.KINDS}
    given["channels_last"] = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    given["parameter"] = torch.nn.Parameter(torch.randn(7))
    given["scalar"], given["empty"] = torch.tensor(3), torch.empty(0, 4)
    given["slice"] = torch.randn(10, 10)[1:9:2, 3:]
    back = load(bytes(tensors.packed(given)))
    assert back.keys() == given.keys()
    for name, tensor in given.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape, name
        assert torch.equal(back[name], tensor), name


def test_a_packed_file_does_not_follow_the_tensors() -> None:
    weights = {"w": torch.zeros(1000)}
    file = tensors.packed(weights)
    weights["w"] += 1
    assert load(bytes(file))["w"].sum() == 0


def test_the_order_of_the_names_does_not_matter() -> None:
    given = {"b": torch.ones(2), "a": torch.zeros(3, dtype=torch.int64)}
    assert tensors.packed(given) == tensors.packed(dict(reversed(given.items())))


def test_nothing_is_a_file_too() -> None:
    assert load(bytes(tensors.packed({}))) == {}


def test_a_kind_that_the_format_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        tensors.packed({"c": torch.zeros(2, dtype=torch.complex64)})
