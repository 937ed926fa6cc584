from dataclasses import replace
from typing import Any

import pytest

from stoker.records import Event
from stoker.report.account import Account
from stoker.report.questions import schedule
from tests.report.accounts import NOW, plain

HELD = [(2.0, 30.0), (1.5, 50.0), (1.2, 60.0), (1.1, 62.0)]
KINDS: list[dict[str, Any]] = [
    {"schedule": "constant"},
    {"schedule": "constant", "warmup_epochs": 1.5},
    {"schedule": "linear", "warmup_epochs": 0.5},
    {"schedule": "cosine"},
    {"schedule": "onecycle"},
    {"schedule": "onecycle", "warmup_epochs": 1},
    {"schedule": "step", "drop_epochs": (1, 3), "drop_factor": 0.3},
    {"optimizer": "adamw", "lr": 0.002},
    {"peak_lr": 0.3},
]


def with_rates(found: Account, factor: Any) -> Account:
    """The same run with its recorded rates multiplied by something that depends on the step."""
    rows = [replace(row, lr=(row.lr or 0) * factor(row.step)) for row in found.training]
    return replace(found, training=tuple(rows))


@pytest.mark.parametrize("values", KINDS)
def test_the_recorded_rates_of_every_schedule_are_found_to_match(values: dict[str, Any]):
    found = schedule.asked(plain(HELD, **values))
    assert found.is_known and found.chart == "rates"
    assert "all 8 recorded rates are those of the schedule" in found.evidence


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "Cosine over 4 epochs, without a warm-up: the rate falls from its peak along half a cosine to nothing."),
        ({"warmup_epochs": 1}, "after a straight warm-up of 1 epochs"),
        ({}, "Its peak is 0.025: 0.1 for 256 samples a step (sgd), scaled in proportion to 64 samples"),
        ({"optimizer": "adamw", "lr": 0.002}, "Its peak is 0.001: 0.002 for 256 samples a step (adamw), scaled by the "
                                              "square root to 64 samples"),
        ({"peak_lr": 0.3}, "Its peak of 0.3 is as given; the rule for 64 samples a step would say 0.025."),
        ({"schedule": "onecycle"}, "One cycle over 4 epochs: the rate rises along half a cosine from 1/25 of its peak "
                                   "over 30 % of the run"),
        ({"schedule": "step", "drop_epochs": (3, 2, 9)}, "multiplied by 0.1 after 2, 3 of 4 epochs."),
        ({"schedule": "step"}, "multiplied by 0.1 never within 4 epochs."),
        ({"schedule": "constant"}, "the rate stays at its peak"),
    ],
)  # fmt: skip
def test_a_schedule_is_explained(values: dict[str, Any], said: str):
    assert said in schedule.asked(plain(HELD, **values)).answer


def test_stages_are_listed_with_their_peaks():
    found = schedule.asked(plain(HELD, stages="160@128 x 2, 224@64 x 2 lr 0.07"))
    assert found.evidence[0] == "stage 1: 2 epochs of 160 pixels with 128 samples a step: peak 0.05"
    assert found.evidence[1] == "stage 2: 2 epochs of 224 pixels with 64 samples a step: peak 0.07 (as given)"


def test_a_rate_that_was_halved_by_a_rollback_is_told():
    what = "the loss is nan; goes back, with 0.5 x the rate"
    found = with_rates(plain(HELD), lambda step: 0.5 if step > 200 else 1.0)
    answered = schedule.asked(replace(found, events=(Event(at=NOW, kind="rollback", what=what),)))
    assert "all 8 recorded rates are those of the schedule, but for rollbacks" in answered.evidence
    assert "0.5 x the schedule's rate from step 225 on" in answered.evidence
    assert f"rollback: {what}" in answered.evidence


def test_rates_that_are_not_the_schedule_s_are_told():
    found = schedule.asked(with_rates(plain(HELD), lambda step: 0.7 if step > 300 else 1.0))
    assert "6 of 8 recorded rates are those of the schedule; from step 325 on others are not (why: not known)" in (
        found.evidence
    )


def test_without_the_size_of_the_data_nothing_is_compared():
    found = schedule.asked(plain(HELD, opened={}))
    assert found.is_known
    assert any("whether the recorded rates follow it is not known" in line for line in found.evidence)


def test_a_batch_that_was_never_fixed_is_no_stumbling_block():
    found = schedule.asked(plain(HELD, batch="auto"))
    assert not found.is_known and "the batch was never fixed" in found.answer


def test_without_settings_the_recorded_rates_are_still_shown():
    found = plain(HELD)
    answered = schedule.asked(replace(found, evidence=replace(found.evidence, config=None)))
    assert not answered.is_known
    assert answered.evidence[0].startswith("recorded: 0.02")
