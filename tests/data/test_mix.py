import numpy as np
import pytest
import torch
from torchvision import transforms

from stoker.config import AugmentConfig
from stoker.data import mix
from stoker.data.augment import Box
from stoker.data.mix import Mix
from stoker.data.order import Pace, training_plans

ALL = AugmentConfig(translate=3, erase=0.5, mixup=0.4, mixup_probability=0.5, cutmix=1.0, cutmix_probability=0.4)
SEED, SIDE, MANY = 7, 32, 4000
ATOMS = 2500


def drawn(config: AugmentConfig, positions: list[int] | range, *, seed: int = SEED, epoch: int = 1) -> Mix:
    found = mix.drawn(config, seed=seed, epoch=epoch, positions=np.array(positions), resolution=SIDE)
    assert found is not None
    return found


def atoms(config: AugmentConfig, *, count: int = ATOMS) -> list[Mix]:
    """What is drawn for many atoms of two samples."""
    return [drawn(config, [2 * number, 2 * number + 1]) for number in range(count)]


def whole(found: Mix) -> list[object]:
    arrays = (found.shifts, found.erased)
    return [*(None if numbers is None else numbers.tolist() for numbers in arrays), found.kind, found.weight, found.box]


def test_settings_that_want_nothing_draw_nothing():
    for config in (AugmentConfig(), AugmentConfig(label_smoothing=0.1)):
        assert mix.drawn(config, seed=0, epoch=0, positions=np.arange(8), resolution=SIDE) is None


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (AugmentConfig(translate=2), "shifts"),
        (AugmentConfig(erase=1.0), "erased"),
        (AugmentConfig(mixup=0.2), "weight"),
        (AugmentConfig(cutmix=1.0, cutmix_probability=1.0), "weight"),
    ],
)
def test_only_what_is_asked_for_is_drawn(config: AugmentConfig, given: str):
    found, plain = drawn(config, range(8)), Mix()
    changed = [name for name in ("shifts", "erased", "weight") if getattr(found, name) is not getattr(plain, name)]
    assert changed == [given]


def test_what_is_done_to_a_sample_follows_from_its_position_alone():
    together = drawn(ALL, range(40, 100))
    parts = [drawn(ALL, range(40, 57)), drawn(ALL, range(57, 99)), drawn(ALL, [99])]
    for name in ("shifts", "erased"):
        assert np.array_equal(getattr(together, name), np.concatenate([getattr(part, name) for part in parts]))


def test_how_an_atom_is_mixed_follows_from_its_first_position():
    for first in range(50):
        a, b = drawn(ALL, [first, 900, 901]), drawn(ALL, [first, 5])
        assert (a.kind, a.weight, a.box) == (b.kind, b.weight, b.box)
    assert len({found.weight for found in atoms(ALL, count=50)}) > 10


def test_any_number_of_processes_draws_the_same_for_every_atom():
    route = Pace(count=90, batch=24, atoms=4, last_step="drop").route(epochs=2, resolution=SIDE)

    def found(world: int, rank: int) -> dict[tuple[int, int], list[object]]:
        plans = training_plans(route, seed=SEED, epoch=0, position=0, rank=rank, world=world)
        return {
            (plan.epoch, int(plan.positions[0])): whole(drawn(ALL, plan.positions.tolist(), epoch=plan.epoch))
            for plan in plans
        }

    alone = found(1, 0)
    assert len(alone) == 24
    for world in (2, 4):
        assert {key: value for rank in range(world) for key, value in found(world, rank).items()} == alone


@pytest.mark.parametrize("other", [{"seed": SEED + 1}, {"epoch": 2}])
def test_another_seed_or_epoch_draws_otherwise(other: dict[str, int]):
    for config in (AugmentConfig(translate=9), AugmentConfig(erase=1.0), AugmentConfig(mixup=1.0), ALL):
        assert whole(drawn(config, range(8))) != whole(drawn(config, range(8), **other))


def test_shifts_are_whole_pixels_of_both_signs_all_as_likely_and_independent():
    shifts = drawn(AugmentConfig(translate=2), range(MANY)).shifts
    assert shifts is not None and shifts.shape == (MANY, 2)
    counts = np.bincount((shifts[:, 0] + 2) * 5 + shifts[:, 1] + 2, minlength=25)
    assert shifts.min() == -2 and shifts.max() == 2 and len(counts) == 25
    # 160 of each are expected, with a deviation of 12.4.
    assert counts.min() > 110 and counts.max() < 210


@pytest.mark.parametrize(("probability", "least", "most"), [(0.25, 880, 1120), (1.0, MANY, MANY)])
def test_pictures_are_erased_as_often_as_asked_for(probability: float, least: int, most: int):
    erased = drawn(AugmentConfig(erase=probability), range(MANY)).erased
    assert erased is not None and erased.shape == (MANY, 4)
    assert least <= (erased[:, 2] > 0).sum() <= most
    assert not erased[erased[:, 2] == 0].any()


def test_erased_boxes_lie_inside_and_have_the_areas_and_shapes_asked_for():
    erased = drawn(AugmentConfig(erase=1.0, erase_area=(0.1, 0.3)), range(MANY)).erased
    assert erased is not None
    top, left, height, width = erased.T
    assert min(top.min(), left.min()) == 0
    assert (top + height).max() == (left + width).max() == SIDE
    # Sides are rounded to whole pixels.
    assert ((height + 0.5) * (width + 0.5) >= 0.1 * SIDE**2).all()
    assert ((height - 0.5) * (width - 0.5) <= 0.3 * SIDE**2).all()
    assert ((height + 0.5) / (width - 0.5) >= 0.3).all() and ((height - 0.5) / (width + 0.5) <= 3.3).all()


