from dataclasses import replace

import pytest

from stoker.records import LedgerRow
from stoker.report.comparison import target
from tests.report.compared import ledger

# Two epochs of twenty steps of 0.1 s, after 10 s of setup; 4 s for each evaluation.
ROWS = ledger((20.0, 50.0), 0.1)


def later(rows: list[LedgerRow], *, seconds: float, down: float) -> list[LedgerRow]:
    """The same lines after a restart that took some seconds, and some of being down."""
    more = {"lost": seconds, "down": down}
    return [replace(row, attempt=2, totals={**row.totals, **more}) for row in rows]


def test_an_evaluation_is_over_in_the_line_after_its_step():
    found = target.moment(ROWS, 20)
    assert found is not None and found.wall_seconds == pytest.approx(10 + 2 + 4)


def test_the_last_evaluation_is_over_in_the_last_line():
    found = target.moment(ROWS, 40)
    assert found is not None and found.wall_seconds == pytest.approx(10 + 4 + 8)


def test_the_evaluation_before_is_not_taken_for_the_one_that_is_meant():
    # Epochs of one line each: the line that ends with a step holds the evaluation of the epoch before.
    rows = [row for row in ROWS if row.step % 20 == 0]
    rows[2] = replace(rows[2], seconds={**ROWS[3].seconds, "compute": 1.6, "data_wait": 0.4})
    found = target.moment(rows, 40)
    assert found is not None and found.wall_seconds == pytest.approx(10 + 4 + 8)


def test_killed_before_the_next_line_the_evaluation_itself_is_not_known():
    found = target.moment(ROWS[:3], 20)
    assert found is not None and found.wall_seconds == pytest.approx(10 + 2)
    assert target.moment(ROWS[:2], 20) is None


def test_work_that_was_done_twice_counts_twice():
    # Killed after step 30, and begun again at step 10: the evaluation that counts is the second one.
    rows = [*ROWS[:4], *later(ROWS[1:], seconds=7.0, down=100.0)]
    found = target.moment(rows, 20)
    assert found is not None and found.wall_seconds == pytest.approx(10 + 2 + 4 + 107) and found.down_seconds == 100.0


def test_an_evaluation_before_an_interruption_stays_where_it_was():
    begun = replace(ROWS[4], steps=0, seconds={})
    rows = [*ROWS[:5], *later([begun, ROWS[5]], seconds=7.0, down=100.0)]
    first, last = target.moment(rows, 20), target.moment(rows, 40)
    assert first is not None and first.wall_seconds == pytest.approx(16) and first.down_seconds == 0.0
    assert last is not None and last.wall_seconds == pytest.approx(22 + 107)
