"""Scores are sums and counts, and mean what they say."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from stoker.config import AugmentConfig, DataConfig, ImageConfig, LoaderConfig, ModelConfig
from stoker.data import mix
from stoker.data.loader import Batch
from stoker.data.order import Plan
from stoker.tasks import Inputs, classify, mixing
from stoker.tasks.classify import Classify

CPU = torch.device("cpu")
EVERYTHING = AugmentConfig(translate=2, erase=1.0, mixup=1.0, label_smoothing=0.1)


def task(*, image: ImageConfig | None = None, augment: AugmentConfig | None = None, **network: Any) -> Classify:
    return Classify(
        data=DataConfig(),
        image=image or ImageConfig(resolution=8),
        augment=augment or AugmentConfig(),
        loader=LoaderConfig(),
        network=ModelConfig(**network),
    )


def network() -> torch.nn.Module:
    """One that sees the difference between left and right."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 7))


def batch(augment: AugmentConfig | None = None, *, count: int = 6) -> Batch:
    torch.manual_seed(1)
    places = np.arange(count)
    return Batch(
        plan=Plan(epoch=0, positions=places, samples=places),
        pixels=torch.randint(0, 256, (count, 8, 8, 3), dtype=torch.uint8),
        labels=torch.arange(count) % 7,
        mix=mix.drawn(augment, seed=0, epoch=0, positions=places, resolution=8) if augment else None,
    )


def test_top_1_and_top_5_are_percentages_summed_over_the_batch() -> None:
    logits = torch.tensor([[9.0, 1, 2, 3, 4, 5], [0, 9, 5, 4, 3, 2], [9, 8, 7, 6, 5, 4]])
    labels = torch.tensor([0, 2, 5])
    sums = classify.sums(logits, labels, torch.tensor(0.5))
    assert sums.tolist() == [1.5, 100, 200, 3]


