"""Batch norm of two processes is that of one with all their samples."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn

from stoker.dist import World, norm
from stoker.errors import Problem
from tests.dist.conftest import run_module


@pytest.mark.parametrize("momentum", ["normalised", "cumulative"])
def test_two_processes_normalise_as_one_with_all_samples(pair: list[dict[str, Any]], momentum: str) -> None:
    for found in pair:
        assert_alike(found[momentum]["expected"], found[momentum]["got"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_two_processes_do_so_on_a_gpu_and_send_their_gradients(tmp_path: Path) -> None:
    run_module("tests.dist.pair", tmp_path, "gpu")
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for found in (first, second):
        assert_alike(found["normalised"]["expected"], found["normalised"]["got"])
    for compress, gradients in first["averaged"].items():
        for mine, other, exact in zip(gradients, second["averaged"][compress], first["averaged"]["off"], strict=True):
            assert torch.equal(mine, other)
            torch.testing.assert_close(mine, exact, rtol=0.05, atol=1e-3)


def assert_alike(expected: list[list[torch.Tensor]], got: list[list[torch.Tensor]]) -> None:
    assert len(expected) == len(got) == 3
    for step, (left, right) in enumerate(zip(expected, got, strict=True)):
        for number, (one, two) in enumerate(zip(left, right, strict=True)):
            torch.testing.assert_close(
                two, one, rtol=1e-9, atol=1e-9, msg=lambda m, s=step, n=number: f"step {s}, tensor {n}: {m}"
            )


def test_every_batch_norm_is_joined_and_keeps_its_names(pair: list[dict[str, Any]]) -> None:
    for found in pair:
        assert found["normalised"]["names"]
        kinds = found["normalised"]["kinds"]
        assert kinds.count("JointNorm") == 5 and not any("BatchNorm" in kind for kind in kinds)


def test_sixteen_bits_and_the_memory_layout_are_kept(pair: list[dict[str, Any]]) -> None:
    for found in pair:
        narrow = found["narrowed"]["narrow"]
        assert narrow["got"].dtype == torch.bfloat16 and found["narrowed"]["layout"]
        torch.testing.assert_close(narrow["got"], narrow["expected"], rtol=2**-7, atol=2**-7)


def test_a_mean_far_above_the_spread_costs_no_digits(pair: list[dict[str, Any]]) -> None:
    for found in pair:
        far = found["narrowed"]["far"]
        torch.testing.assert_close(far["got"], far["expected"], rtol=1e-3, atol=1e-3)


def test_one_process_keeps_its_network() -> None:
    network = nn.Sequential(nn.BatchNorm2d(3))
    assert norm.synchronised(network, World()) is network
    assert type(network[0]) is nn.BatchNorm2d


def test_a_network_that_is_a_batch_norm_is_joined() -> None:
    assert isinstance(norm.synchronised(nn.BatchNorm1d(3), World(size=2)), norm.JointNorm)


def test_a_network_is_joined_where_timm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError):
        importlib.import_module("timm.layers")
    network = norm.synchronised(nn.Sequential(nn.BatchNorm2d(3)), World(size=2))
    assert isinstance(network[0], norm.JointNorm)  # type: ignore[index]


def test_only_timms_own_norm_with_an_activation_is_joined_with_it() -> None:
    joined = norm.joint(BatchNormAct2d(3))
    assert isinstance(joined, norm.JointNorm) and joined.after == ("drop", "act")
    with pytest.raises(Problem, match=r"sync_bn can't join tests\..*\.BatchNormAct2d"):
        norm.joint(type("BatchNormAct2d", (nn.BatchNorm2d,), {"__module__": __name__})(3))
    with pytest.raises(Problem, match=r"sync_bn can't join timm\..*\.FrozenBatchNormAct"):
        norm.joint(type("FrozenBatchNormAct", (BatchNormAct2d,), {"__module__": "timm.layers.norm_act"})(3))


def test_a_batch_norm_of_another_kind_is_refused_by_name() -> None:
    class Special(nn.BatchNorm2d):
        pass

    with pytest.raises(Problem, match=r"sync_bn can't join .*Special"):
        norm.synchronised(nn.Sequential(Special(3)), World(size=2))
