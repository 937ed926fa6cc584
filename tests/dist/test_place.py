"""One process is the identity; many are told by the environment."""

import subprocess
import sys

import pytest
import torch

from stoker import dist
from stoker.dist import World
from stoker.errors import Problem


def test_one_process_is_the_identity() -> None:
    place, model, tensor = World(), torch.nn.Linear(1, 1), torch.ones(2)
    dist.start(place, torch.device("cpu"))
    dist.add_up(tensor, place)
    dist.barrier(place)
    assert tensor.tolist() == [1, 1]
    assert dist.wrapped(model, place, torch.device("cpu"), exact=False) is model
    dist.stop(place)


def test_the_place_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dist.world() == World(rank=0, size=1, local_rank=0)
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert dist.world() == World(rank=3, size=8, local_rank=1)


@pytest.mark.parametrize(("rank", "size"), [("8", "8"), ("one", "2")])
def test_an_impossible_place_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(Problem, match="torchrun"):
        dist.world()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    assert dist.choose_device("auto", World()).type == "cpu"
    with pytest.raises(Problem, match="stoker doctor"):
        dist.choose_device("cuda", World())


def test_the_address_of_a_spot_notice_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert dist.spot_notice_address() == "http://169.254.169.254"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1338/")
    assert dist.spot_notice_address() == "http://127.0.0.1:1338"
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert dist.spot_notice_address() is None


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys; from stoker import dist; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
