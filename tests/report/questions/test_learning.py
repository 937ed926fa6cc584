import math

import pytest

from stoker.report.questions import learning


def test_a_line_and_the_bounds_of_its_slope_are_those_of_the_textbook():
    # Slope 1.96, residual deviation sqrt(0.0433), width 10; t of three degrees of freedom is 3.182.
    fit = learning.linear_fit([1, 2, 3, 4, 5], [2.1, 3.9, 6.2, 7.8, 9.9])
    assert fit is not None
    rest = sum((y - (0.13 + 1.95 * x)) ** 2 for x, y in zip([1, 2, 3, 4, 5], [2.1, 3.9, 6.2, 7.8, 9.9]))
    error = 3.182 * math.sqrt(rest / 3 / 10)
    assert fit.slope == pytest.approx(1.95)
    assert (fit.low, fit.high) == (pytest.approx(1.95 - error), pytest.approx(1.95 + error))
    assert fit.end == pytest.approx(0.13 + 1.95 * 5)


def test_points_on_a_line_leave_no_doubt():
    fit = learning.linear_fit([0, 10, 20], [5, 4, 3])
    assert fit is not None
    assert (fit.low, fit.slope, fit.high) == (pytest.approx(-0.1),) * 3


@pytest.mark.parametrize(("xs", "ys"), [([], []), ([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3])])
def test_points_that_make_no_line_give_none(xs: list[float], ys: list[float]):
    assert learning.linear_fit(xs, ys) is None


def test_many_points_are_bounded_as_the_normal_distribution_has_it():
    assert learning.student(1) == 12.706
    assert learning.student(30) == 2.042
    assert learning.student(31) == learning.student(10_000) == 1.96


def test_a_correlation_comes_with_the_bounds_of_fisher():
    xs, ys = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 3.0, 2.0, 5.0, 4.0, 6.0]
    found = learning.correlation(xs, ys)
    assert found is not None and found.points == 6
    assert found.r == pytest.approx(0.8857, abs=1e-4)
    middle, error = math.atanh(found.r), 1.96 / math.sqrt(3)
    assert (found.low, found.high) == (
        pytest.approx(math.tanh(middle - error)),
        pytest.approx(math.tanh(middle + error)),
    )


def test_a_perfect_correlation_does_not_fail():
    found = learning.correlation([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert found is not None and found.r == pytest.approx(1) and found.high <= 1


def test_what_does_not_vary_has_no_correlation():
    assert learning.correlation([1, 1, 1, 1], [1, 2, 3, 4]) is None
    assert learning.correlation([1, 2, 3, 4], [1, 1, 1, 1]) is None
    assert learning.correlation([1, 2, 3], [1, 2, 3]) is None


def test_a_value_counts_by_its_weight():
    found = learning.summary([1.0, 3.0], [9, 1])
    assert found is not None
    assert found.mean == pytest.approx(1.2)
    assert found.deviation == pytest.approx(0.6)
    assert (found.low, found.middle, found.high) == (1.0, 1.0, 3.0)
    assert learning.quantile([2.0, 1.0], [1, 1], 0.5) == 1.0
    assert learning.summary([1.0], [0]) is None and learning.summary([], []) is None


def test_the_trend_is_of_the_last_points_alone():
    # It fell, and has risen since.
    values = [3.0, 2.0, 1.5, 1.0, 1.1, 1.2, 1.3, 1.4]
    found = learning.trend(range(1, 9), values, is_loss=True)
    assert found is not None
    assert (found.kind, found.fit.points, found.best, found.best_at, found.gained) == ("worse", 5, 1.0, 4, 2.0)
    assert found.fit.slope == pytest.approx(0.1)
    assert found.late_share == 0.0


def test_a_higher_score_is_better_and_a_higher_loss_is_worse():
    rising = [1.0, 2.0, 3.0, 4.0, 5.0]
    loss, score = (learning.trend(range(5), rising, is_loss=is_loss) for is_loss in (True, False))
    assert loss is not None and score is not None
    assert (loss.kind, score.kind) == ("worse", "better")
    assert (loss.best, score.best) == (1.0, 5.0)
    assert loss.gained == 0 and loss.late_share is None
    assert score.late_share == pytest.approx(0.25)


def test_a_curve_that_swings_is_neither_flat_nor_moving():
    for values in ([9, 5, 7, 4, 8, 5, 9, 6], [5, 1, 4, 2], [2, 4, 1, 5]):
        found = learning.trend(range(len(values)), values, is_loss=True)
        assert found is not None and found.kind == "unclear"


def test_a_sure_change_that_is_too_small_counts_as_flat():
    values = [100.0, 50.0, 1.0, *(1 - 0.001 * step for step in range(6))]
    found = learning.trend(range(9), values, is_loss=True)
    assert found is not None and found.kind == "flat"
    assert found.fit.high < 0


def test_fewer_than_four_points_have_no_trend():
    assert learning.trend([1, 2, 3], [3, 2, 1], is_loss=True) is None
    assert learning.trend([1, 2, 3, 4], [4, 3, 2, 1], is_loss=True) is not None


def test_an_outlook_may_stay_where_it_is_and_goes_no_further_than_can_be():
    found = learning.trend(range(5), [50.0, 60.0, 70.0, 80.0, 90.0], is_loss=False)
    assert found is not None
    ahead = learning.outlook(found, more=4, least=0, most=100)
    assert (ahead.low, ahead.likely, ahead.high) == (90.0, 100.0, 100.0)
    falling = learning.trend(range(5), [5.0, 4.0, 3.0, 2.0, 1.0], is_loss=True)
    assert falling is not None
    ahead = learning.outlook(falling, more=0.5, least=0, most=math.inf)
    assert (ahead.low, ahead.likely, ahead.high) == (pytest.approx(0.5), pytest.approx(0.5), 1.0)