@pytest.mark.parametrize("area", [(0.02, 1 / 3), (0.3, 0.9)])
def test_erased_boxes_are_on_average_those_of_torchvision(area: tuple[float, float]):
    torch.manual_seed(0)
    picture = torch.zeros(3, SIDE, SIDE)
    theirs = [transforms.RandomErasing.get_params(picture, list(area), [0.3, 3.3], [0.0])[:4] for _ in range(MANY)]
    expected = np.array(theirs)
    ours = drawn(AugmentConfig(erase=1.0, erase_area=area), range(MANY)).erased
    assert ours is not None
    # Where ten tries fail, theirs is the whole picture, left as it is.
    expected, ours = expected[expected[:, 2] < SIDE], ours[ours[:, 2] > 0]
    assert len(ours) == pytest.approx(len(expected), abs=10) and len(ours) > 0.98 * MANY
    for value in (
        lambda box: box[:, 2] * box[:, 3],
        lambda box: np.log(box[:, 2] / box[:, 3]),
        lambda box: box[:, 0] + box[:, 2] / 2,
        lambda box: box[:, 1] + box[:, 3] / 2,
    ):
        spread = value(expected).std() / MANY**0.5
        assert value(ours).mean() == pytest.approx(value(expected).mean(), abs=6 * spread)


def test_a_box_that_never_fits_erases_nothing():
    config = AugmentConfig(erase=1.0, erase_area=(0.98, 0.99))
    found = mix.drawn(config, seed=0, epoch=0, positions=np.arange(50), resolution=8)
    assert found is not None and found.erased is not None and not found.erased.any()


def test_cutmix_comes_first_and_mixup_takes_its_share_of_the_rest():
    config = AugmentConfig(mixup=1.0, mixup_probability=0.5, cutmix=1.0, cutmix_probability=0.3)
    kinds = [found.kind for found in atoms(config)]
    shares = {kind: kinds.count(kind) / ATOMS for kind in ("plain", "mixup", "cutmix")}
    # A few boxes have no pixel, and then nothing is mixed.
    assert shares == pytest.approx({"plain": 0.352, "mixup": 0.35, "cutmix": 0.298}, abs=0.03)
    assert {found.kind for found in atoms(AugmentConfig(mixup=1.0), count=200)} == {"mixup"}
    assert {found.kind for found in atoms(AugmentConfig(mixup=1.0, mixup_probability=0.0), count=50)} == {"plain"}


@pytest.mark.parametrize("alpha", [0.2, 1.0, 8.0])
def test_mixup_leaves_a_sample_the_larger_part_of_beta(alpha: float):
    found = np.array([one.weight for one in atoms(AugmentConfig(mixup=alpha))])
    numbers = np.random.default_rng(0).beta(alpha, alpha, 100_000)
    expected = np.maximum(numbers, 1 - numbers)
    assert found.min() >= 0.5 and found.max() <= 1
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert np.quantile(found, share) == pytest.approx(np.quantile(expected, share), abs=0.02)


def paper_weight(numbers: np.random.Generator) -> float:
    """What is left of a picture by the code of the paper, at alpha 1."""
    side = int(SIDE * np.sqrt(1 - numbers.beta(1, 1)))
    middle = numbers.integers(0, SIDE, 2)
    low, high = np.clip(middle - side // 2, 0, SIDE), np.clip(middle + side // 2, 0, SIDE)
    return 1 - float(np.prod(high - low)) / SIDE**2


def test_cutmix_cuts_the_boxes_of_the_paper_and_weighs_what_is_left():
    found = [one for one in atoms(AugmentConfig(cutmix=1.0, cutmix_probability=1.0)) if one.kind == "cutmix"]
    for one in found:
        box = one.box
        assert box is not None and box.width > 0 and box.height > 0
        assert 0 <= box.left <= box.left + box.width <= SIDE and 0 <= box.top <= box.top + box.height <= SIDE
        assert one.weight == pytest.approx(1 - box.width * box.height / SIDE**2) and 0 <= one.weight < 1
    numbers = np.random.default_rng(0)
    expected = [weight for weight in (paper_weight(numbers) for _ in range(30_000)) if weight < 1]
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert np.quantile([one.weight for one in found], share) == pytest.approx(
            np.quantile(expected, share), abs=0.03
        )
    # Where a box lies across says nothing of where it lies down.
    tops, lefts = ([getattr(one.box, name) for one in found] for name in ("top", "left"))
    assert tops != lefts and np.mean(tops) == pytest.approx(np.mean(lefts), abs=1)


def test_a_sample_on_its_own_is_shifted_and_erased_but_never_mixed():
    config = AugmentConfig(translate=3, erase=1.0, cutmix=1.0, cutmix_probability=1.0)
    alone, two = drawn(config, [4]), drawn(config, [4, 5])
    assert (alone.kind, alone.weight, alone.box) == ("plain", 1.0, None) and two.kind == "cutmix"
    assert alone.shifts is not None and alone.erased is not None and alone.erased[0, 2] > 0


def test_draws_are_those_of_earlier_versions():
    # A change of these numbers would change every run that goes on.
    found = drawn(ALL, [11, 12])
    assert found.shifts is not None and found.erased is not None
    assert [found.shifts.tolist(), found.erased.tolist()] == [[[2, 0], [2, -2]], [[18, 13, 9, 16], [22, 5, 7, 21]]]
    assert (found.kind, found.weight, found.box) == ("cutmix", 0.859375, Box(left=10, top=4, width=12, height=12))
    assert mix.beta(0.2, seed=1, epoch=2, position=3) == pytest.approx(0.9745580788038087, rel=1e-12)
