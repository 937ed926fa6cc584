import dataclasses

import pytest

from stoker.machine import catalogue, forecast, predict
from stoker.machine.catalogue import Instance
from stoker.machine.forecast import Forecast, Leg, Rest
from stoker.machine.links import Link
from stoker.machine.predict import Interval
from stoker.machine.price import Terms
from tests.machine.costs import costs, job

STEADY = Leg(costs=costs(), job=job(), steps=1000, epochs=10)  # a tenth of a second each
MEASURED = Rest(setup_seconds=0.0)


def box(name: str = "p4d.24xlarge") -> Instance:
    found = catalogue.read().instance(name)
    assert found is not None
    return found


def made(*legs: Leg, rest: Rest = MEASURED) -> Forecast:
    return forecast.forecast("this", legs, rest)


def test_a_run_is_its_steps_its_evaluations_its_saves_and_its_setup():
    rest = Rest(evals=10, eval_samples=500, eval_sample_seconds=0.002, saves=4, save_seconds=0.5, setup_seconds=8.0)
    found = made(STEADY, rest=rest)
    assert (found.eval_seconds, found.save_seconds, found.setup_seconds) == pytest.approx((10, 2, 8))
    assert found.total.likely == pytest.approx(100 + 10 + 2 + 8)
    assert (found.steps, found.step.likely, found.epoch.likely) == (1000, pytest.approx(0.1), pytest.approx(10))
    assert found.parts.compute_seconds == pytest.approx(0.1)
    assert found.notes == ()


def test_processes_share_an_evaluation():
    leg = dataclasses.replace(
        STEADY, job=job(world=4, local_world=4, atoms=4, link=Link(latency_seconds=0, bytes_per_second=1e9))
    )
    assert made(leg, rest=Rest(evals=1, eval_samples=400, eval_sample_seconds=0.1)).eval_seconds == pytest.approx(10)


def test_the_legs_of_a_run_add_up_and_the_longest_is_shown():
    small = Leg(costs=costs(sample_seconds=0.0005), job=job(), steps=1000, epochs=10)
    found = made(small, STEADY)
    assert found.total.likely == pytest.approx(150)
    assert found.step.likely == pytest.approx(0.075)
    assert found.epoch.likely == pytest.approx(7.5)
    assert found.parts.seconds == pytest.approx(0.1)
    assert found.without["compute"] == 0.0


def test_what_differs_from_the_probe_widens_the_interval():
    as_probed, changed = made(STEADY), made(dataclasses.replace(STEADY, changes=("batch", "threads")))
    assert as_probed.step.high == pytest.approx(0.1 * (1 + predict.SURE))
    assert changed.step.high == pytest.approx(
        0.1 * (1 + predict.SURE + predict.UNSURE["batch"] + predict.UNSURE["threads"])
    )
    assert changed.step.low < as_probed.step.low
    assert changed.step.likely == as_probed.step.likely


def test_another_machine_is_bounded_by_the_least_and_the_most_that_it_may_cost():
    leg = dataclasses.replace(STEADY, low=costs(sample_seconds=0.0005), high=costs(sample_seconds=0.004))
    rest = Rest(evals=1, eval_samples=1000, eval_sample_seconds=0.1, setup_seconds=0.0)
    found = made(leg, rest=rest)
    sure = 1 + predict.SURE
    assert (found.step.low, found.step.high) == pytest.approx((0.05 / sure, 0.4 * sure))
    # Evaluation, as long as the steps here, is as unsure as they are.
    assert (found.total.low, found.total.likely, found.total.high) == pytest.approx((100 / sure, 200, 800 * sure))


def test_what_was_not_measured_is_none_and_named_and_not_in_the_total():
    many = dataclasses.replace(STEADY, job=job(world=2, local_world=2, atoms=2))
    found = made(many, rest=Rest(evals=3, eval_samples=10, saves=1))
    assert (found.eval_seconds, found.save_seconds, found.setup_seconds) == (None, None, None)
    assert found.total.likely == pytest.approx(50)
    notes = " | ".join(found.notes)
    for words in ("exchange is not in it", "3 evaluations", "1 checkpoint", "the setup"):
        assert words in notes


def test_evaluations_that_are_not_asked_for_need_no_measurement():
    assert made(STEADY, rest=Rest()).eval_seconds == 0.0


SLOW_LINK = Link(latency_seconds=0.0, bytes_per_second=1e6)
PAIR = {"world": 2, "local_world": 1, "atoms": 2}


@pytest.mark.parametrize(
    ("limit", "changed", "how", "rest", "slowdown"),
    [
        ("compute", {}, {}, {}, 1.0),
        ("network", {"gradient_bytes": 200_000}, {**PAIR, "link": SLOW_LINK}, {}, 5.0),
        ("decode", {"decode_sample_seconds": 0.02}, {}, {}, 5.0),
        ("disk", {"read_sample_seconds": 0.02, "decode_sample_seconds": 0.002}, {}, {}, 5.5),
        ("copies", {"transfer_sample_seconds": 0.003}, {}, {}, 4.0),
        ("launches", {"host_seconds": 0.3}, {}, {}, 4.0),
        ("checkpoints", {}, {}, {"saves": 100, "save_seconds": 3.0}, 4.0),
        ("evaluation", {}, {}, {"evals": 100, "eval_samples": 100, "eval_sample_seconds": 0.03}, 4.0),
    ],
)
def test_the_limit_is_named_with_what_it_costs(limit: str, changed: dict, how: dict, rest: dict, slowdown: float):
    found = made(
        Leg(costs=costs(**changed), job=job(**how), steps=1000, epochs=1), rest=Rest(setup_seconds=0.0, **rest)
    )
    assert (found.limit, found.slowdown) == (limit, pytest.approx(slowdown))


