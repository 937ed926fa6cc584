"""A ledger of which some lines are left out looks like one of which fewer lines were written."""

from dataclasses import replace

import pytest

from stoker.machine import evidence
from stoker.machine.intervals import apart, widened
from stoker.records import LedgerRow
from tests.machine.made_up import ledger

STEP = {"data_wait": 0.1, "compute": 0.2, "optimizer": 0.05, "host": None, "checkpoint": 0.01}
ROWS = ledger(STEP, lines=60, read=0.3, decode=0.4, device="cpu")


def wall_seconds(rows: tuple[LedgerRow, ...]) -> float:
    return sum(value or 0.0 for row in rows for value in row.seconds.values())


def test_steps_samples_and_seconds_are_those_of_all_lines() -> None:
    found = widened((*ROWS[::7], ROWS[-1]))
    assert sum(row.steps for row in found) == sum(row.steps for row in ROWS)
    assert sum(row.samples for row in found) == sum(row.samples for row in ROWS)
    assert wall_seconds(found) == pytest.approx(wall_seconds(ROWS))
    assert [row.step for row in found] == [row.step for row in (*ROWS[::7], ROWS[-1])]
    assert sum(row.read_seconds for row in found) == pytest.approx(sum(row.read_seconds for row in ROWS))
    assert sum(row.decode_seconds for row in found) == pytest.approx(sum(row.decode_seconds for row in ROWS))


def test_what_a_step_takes_is_the_same() -> None:
    whole, found = evidence.pace(ROWS), evidence.pace(widened((*ROWS[::7], ROWS[-1])))
    assert whole is not None and found is not None
    assert found.seconds == pytest.approx(whole.seconds)
    assert found.whole_seconds == pytest.approx(whole.whole_seconds)
    assert (found.batch, found.read_seconds) == pytest.approx((whole.batch, whole.read_seconds))


def test_what_was_not_measured_stays_so() -> None:
    assert all(row.seconds["host"] is None for row in widened(ROWS[::10]))
    begins = replace(ROWS[20], totals={**ROWS[20].totals, "host": 1.0}, seconds={**ROWS[20].seconds, "host": 1.0})
    assert widened((ROWS[10], begins))[1].seconds["host"] is None, "since when it is measured is not known"


def test_the_first_line_of_another_start_stays_as_it_is() -> None:
    later = ledger(STEP, lines=5, attempt=2)
    assert apart(ROWS[-1], later[0]) and not apart(ROWS[0], ROWS[-1])
    found = widened((ROWS[0], ROWS[30], later[1], later[4]))
    assert found[2] == later[1]
    assert found[3].steps == 30


def test_a_line_after_training_went_back_stays_as_it_is() -> None:
    back = replace(ROWS[10], at=1e6)
    assert apart(ROWS[40], back)
    assert widened((ROWS[40], back))[1] == back
    less = replace(ROWS[50], totals={**ROWS[50].totals, "compute": 0.0})
    assert widened((ROWS[40], less))[1] == less, "its time has been moved to what is lost"


def test_time_that_was_moved_leaves_nothing_below_zero() -> None:
    moved = replace(ROWS[50], totals={**ROWS[50].totals, "checkpoint": (ROWS[40].totals["checkpoint"] or 0.0) - 1e-12})
    row = widened((ROWS[40], moved))[1]
    assert row.steps == 100 and row.seconds["checkpoint"] == 0.0


def test_a_last_line_without_steps_takes_its_samples_from_the_line_before() -> None:
    last = replace(ROWS[-1], steps=0, samples=0, read_seconds=0.0, decode_seconds=0.0)
    found = widened((*ROWS[:11:10], last))
    assert sum(row.samples for row in found) == 600 * 64
    assert found[-1].decode_seconds == pytest.approx(500 * 0.4)


def test_nothing_becomes_nothing() -> None:
    assert widened(()) == () and widened(ROWS[:1]) == ROWS[:1]
