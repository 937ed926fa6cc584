import pytest

from tests.report.accounts import CONVERGED, IMPROVING, OVERFITTED, TRAINING, answers, plain, told


def test_a_run_that_has_converged_is_fully_trained_as_far_as_its_schedule_goes():
    given = answers(plain(CONVERGED))["trained"]
    assert given.is_known and given.chart == "scores"
    assert given.answer.startswith(
        "Yes, as far as its last 5 evaluations show: its held-out loss and top-1 stand still"
    )
    assert "4 more epochs would likely " in given.answer
    assert "But its rate had run down by then" in given.answer
    assert told(given, "0.0 % came in the last quarter of the evaluations")
    assert told(given, "more epochs with a new schedule: stoker train --extend runs/one --epochs 25")
    assert told(given, "one evaluation alone is sure to +- 1.9 points")


def test_a_rate_that_has_not_run_down_needs_no_new_schedule():
    given = answers(plain(CONVERGED, schedule="constant"))["trained"]
    assert "run down" not in given.answer
    assert told(given, "more epochs: stoker train --extend runs/one --epochs 25")


def test_a_run_that_still_improves_is_told_what_more_epochs_would_bring():
    given = answers(plain(IMPROVING))["trained"]
    assert given.answer.startswith("Not fully: over the last 5 evaluations the held-out loss fell by 0.09")
    assert "4 more epochs along the same line would bring top-1 from 60.57 % to " in given.answer
    low, high = (float(part.strip(" %.")) for part in given.answer.split("between ")[1].split(". ")[0].split("and"))
    assert low == pytest.approx(60.57) and 74 < high < 78
    assert "They would need a new schedule, since the rate has run down." in given.answer
    share = next(line for line in given.evidence if "by which its top-1 got better" in line)
    assert 15 < float(share.split(", ")[1].split(" %")[0]) < 25


def test_bounds_that_are_far_apart_are_no_prediction():
    scores = [(1.2, 71.0), (1.5, 58.7), (1.3, 64.0), (0.9, 73.0), (0.8, 73.6)]
    given = answers(plain(scores))["trained"]
    assert "How much 3 more epochs would bring can't be told from 4 evaluations that vary so much" in given.answer
    assert "along the same line" not in given.answer


def test_an_overfitted_run_is_past_its_best_by_its_loss():
    given = answers(plain(OVERFITTED, TRAINING))["trained"]
    assert given.answer.startswith(
        "It is past its best, which was after 8 epochs: over the last 5 evaluations the held"
    )
    assert "loss rose by 0.1" in given.answer
    assert told(given, "best held-out loss: 0.99") and told(given, "after 8 epochs (12 epochs before the last)")


def test_a_score_that_improves_while_its_loss_gets_worse_is_told_as_both():
    scores = [(1 + 0.1 * epoch, 40 + 2.0 * epoch) for epoch in range(10)]
    given = answers(plain(scores))["trained"]
    assert given.answer.startswith("Nearly: the held-out top-1 still gets better, but its loss gets worse")


def test_scores_that_swing_do_not_tell():
    scores = [(1 + 0.3 * (epoch % 2), 50 - 9.0 * (epoch % 2)) for epoch in range(10)]
    given = answers(plain(scores))["trained"]
    assert not given.is_known and "vary more than they move" in given.answer


@pytest.mark.parametrize("count", [1, 3])
def test_a_few_evaluations_are_not_enough(count: int):
    given = answers(plain(IMPROVING[:count], epochs=10))
    assert not given["trained"].is_known and "a trend takes 4" in given["trained"].answer
    assert not given["overfitting"].is_known
    assert told(given["trained"], "best held-out top-1") and told(given["overfitting"], f"loss in epoch {count}: ")


def test_a_run_that_diverged_is_not_trained():
    given = answers(plain(CONVERGED, status="diverged", why="the loss explodes"))["trained"]
    assert given.answer == "No: it diverged: the loss explodes."


def test_a_run_that_is_no_better_than_guessing_is_not_called_trained():
    given = answers(plain([(2.4, 9.0), (2.31, 11.0), (2.35, 10.0)]))["trained"]
    assert given.is_known
    assert given.answer == (
        "No: it has learned next to nothing. Its lowest held-out loss is 2.3100, and guessing among 10 classes has "
        "2.3026."
    )
    overconfident = answers(plain([(2.4, 9.0), (2.31, 15.0), (2.35, 14.0)]))["trained"]
    assert not overconfident.is_known
    unknown = answers(plain([(2.4, 9.0), (2.31, 11.0), (2.35, 10.0)], opened={"train_samples": 6400}))["trained"]
    assert not unknown.is_known


def test_a_run_of_stages_is_extended_by_one_more_of_the_last():
    given = answers(plain(CONVERGED, stages="160@64 x 10, 224@64 x 10"))["trained"]
    assert told(given, "stoker train --extend runs/one --stages '160@64 x 10, 224@64 x 10, 224@64 x 5'")
