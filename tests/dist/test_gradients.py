"""Gradients of two processes become their mean, as they are or compressed."""

from typing import Any

import pytest
import torch

from stoker import dist
from stoker.dist import World, gradients
from tests.dist import pair as pair_work

TOLERANCE = {"off": 1e-7, "bf16": 2**-7, "fp16": 2**-9}
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize("where", ["", " hook"])
@pytest.mark.parametrize("compress", ["off", "bf16", "fp16"])
def test_gradients_become_their_mean(pair: list[dict[str, Any]], compress: str, where: str) -> None:
    first, second = (found["averaged"] for found in pair)
    assert len(first["mean"]) == 4, "frozen layers have no gradients"
    largest = 0.0
    for mean, mine, other in zip(first["mean"], first[compress + where], second[compress + where], strict=True):
        assert mine.dtype == torch.float32 and torch.equal(mine, other)
        largest = max(largest, ((mine - mean).abs().max() / mean.abs().max()).item())
    assert largest < TOLERANCE[compress]
    assert compress == "off" or largest > 1e-5, "nothing was compressed"


@pytest.mark.parametrize("large", ["large", "large hook"])
def test_large_gradients_do_not_overflow_when_sent_as_fp16(pair: list[dict[str, Any]], large: str) -> None:
    for found in pair:
        assert found["averaged"][large].item() == pytest.approx(50_000, rel=1e-3)


def test_powersgd_begins_with_plain_means_and_then_approximates(pair: list[dict[str, Any]]) -> None:
    for number, (first, second) in enumerate(zip(*(found["powersgd"] for found in pair), strict=True)):
        for mine, other, mean in zip(first["got"], second["got"], first["mean"], strict=True):
            assert torch.equal(mine, other)
            is_plain = number < gradients.POWERSGD_PLAIN_STEPS or mine.dim() == 1 or mine.shape[0] == 8
            assert torch.allclose(mine, mean, atol=1e-7) == is_plain, f"step {number}, {tuple(mine.shape)}"
            if not is_plain:
                assert torch.linalg.matrix_rank(mine).item() == gradients.POWERSGD_RANK
                assert torch.cosine_similarity(mine.flatten(), mean.flatten(), dim=0) > 0.5


def test_powersgd_holds_gradients_back_until_the_last_atom(pair: list[dict[str, Any]]) -> None:
    for found in pair:
        for row in found["powersgd"]:
            assert all(torch.equal(a, b) for a, b in zip(row["held_back"], row["alone"], strict=True))


def test_gradients_are_exchanged_during_the_backward_pass_on_a_gpu_or_with_powersgd() -> None:
    two = World(size=2)
    assert dist.overlaps(two, GPU, exact=False)
    assert not dist.overlaps(two, GPU, exact=True)
    assert not dist.overlaps(two, CPU, exact=False, compress="bf16")
    assert dist.overlaps(two, CPU, exact=False, compress="powersgd")
    assert not dist.overlaps(World(), GPU, exact=False, compress="powersgd")


def test_the_bytes_sent_are_those_of_what_learns() -> None:
    model = pair_work.small()
    whole = 64 * 64 + 64 + 64 * 8 + 8
    assert dist.sent_bytes(model, "off") == 4 * whole
    assert dist.sent_bytes(model, "bf16") == dist.sent_bytes(model, "fp16") == 2 * whole
    # The matrix of 8 rows would not shrink to less than a half.
    assert dist.sent_bytes(model, "powersgd") == 4 * ((64 + 64) * 4 + 64 + 64 * 8 + 8)
