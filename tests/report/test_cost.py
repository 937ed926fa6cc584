"""What a run has cost: seconds of which every one is known, because they were put there."""

from dataclasses import replace
from typing import Any

import pytest

from stoker.errors import Problem
from stoker.machine.evidence import Evidence
from stoker.records import Attempt, GaugeRow
from stoker.report import cost
from tests.machine.made_up import evidence, ledger

STEP = {"compute": 0.4, "optimizer": 0.1}


def start(begin: float, end: float | None) -> Attempt:
    return Attempt(started_at=begin, host="h1", world=1, ended_at=end, status="running" if end is None else "stopped")


def run(*attempts: Attempt, state: str = "stopped", **changes: Any) -> Evidence:
    """Sixty of a hundred steps of half a second, written down from second 100 to second 106."""
    given = {"data": {"train_samples": 640}, "batch": 64, "epochs": 10, **changes}
    found = evidence(ledger(STEP, lost=7.0), status="running" if state == "running" else "stopped", **given)
    assert found.record is not None
    return replace(found, state=state, record=replace(found.record, attempts=attempts))


def of(found: Evidence, *, pack_seconds: float | None = None, now: float = 500.0) -> cost.Cost:
    return cost.of(found, pack_seconds=pack_seconds, now=now)


def ended(found: Evidence, status: Any) -> Evidence:
    assert found.record is not None
    return replace(found, state=status, record=replace(found.record, status=status))


def gauge(at: float) -> GaugeRow:
    return GaugeRow(
        at=at, rank=0, host="h1", seconds=1.0, gpus=None, cpu_percent=None, process_cpu_percent=None,
        memory_used_bytes=None, memory_available_bytes=None, disk_read_bytes_per_second=None,
        disk_write_bytes_per_second=None, process_read_bytes_per_second=None, network=None, iowait_percent=None,
    )  # fmt: skip


def test_a_machine_is_held_from_each_start_to_its_end() -> None:
    found = of(run(start(90.0, 120.0), start(150.0, 170.0)))
    assert (found.run_seconds, found.down_seconds, found.lost_seconds) == (50.0, 30.0, 7.0)


def test_a_killed_start_ends_with_its_last_sign_of_life() -> None:
    killed = run(start(90.0, None), start(150.0, 170.0))
    assert of(killed).run_seconds == 16.0 + 20.0 and of(killed).down_seconds == 44.0
    seen_later = replace(killed, gauges=(gauge(130.0), gauge(160.0)))
    assert of(seen_later).run_seconds == 40.0 + 20.0, "a gauge of the next start is no sign of this one"
    assert of(run(start(200.0, None))).run_seconds == 0.0


def test_a_run_that_goes_on_has_cost_up_to_now() -> None:
    assert of(run(start(90.0, None), state="running")).run_seconds == 410.0
    assert of(run(start(90.0, None), state="killed; the same command again goes on")).run_seconds == 16.0


def test_only_what_later_starts_did_again_is_lost_beside_what_was_done_for_nothing() -> None:
    beginning = {"restore": 3.0, "setup": 20.0}
    once = tuple(replace(row, totals={**row.totals, **beginning}) for row in ledger(STEP))
    assert of(replace(run(start(90.0, 120.0)), rows={0: once})).lost_seconds == 0.0, "its first start needs these"
    later = {"lost": 7.0, "rollback": 2.0, "restore": 5.0, "setup": 32.0, "compile": 4.0}
    twice = (*once, *(replace(row, totals={**row.totals, **later}) for row in ledger(STEP, attempt=2)))
    found = replace(run(start(90.0, 120.0), start(150.0, 170.0)), rows={0: twice})
    assert cost.setbacks(found) == {"lost": 7.0, "rollback": 2.0, "restore": 2.0, "setup": 12.0, "compile": 4.0}
    assert of(found).lost_seconds == 27.0


def test_the_time_left_is_that_of_the_steps_left() -> None:
    assert of(run(start(90.0, 120.0))).left_seconds == pytest.approx(40 * 0.5)
    assert of(run(start(90.0, 120.0), epochs=5)).left_seconds == 0.0
    assert of(run(start(90.0, 120.0), data={})).left_seconds is None
    assert of(ended(run(start(90.0, 120.0)), "done")).left_seconds == 0.0


@pytest.mark.parametrize("status", ["diverged", "oom", "timeout", "failed"])
def test_a_run_that_went_wrong_has_no_time_left(status: str) -> None:
    found = of(ended(run(start(90.0, 120.0), dollars_per_hour=1.0), status))
    assert (found.left_seconds, found.in_all_dollars) == (None, None) and found.so_far_dollars is not None
    assert of(run(start(90.0, None), state="killed; the same command again goes on")).left_seconds == pytest.approx(20)


def test_the_price_is_that_of_all_seconds() -> None:
    found = of(run(start(0.0, 3600.0), dollars_per_hour=2.0, epochs=726), pack_seconds=1800.0, now=4000.0)
    assert found.dollars_per_hour == 2.0
    assert found.so_far_dollars == pytest.approx(3.0)
    assert found.in_all_dollars == pytest.approx(3.0 + 2.0)
    assert found.lost_dollars == pytest.approx(7.0 / 1800)
    assert found.pack_dollars == pytest.approx(1.0)
    assert cost.priced(found, 4.0).in_all_dollars == pytest.approx(10.0)
    assert cost.priced(found, None).so_far_dollars is None


@pytest.mark.parametrize("price", [-5.0, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused_even_where_it_is_not_used(price: float) -> None:
    for found in (of(run(start(0.0, 3600.0))), of(run(start(0.0, 3600.0), dollars_per_hour=2.0))):
        for given in (cost.priced, cost.offered):
            with pytest.raises(Problem, match="an hour costs"):
                given(found, price)


def test_a_price_that_is_given_is_for_runs_whose_settings_do_not_say() -> None:
    assert cost.offered(of(run(start(0.0, 3600.0), dollars_per_hour=2.0)), 4.0).so_far_dollars == 2.0
    assert cost.offered(of(run(start(0.0, 3600.0))), 4.0).so_far_dollars == 4.0
    assert cost.offered(of(run(start(0.0, 3600.0))), None).so_far_dollars is None


def test_packing_is_left_out_where_its_time_is_not_known() -> None:
    found = of(run(start(0.0, 3600.0), dollars_per_hour=2.0, data={}))
    assert (found.so_far_dollars, found.pack_dollars, found.in_all_dollars) == (2.0, None, None)


def test_without_a_price_there_are_no_dollars() -> None:
    found = of(run(start(0.0, 3600.0)), pack_seconds=10.0)
    assert {found.so_far_dollars, found.in_all_dollars, found.lost_dollars, found.pack_dollars} == {None}
    assert of(run(start(0.0, 3600.0), dollars_per_hour=0.0)).so_far_dollars == 0.0, "a machine of one's own is free"


def test_what_is_not_known_is_no_zero() -> None:
    nothing = replace(run(), record=None, config=None, rows={})
    assert of(nothing) == cost.Cost(
        run_seconds=None, down_seconds=None, lost_seconds=None, left_seconds=None, pack_seconds=None
    )
