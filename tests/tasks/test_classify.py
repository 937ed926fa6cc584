"""Scores are sums and counts, and mean what they say."""

import pytest
import torch

from stoker.config import DataConfig, ImageConfig, LoaderConfig, ModelConfig
from stoker.tasks import classify
from stoker.tasks.classify import Classify


def task(**network: object) -> Classify:
    return Classify(
        data=DataConfig(),
        image=ImageConfig(),
        loader=LoaderConfig(),
        network=ModelConfig(**network),  # type: ignore[arg-type]
    )


def test_top_1_and_top_5_are_percentages_summed_over_the_batch() -> None:
    logits = torch.tensor([[9.0, 1, 2, 3, 4, 5], [0, 9, 5, 4, 3, 2], [9, 8, 7, 6, 5, 4]])
    labels = torch.tensor([0, 2, 5])
    sums = classify.sums(logits, labels, torch.tensor(0.5))
    assert sums.tolist() == [1.5, 100, 200, 3]


def test_two_classes_have_a_top_5_of_all() -> None:
    assert classify.sums(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), torch.tensor(1.0)).tolist() == [1, 0, 100, 1]


@pytest.mark.parametrize("channels_last", [True, False])
def test_pixels_are_normalised_as_torchvision_does(channels_last: bool) -> None:
    from torchvision.transforms.v2 import functional

    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    ours = task(channels_last=channels_last).normalised(pixels)
    floats = functional.to_dtype(pixels.permute(0, 3, 1, 2), torch.float32, scale=True)
    torch.testing.assert_close(ours, functional.normalize(floats, list(classify.MEAN), list(classify.STD)))
    wanted = torch.channels_last if channels_last else torch.contiguous_format
    assert ours.is_contiguous(memory_format=wanted)


def test_mixed_precision_computes_in_the_type_asked_for() -> None:
    inputs = torch.zeros(2, 8, 8, 3, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    seen = []

    class Watched(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(192, 4)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            out = self.layer(pixels.flatten(1))
            seen.append(out.dtype)
            return out

    for amp in ("off", "bf16"):
        loss, _ = task(amp=amp).loss(Watched(), inputs)
        assert loss.dtype == torch.float32
    assert seen == [torch.float32, torch.bfloat16]
