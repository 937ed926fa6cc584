import numpy as np
import pytest
import torch
from torch.nn import functional
from torchvision import transforms

from stoker.data.augment import Box
from stoker.data.mix import Mix
from stoker.tasks import mixing
from stoker.tasks.mixing import DeviceMix

CPU = torch.device("cpu")
FORMATS = [torch.channels_last, torch.contiguous_format]
CUT = Mix(kind="cutmix", weight=1 - 6 / 30, box=Box(left=2, top=1, width=3, height=2))
MIXED = Mix(kind="mixup", weight=0.7)


def on_device(mix: Mix) -> DeviceMix:
    return mixing.moved(mix, CPU)


def pictures(memory_format: torch.memory_format, *, count: int = 4) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(count, 3, 5, 6).to(memory_format=memory_format)


def test_pixels_are_moved_and_black_comes_in():
    shifts = np.array([[0, 0], [2, 0], [-1, 0], [0, 3], [0, -2], [1, -1], [-4, 5], [5, 0], [0, -6], [9, -9]])
    pixels = torch.randint(1, 256, (len(shifts), 5, 6, 3), dtype=torch.uint8)
    expected = np.zeros(pixels.shape, np.uint8)
    for number, (down, across) in enumerate(shifts):
        for row in range(5):
            for column in range(6):
                if 0 <= row + down < 5 and 0 <= column + across < 6:
                    expected[number, row + down, column + across] = pixels[number, row, column]
    before = pixels.clone()
    found = mixing.translated(pixels, on_device(Mix(shifts=shifts)))
    assert found.dtype == torch.uint8 and np.array_equal(found, expected)
    assert torch.equal(pixels, before)


def test_shifts_are_the_crops_that_torchvision_takes_of_a_padded_picture():
    pixels = torch.randint(1, 256, (1, 8, 8, 3), dtype=torch.uint8)
    crop = transforms.RandomCrop(8, padding=2)
    torch.manual_seed(3)
    theirs = {crop(pixels.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).numpy().tobytes() for _ in range(400)}
    shifts = np.array([[down, across] for down in range(-2, 3) for across in range(-2, 3)])
    ours = mixing.translated(pixels.expand(25, -1, -1, -1), on_device(Mix(shifts=shifts)))
    assert {picture.numpy().tobytes() for picture in ours} == theirs


@pytest.mark.parametrize("memory_format", FORMATS)
def test_erased_boxes_are_zero_and_the_rest_is_untouched(memory_format: torch.memory_format):
    boxes = np.array([[1, 2, 3, 2], [0, 0, 0, 0], [0, 0, 5, 1], [4, 5, 1, 1]])
    given = pictures(memory_format)
    expected = given.clone()
    for number, (top, left, height, width) in enumerate(boxes):
        expected[number, :, top : top + height, left : left + width] = 0
    found = mixing.blended(given, on_device(Mix(erased=boxes)))
    assert torch.equal(found, expected) and int((found == 0).sum()) == 3 * (6 + 5 + 1)
    assert found.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("count", [2, 4])
def test_mixup_adds_the_next_picture_by_its_share(memory_format: torch.memory_format, count: int):
    given = pictures(memory_format, count=count)
    expected = [0.7 * given[number] + 0.3 * given[(number + 1) % count] for number in range(count)]
    found = mixing.blended(given.clone(), on_device(MIXED))
    torch.testing.assert_close(found, torch.stack(expected))
    assert found.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("count", [2, 4])
def test_cutmix_takes_a_box_of_the_next_picture(memory_format: torch.memory_format, count: int):
    given = pictures(memory_format, count=count)
    expected = given.clone()
    for number in range(count):
        expected[number, :, 1:3, 2:5] = given[(number + 1) % count, :, 1:3, 2:5]
    found = mixing.blended(given.clone(), on_device(CUT))
    assert torch.equal(found, expected) and not torch.equal(found, given)
    assert found.is_contiguous(memory_format=memory_format)


def test_what_is_erased_of_a_picture_is_missing_where_it_is_mixed_in():
    boxes = np.array([[0, 0, 0, 0], [0, 0, 5, 6]])
    found = mixing.blended(
        pictures(torch.channels_last, count=2), on_device(Mix(erased=boxes, kind="mixup", weight=0.6))
    )
    torch.testing.assert_close(found[0], 0.6 * pictures(torch.channels_last, count=2)[0])


def test_without_draws_nothing_is_done():
    pixels = torch.zeros(2, 5, 6, 3, dtype=torch.uint8)
    given = pictures(torch.channels_last)
    for mix in (None, on_device(Mix())):
        assert mixing.translated(pixels, mix) is pixels and mixing.blended(given, mix) is given


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mix", [None, Mix(), MIXED, CUT])
def test_the_loss_is_torchs_against_labels_mixed_and_smoothed(smoothing: float, mix: Mix | None):
    torch.manual_seed(1)
    logits, labels = torch.randn(4, 7), torch.tensor([0, 3, 3, 6])
    weight = 1.0 if mix is None else mix.weight
    one_hot = functional.one_hot(labels, 7).float()
    blended = weight * one_hot + (1 - weight) * one_hot[[1, 2, 3, 0]]
    softened = blended * (1 - smoothing) + smoothing / 7
    expected = -(softened * logits.log_softmax(1)).sum(1).mean()
    found = mixing.cross_entropy(logits, labels, None if mix is None else on_device(mix), smoothing=smoothing)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found, functional.cross_entropy(logits, blended, label_smoothing=smoothing))


@pytest.mark.parametrize(("mix", "weight"), [(None, 1.0), (Mix(), 1.0), (MIXED, 0.7), (CUT, 0.8)])
def test_a_hit_of_either_label_counts_by_its_share(mix: Mix | None, weight: float):
    ranked = [[0, 1, 2, 3, 4, 5], [3, 1, 2, 0, 4, 5], [5, 4, 3, 2, 1, 0], [1, 0, 2, 3, 5, 4]]
    logits, labels = -torch.tensor(ranked).argsort(1).float(), [5, 3, 0, 1]
    # Of its own label each of two rows is right, of the next one's none; among five more are.
    top1 = sum(
        weight * (labels[k] == row[0]) + (1 - weight) * (labels[k - 3] == row[0]) for k, row in enumerate(ranked)
    )
    top5 = sum(
        weight * (labels[k] in row[:5]) + (1 - weight) * (labels[k - 3] in row[:5]) for k, row in enumerate(ranked)
    )
    found = mixing.hits(logits, torch.tensor(labels), None if mix is None else on_device(mix))
    assert [value.item() for value in found] == pytest.approx([100 * top1, 100 * top5], abs=1e-9)
    assert found[0] == pytest.approx(200 * weight) and (weight == 1) == (found[1] == 200)