def test_a_small_part_is_not_the_limit_because_two_large_ones_are_equal():
    # Neither free compute nor free decoding would save as much as free launches do.
    even = costs(decode_sample_seconds=0.00399, host_seconds=0.005)
    assert made(dataclasses.replace(STEADY, costs=even)).limit == "compute"
    assert (
        made(dataclasses.replace(STEADY, costs=dataclasses.replace(even, decode_sample_seconds=0.005))).limit
        == "decode"
    )


def test_the_limit_is_that_of_the_run_not_of_one_leg():
    starved = Leg(costs=costs(decode_sample_seconds=0.02), job=job(), steps=10, epochs=1)
    assert made(starved, STEADY).limit == "compute"


@pytest.mark.parametrize(
    ("needed", "there", "fits"), [(90, 100, True), (98, 100, False), (None, 100, None), (1, None, None)]
)
def test_memory_fits_or_not_or_is_not_known(needed: int | None, there: int | None, fits: bool | None):
    found = forecast.forecast("this", [STEADY], MEASURED, memory_bytes=needed, device_memory_bytes=there)
    assert found.fits is fits and found.memory_bytes == needed


def test_dollars_need_an_instance_and_spot_dollars_also_terms():
    assert made(STEADY).on_demand_dollars is None
    hour = dataclasses.replace(STEADY, steps=36_000)
    plain = forecast.forecast("p4d", [hour], MEASURED, machines=2, instance=box())
    assert plain.on_demand_dollars is not None and plain.spot_dollars is None and plain.spot_seconds is None
    assert plain.on_demand_dollars.likely == pytest.approx(2 * 21.957642)
    spot = forecast.forecast(
        "p4d", [hour], MEASURED, instance=box(), terms=Terms(checkpoint_seconds=600, mtbf_hours=12)
    )
    assert spot.spot_dollars is not None and spot.spot_seconds is not None
    assert spot.spot_dollars.likely < plain.on_demand_dollars.likely
    assert spot.spot_seconds.likely > spot.total.likely
    assert any(note.startswith("spot: $") for note in spot.notes)


def test_prices_carry_their_date_and_a_retired_machine_says_so():
    old = forecast.forecast("old", [STEADY], MEASURED, instance=box("p3.2xlarge"))
    assert old.is_retired and old.on_demand_dollars is not None
    notes = " | ".join(old.notes)
    for words in ("as of 2022", "no longer sold", '"up to"'):
        assert words in notes
    notes = " | ".join(forecast.forecast("new", [STEADY], MEASURED, instance=box()).notes)
    assert "as of 2026-08-22" in notes and "no longer sold" not in notes and '"up to"' not in notes


def costing(name: str, hours: float, dollars: float | None, **given: object) -> Forecast:
    price = None if dollars is None else predict.around(dollars, 0.1)
    return dataclasses.replace(
        made(STEADY), machine=name, total=predict.around(hours * 3600, 0.1), on_demand_dollars=price, **given
    )


def test_the_cheapest_and_the_fastest_are_chosen_among_those_that_fit():
    slow, quick = costing("slow", 10, 5), costing("quick", 1, 20)
    small, free = costing("small", 0.1, 0.1, fits=False), costing("this", 30, None)
    assert forecast.cheapest([quick, slow, small, free]) is slow
    assert forecast.fastest([slow, quick, small, free]) is quick
    old = costing("old", 0.2, 0.2, is_retired=True)
    assert forecast.cheapest([old, slow]) is forecast.fastest([old, slow]) is slow
    assert forecast.cheapest([free, small]) is None
    assert forecast.fastest([small]) is None


def test_spot_dollars_count_where_they_are_lower():
    dear = costing("dear", 1, 20)
    spot = dataclasses.replace(dear, machine="spot", spot_dollars=predict.around(4, 0.5))
    assert forecast.cheapest([dear, spot]) is spot
    assert forecast.dollars(spot) == spot.spot_dollars
    assert forecast.dollars(dataclasses.replace(spot, spot_dollars=predict.around(40, 0.5))) == spot.on_demand_dollars


@pytest.mark.parametrize(
    ("hours", "dollars", "verdict"),
    [
        (12, None, "surely"),
        (10.5, None, "likely"),
        (9.5, None, "perhaps"),
        (9, None, "no"),
        (None, 5.2, "likely"),
        (12, 4.8, "perhaps"),
        (9, 6, "no"),
        (None, None, "surely"),
    ],
)
def test_a_target_is_met_surely_likely_perhaps_or_not(hours: float | None, dollars: float | None, verdict: str):
    seconds = None if hours is None else hours * 3600
    found = costing("box", 10, 5)
    assert forecast.meets(found, target_seconds=seconds, target_dollars=dollars) == verdict


def test_whether_unknown_dollars_meet_a_target_is_unknown():
    assert forecast.meets(costing("this", 1, None), target_dollars=5) == "unknown"
    assert forecast.meets(costing("this", 1, None), target_dollars=5, target_seconds=60) == "no"
    assert forecast.meets(costing("this", 1, 1, fits=False), target_dollars=5) == "no"


def test_a_slower_link_explains_a_slower_step_up_to_its_ratio():
    whole = forecast.explained(2.0, 18.0, times_slower=10)
    assert whole.unexplained_seconds == 0.0 and "can explain that" in whole.sentence
    assert forecast.explained(2.0, 25.0, times_slower=10).unexplained_seconds == 5.0


def test_an_interval_of_a_forecast_holds_its_likely_figure():
    found = made(STEADY, rest=Rest(saves=3, save_seconds=1.0, setup_seconds=5.0))
    for each in (found.step, found.epoch, found.total):
        assert isinstance(each, Interval) and each.low < each.likely < each.high
