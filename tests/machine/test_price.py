import dataclasses

import pytest

from stoker.machine import catalogue, price
from stoker.machine.catalogue import Instance
from stoker.machine.predict import Interval
from stoker.machine.price import Terms

TEN_HOURS = Interval(low=9 * 3600, likely=10 * 3600, high=12 * 3600)


def box(**given: float | None) -> Instance:
    found = catalogue.read().instance("p4d.24xlarge")
    assert found is not None
    prices = {
        "on_demand_dollars_per_hour": 20.0,
        "spot_low_dollars_per_hour": 4.0,
        "spot_high_dollars_per_hour": 9.0,
    }
    return dataclasses.replace(found, **prices | given)


def test_on_demand_dollars_are_hours_times_price_times_machines():
    found = price.on_demand(TEN_HOURS, box(), machines=2)
    assert found is not None
    assert (found.low, found.likely, found.high) == pytest.approx((360, 400, 480))


def test_without_a_price_there_are_no_dollars():
    terms = Terms(checkpoint_seconds=600, mtbf_hours=12)
    assert price.on_demand(TEN_HOURS, box(on_demand_dollars_per_hour=None)) is None
    assert price.spot(TEN_HOURS, box(spot_low_dollars_per_hour=None), terms) is None
    assert price.spot(TEN_HOURS, box(spot_high_dollars_per_hour=None), terms) is None


def test_spot_hours_hold_what_is_lost_to_interruptions():
    found = price.spot(TEN_HOURS, box(), Terms(checkpoint_seconds=1800, mtbf_hours=5, restart_seconds=900))
    assert found is not None
    # Two interruptions, each with half of 30 minutes undone and 15 to start again.
    assert found.interruptions == pytest.approx(2)
    assert found.seconds.likely == pytest.approx(11 * 3600)
    assert found.dollars.low == pytest.approx(9 * 1.1 * 4)
    assert found.dollars.likely == pytest.approx(11 * 6)
    assert found.dollars.high == pytest.approx(12 * 1.1 * 9)


def test_any_of_several_machines_can_be_taken_away():
    terms = Terms(checkpoint_seconds=1800, mtbf_hours=5, restart_seconds=900)
    found = price.spot(TEN_HOURS, box(), terms, machines=2)
    assert found is not None
    assert found.interruptions == pytest.approx(4)
    assert found.dollars.likely == pytest.approx(12 * 6 * 2)


def test_what_is_assumed_is_stated():
    found = price.spot(TEN_HOURS, box(), Terms(checkpoint_seconds=1200, mtbf_hours=5, restart_seconds=240))
    assert found is not None
    for words in ("$4 to $9 an hour (2026-08-22)", "every 5 h", "10 min 00 s of work", "4 min 00 s to start again"):
        assert words in found.note
