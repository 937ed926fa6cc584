import math
from typing import Any

import pytest

from tests.report.accounts import CONVERGED, IMPROVING, OVERFITTED, TRAINING, answers, plain, told


def test_a_held_out_loss_that_rises_while_training_falls_is_overfitting():
    given = answers(plain(OVERFITTED, TRAINING))["overfitting"]
    assert given.chart == "losses"
    assert given.answer.startswith("Yes: its held-out loss was lowest after 8 epochs (0.99")
    assert told(given, "gap in top-1: +4.0000 an epoch")
    assert "and is 2.2" in given.answer and "training loss fell from 1.3000 to 0.0500" in given.answer


def test_a_loss_that_has_risen_and_stands_still_now_is_overfitting_too():
    held = [*OVERFITTED[:12], *[(1.5, 80.0)] * 8]
    given = answers(plain(held, TRAINING))["overfitting"]
    assert given.answer.startswith("Yes: ")


def test_a_loss_that_surely_rises_is_overfitting_before_much_is_lost():
    held = [(max(3 - 0.11 * epoch, 1 + 0.015 * epoch), 70.0) for epoch in range(1, 21)]
    given = answers(plain(held, TRAINING))["overfitting"]
    assert given.answer.startswith("Yes: ")


def test_a_gap_that_grows_without_harm_yet_is_told():
    held = [(1 + math.exp(-epoch / 2), 70 - 30 * math.exp(-epoch / 2)) for epoch in range(1, 21)]
    given = answers(plain(held, [(max(2.5 - 0.1 * epoch, 0.05), 50.0) for epoch in range(1, 21)]))["overfitting"]
    assert given.answer.startswith("It begins to: at the end its held-out loss is 0.5000 above its training loss, and")
    assert "this gap grows by 0.0999 an epoch" in given.answer


def test_a_loss_that_is_best_at_its_end_is_no_overfitting():
    given = answers(plain(IMPROVING))["overfitting"]
    assert given.answer.startswith("No sign of it: at the end its held-out loss is 0.1000 below its training loss")


def test_a_run_that_gets_worse_on_both_is_not_called_overfitting():
    held = [(1 + 0.1 * abs(epoch - 6), 50.0) for epoch in range(20)]
    given = answers(plain(held, [(loss + 0.1, 50.0) for loss, _ in held]))["overfitting"]
    assert given.answer.startswith("No, but it gets worse on both")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "random crops of 8 % of the picture and more"),
        ({"mixup": 0.2}, "MixUp"),
        ({"cutmix": 1.0}, "CutMix"),
        ({"label_smoothing": 0.1}, "label smoothing of 0.1"),
        ({"ema": 0.999}, "those of the average of the weights"),
    ],
)
def test_what_makes_the_gap_look_smaller_is_said(values: dict[str, Any], said: str):
    assert told(answers(plain(CONVERGED, **values))["overfitting"], said)


def test_unaltered_pictures_have_no_such_word():
    given = answers(plain(CONVERGED, crop_scale=(1.0, 1.0)))["overfitting"]
    assert not told(given, "altered samples")
