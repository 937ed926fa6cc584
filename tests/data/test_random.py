import numpy as np
import pytest

from stoker.data import random


def drawn(**changes: object) -> list[float]:
    asked = {"seed": 7, "epoch": 3, "positions": np.array([11]), "purpose": random.CROP, "count": 5, **changes}
    return random.uniforms(asked.pop("seed"), **asked)[0].tolist()


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_vectors_of_random123(counter: str, key: str, expected: str):
    counters = np.array([[int(word, 16) for word in counter.split()]], np.uint32)
    first, second = (int(word, 16) for word in key.split())
    assert " ".join(f"{word:08x}" for word in random.philox(counters, (first, second))[0]) == expected


def test_draws_of_a_position_do_not_depend_on_the_others_asked_with_it():
    positions = np.array([0, 5, 4, 2**33, 5])
    together = random.uniforms(1, epoch=2, positions=positions, purpose=random.CROP, count=23)
    alone = [
        random.uniforms(1, epoch=2, positions=positions[k : k + 1], purpose=random.CROP, count=23)[0] for k in range(5)
    ]
    assert np.array_equal(together, alone)


def test_asking_for_more_numbers_keeps_the_first_ones():
    assert drawn(count=23)[:5] == drawn(count=5)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 8},
        {"seed": 7 + 2**32},
        {"epoch": 4},
        {"purpose": random.ORDER},
        {"positions": np.array([12])},
        {"positions": np.array([11 + 2**32])},
        {"positions": np.array([11 + 2**40])},
    ],
    ids=str,
)
def test_what_a_draw_is_for_decides_all_of_its_numbers(other: dict[str, object]):
    assert not set(drawn(count=23)) & set(drawn(count=23, **other))


def test_purposes_are_all_different():
    assert len({random.CROP, random.ORDER, random.TORCH, random.DIALS}) == 4


def test_a_uniform_is_the_middle_of_its_words_interval_so_never_0_nor_1():
    asked = {"epoch": 0, "positions": np.arange(50), "purpose": random.CROP, "count": 5}
    assert np.unique(random.uniforms(0, **asked) * 2.0**32 - random.words(0, **asked)).tolist() == [0.5]


def test_uniforms_lie_inside_0_and_1_and_spread_evenly_over_it():
    found = random.uniforms(0, epoch=0, positions=np.arange(20_000), purpose=random.CROP, count=5)
    tenths = np.bincount((found * 10).astype(int).ravel(), minlength=10)
    assert found.min() > 0 and found.max() < 1
    assert tenths.min() > 9_600 and tenths.max() < 10_400


def test_a_block_without_numpy_is_the_same_block() -> None:
    for seed, epoch, position in ((0, 0, 0), (2**40 + 5, 3, 7), (1, 2**32 - 1, 2**33 + 1)):
        many = random.words(seed, epoch=epoch, positions=np.array([position]), purpose=random.TORCH, count=4)[0]
        assert random.word_block(seed, epoch=epoch, position=position, purpose=random.TORCH) == tuple(many.tolist())
