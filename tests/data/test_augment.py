import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import v2

from stoker.data import augment
from stoker.data.augment import Box

SCALE, RATIO = (0.08, 1.0), (0.75, 4 / 3)
MANY = 5000


def crops(width: int, height: int, *, scale: tuple[float, float] = SCALE, count: int = MANY) -> list[Box]:
    drawn = augment.draws(3, epoch=0, positions=np.arange(count)).tolist()
    return [augment.random_crop(width, height, drawn=row, scale=scale, ratio=RATIO) for row in drawn]


def theirs(width: int, height: int, *, scale: tuple[float, float] = SCALE, count: int = MANY) -> list[Box]:
    torch.manual_seed(0)
    picture = Image.new("L", (width, height))
    found = (transforms.RandomResizedCrop.get_params(picture, list(scale), list(RATIO)) for _ in range(count))
    return [Box(left=left, top=top, width=w, height=h) for top, left, h, w in found]


@pytest.mark.parametrize(("width", "height"), [(400, 300), (300, 400), (500, 500), (33, 20), (1000, 10), (3, 1)])
def test_a_random_crop_lies_inside_its_picture(width: int, height: int):
    for box in crops(width, height, count=1000):
        assert 0 <= box.left <= box.left + box.width <= width
        assert 0 <= box.top <= box.top + box.height <= height
        assert box.width >= 1 and box.height >= 1


@pytest.mark.parametrize(("width", "height"), [(400, 300), (300, 400), (500, 500)])
def test_a_random_crop_keeps_to_the_areas_and_shapes_asked_for(width: int, height: int):
    whole = width * height
    for box in crops(width, height, scale=(0.2, 0.6), count=1000):
        # Sides are rounded to whole pixels.
        assert (box.width + 0.5) * (box.height + 0.5) >= 0.2 * whole
        assert (box.width - 0.5) * (box.height - 0.5) <= 0.6 * whole
        assert (box.width + 0.5) / (box.height - 0.5) >= RATIO[0]
        assert (box.width - 0.5) / (box.height + 0.5) <= RATIO[1]


@pytest.mark.parametrize(("width", "height"), [(400, 300), (240, 400)])
def test_random_crops_are_on_average_those_of_torchvision(width: int, height: int):
    ours, expected = crops(width, height), theirs(width, height)
    for value in (
        lambda box: box.width * box.height,
        lambda box: box.width / box.height,
        lambda box: box.left + box.width / 2,
        lambda box: box.top + box.height / 2,
    ):
        assert np.mean([value(b) for b in ours]) == pytest.approx(np.mean([value(b) for b in expected]), rel=0.02)


def test_random_crops_reach_every_edge_of_the_picture():
    boxes = crops(40, 30, scale=(0.08, 0.2))
    assert min(b.left for b in boxes) == min(b.top for b in boxes) == 0
    assert max(b.left + b.width for b in boxes) == 40 and max(b.top + b.height for b in boxes) == 30


@pytest.mark.parametrize(("width", "height"), [(1000, 10), (10, 1000), (900, 31), (1, 50)])
def test_a_picture_too_long_for_any_crop_gives_the_middle_as_torchvision_does(width: int, height: int):
    # No box of 90 % of such a picture has an allowed shape, so there is no chance in it.
    [ours], [expected] = crops(width, height, scale=(0.9, 1.0), count=1), theirs(width, height, scale=(0.9, 1), count=1)
    assert ours == expected


@pytest.mark.parametrize(("probability", "least", "most"), [(0.0, 0, 0), (0.3, 1380, 1620), (1.0, MANY, MANY)])
def test_pictures_are_flipped_as_often_as_asked_for(probability: float, least: int, most: int):
    drawn = augment.draws(3, epoch=0, positions=np.arange(MANY)).tolist()
    assert least <= sum(augment.is_flipped(row, probability) for row in drawn) <= most


def test_whether_a_picture_is_flipped_says_nothing_about_its_crop():
    drawn = augment.draws(3, epoch=0, positions=np.arange(MANY)).tolist()
    boxes = crops(400, 300)
    flipped = [box.left for box, row in zip(boxes, drawn) if augment.is_flipped(row, 0.5)]
    assert np.mean(flipped) == pytest.approx(np.mean([box.left for box in boxes]), rel=0.08)


@pytest.mark.parametrize(
    ("width", "height"), [(500, 375), (375, 500), (256, 256), (203, 200), (200, 203), (33, 20), (1, 1), (700, 9)]
)
@pytest.mark.parametrize("crop", [0.875, 0.95, 1.0])
def test_the_centre_box_is_what_resizing_and_cropping_keeps(width: int, height: int, crop: float):
    box = augment.centre_box(width, height, resolution=224, crop=crop)
    resized = v2.Resize(round(224 / crop))(Image.new("L", (width, height)))
    across, down = resized.width / width, resized.height / height
    kept = [box.left * across, box.top * down, box.width * across, box.height * down]
    left, top = round((resized.width - 224) / 2), round((resized.height - 224) / 2)
    assert kept == pytest.approx([left, top, 224, 224])
