import dataclasses

import pytest

from stoker.watch.history import History, joined_ledger, joined_scores
from tests.watch.made_up import scored, spent


def test_few_rows_stay_as_they_are():
    rows = [scored(step) for step in range(2, 200, 2)]
    assert History(joined_scores, rows).rows == rows


def test_a_million_steps_become_few_rows_that_hold_every_sample():
    history = History(joined_scores, (scored(step) for step in range(2, 40_000, 2)), most=100)
    assert 40 <= len(history.rows) <= 100
    assert sum(row.samples for row in history.rows) == 20 * 19_999
    assert [row.step for row in history.rows] == sorted(row.step for row in history.rows)
    assert history.rows[-1].step == 39_998


def test_joined_scores_are_the_mean_over_their_samples_without_what_is_not_finite():
    first = dataclasses.replace(scored(2), samples=10, scores={"loss": 1.0, "top1": None})
    then = dataclasses.replace(scored(4), samples=30, scores={"loss": 2.0, "top1": 40.0})
    joined = joined_scores(first, then)
    assert joined.scores == {"loss": pytest.approx(1.75), "top1": 40.0}
    assert (joined.step, joined.samples) == (4, 40)


def test_joined_times_add_up_and_what_was_never_measured_stays_so():
    first, then = spent(2), spent(4)
    first.seconds["host"] = then.seconds["host"] = None
    joined = joined_ledger(first, then)
    assert joined is not None
    assert joined.seconds["compute"] == pytest.approx(0.36) and joined.seconds["host"] is None
    assert (joined.step, joined.steps, joined.samples) == (4, 4, 40)


def test_rows_of_different_starts_are_not_joined():
    assert joined_ledger(spent(2), spent(4, attempt=2)) is None
    rows = [spent(2, attempt=number) for number in range(500)]
    assert len(History(joined_ledger, rows, most=100).rows) == 100