def test_two_classes_have_a_top_5_of_all() -> None:
    assert classify.sums(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), torch.tensor(1.0)).tolist() == [1, 0, 100, 1]


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(("mean", "std"), [((), ()), ((0.5, 0.4, 0.3), (0.2, 0.1, 0.3))])
def test_pixels_are_normalised_as_torchvision_does(
    channels_last: bool, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    from torchvision.transforms.v2 import functional

    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    ours = task(image=ImageConfig(mean=mean, std=std), channels_last=channels_last).normalised(pixels)
    floats = functional.to_dtype(pixels.permute(0, 3, 1, 2), torch.float32, scale=True)
    expected = functional.normalize(floats, list(mean or classify.MEAN), list(std or classify.STD))
    torch.testing.assert_close(ours, expected)
    wanted = torch.channels_last if channels_last else torch.contiguous_format
    assert ours.is_contiguous(memory_format=wanted)


def test_mixed_precision_computes_in_the_type_asked_for() -> None:
    inputs = Inputs(pixels=torch.zeros(2, 8, 8, 3, dtype=torch.uint8), labels=torch.zeros(2, dtype=torch.int64))
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
        task(amp=amp).score(Watched(), inputs)
    assert seen == [torch.float32] * 2 + [torch.bfloat16] * 2


def test_training_shifts_erases_and_mixes_and_smooths_as_drawn() -> None:
    learned, given, model = task(augment=EVERYTHING), batch(EVERYTHING), network()
    inputs = learned.moved(given, CPU)
    assert given.mix is not None and given.mix.kind == "mixup" and inputs.mix is not None
    loss, sums = learned.loss(model, inputs)
    pictures = mixing.blended(learned.normalised(mixing.translated(given.pixels, inputs.mix)), inputs.mix)
    one_hot, weight = functional.one_hot(given.labels, 7), given.mix.weight
    labels = weight * one_hot + (1 - weight) * one_hot.roll(-1, 0)
    expected = functional.cross_entropy(model(pictures), labels, label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)
    best = model(pictures).argmax(1)
    assert sums.tolist()[:2] == pytest.approx([6 * expected.item(), 100 * labels[torch.arange(6), best].sum().item()])
    assert sums[3] == 6
    plain, _ = task().loss(model, task().moved(batch(), CPU))
    assert plain.item() != pytest.approx(loss.item())


def test_labels_are_smoothed_without_any_draw() -> None:
    smoothed, given, model = task(augment=AugmentConfig(label_smoothing=0.2)), batch(), network()
    loss, sums = smoothed.loss(model, smoothed.moved(given, CPU))
    logits = model(smoothed.normalised(given.pixels))
    torch.testing.assert_close(loss, functional.cross_entropy(logits, given.labels, label_smoothing=0.2))
    assert sums[0].item() == pytest.approx(6 * loss.item())


def test_the_network_gets_pictures_in_the_memory_format_asked_for() -> None:
    for channels_last, wanted in ((True, torch.channels_last), (False, torch.contiguous_format)):
        seen = []

        def watched(pictures: torch.Tensor, seen: list[torch.Tensor] = seen) -> torch.Tensor:
            seen.append(pictures)
            return pictures.flatten(1)[:, :7]

        learned = task(augment=EVERYTHING, image=ImageConfig(test_flip=True), channels_last=channels_last)
        inputs = learned.moved(batch(EVERYTHING), CPU)
        learned.loss(watched, inputs)
        learned.score(watched, inputs)
        assert [pictures.is_contiguous(memory_format=wanted) for pictures in seen] == [True] * 3


def test_an_evaluation_neither_smooths_nor_mixes() -> None:
    learned, given, model = task(augment=EVERYTHING), batch(EVERYTHING), network()
    expected = classify.sums(
        model(learned.normalised(given.pixels)),
        given.labels,
        functional.cross_entropy(model(learned.normalised(given.pixels)), given.labels),
    )
    sums = learned.score(model, learned.moved(given, CPU))
    torch.testing.assert_close(sums, expected.detach())
    assert not sums.requires_grad


@pytest.mark.parametrize("amp", ["off", "bf16"])
def test_the_mirror_image_is_asked_too_and_the_probabilities_are_averaged(amp: str) -> None:
    learned, given, model = task(image=ImageConfig(resolution=8, test_flip=True), amp=amp), batch(), network()
    pictures = learned.normalised(given.pixels)
    with learned.precision(CPU), torch.no_grad():
        own, mirrored = (model(each).float().softmax(1) for each in (pictures, pictures.flip(3)))
    mean = (own + mirrored) / 2
    assert not torch.allclose(own, mirrored, atol=0.01)
    loss = -mean[torch.arange(6), given.labels].log().sum()
    found = learned.score(model, learned.moved(given, CPU)).tolist()
    assert found[0] == pytest.approx(loss.item(), rel=1e-5)
    assert found[1] == 100 * int((mean.argmax(1) == given.labels).sum())
    with torch.inference_mode():
        torch.testing.assert_close(learned.answers(model, given.pixels).softmax(1), mean)


def test_what_an_evaluation_made_in_inference_mode_serves_training_too() -> None:
    classify.normalisation.cache_clear()
    learned, model = task(image=ImageConfig(resolution=8, test_flip=True)), network()
    inputs = learned.moved(batch(), CPU)
    with torch.inference_mode():
        scores = learned.score(model, inputs)
    assert scores[3] == 6
    mean, _ = classify.normalisation(CPU, classify.MEAN, classify.STD)
    assert not mean.is_inference()
    loss, _ = learned.loss(model, inputs)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_draws_follow_a_batch_to_the_device() -> None:
    drawn = batch(EVERYTHING).mix
    inputs = task(augment=EVERYTHING).moved(batch(EVERYTHING), CPU)
    assert drawn is not None and inputs.mix is not None and drawn.shifts is not None
    assert inputs.mix.shifts is not None and np.array_equal(inputs.mix.shifts, drawn.shifts)
    assert task().moved(batch(), CPU).mix is None
