import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.machine import verdict
from stoker.records import GaugeRow, LedgerRow
from stoker.report.account import Account
from stoker.report.questions import employment, traffic
from tests.machine.made_up import ledger
from tests.report.accounts import NOW, STEP, account, gauge, in_time, settings_of

FACTS = Path(__file__).parents[2] / "facts"
SHARED = {"world": 2, "sent_bytes": 10_000_000, "device": "cuda:0"}


def slowed(rows: Sequence[LedgerRow], times: Sequence[float], *, bucket: str = "comm") -> list[LedgerRow]:
    """The same lines, with so many seconds of a step in one bucket."""
    return [replace(row, seconds={**row.seconds, bucket: row.steps * taken}) for row, taken in zip(rows, times)]


def read(rows: Sequence[LedgerRow], step_bytes: Sequence[float], *, seconds: float = 1.0) -> tuple[GaugeRow, ...]:
    """Readings over the time of each line, in which every step moves so many bytes."""
    found = []
    for row, each in zip(rows, step_bytes):
        taken = sum(value or 0.0 for value in row.seconds.values())
        count = max(1, round(taken / seconds))
        rate = each * row.steps / taken if taken else 0.0
        found += [
            gauge(row.at - taken + (number + 1) * taken / count, rate, seconds=taken / count)
            for number in range(count)
            if taken
        ]
    return tuple(found)


def over(times: Sequence[float], step_bytes: Sequence[float], *, world: int = 2, **values: float) -> Account:
    """A run whose lines of ten steps have so long an exchange and move so many bytes a step."""
    shared = {**SHARED, "world": world}
    plain = ledger(STEP, lines=len(times), steps=10, **shared)
    rows = in_time(slowed(plain, [0.0, *times]))
    ledgers = [rows] if world == 1 else [rows, tuple(replace(row, rank=1, host="h2") for row in rows)]
    return account(*ledgers, config=settings_of(), gauges=read(rows, [0.0, *step_bytes], **values))


def test_a_step_is_paired_with_the_traffic_of_its_own_time():
    # The first line of a start is left out: it is not steady yet.
    found = traffic.pairs(over([0.1, 0.1, 0.2, 0.4, 0.8], [1e6, 1e6, 2e6, 3e6, 4e6]))
    assert [pair.step for pair in found] == [20, 30, 40, 50]
    assert [pair.step_seconds for pair in found] == pytest.approx([0.58, 0.68, 0.88, 1.28])
    assert [pair.bytes_per_second for pair in found] == pytest.approx([1e6 / 0.58, 2e6 / 0.68, 3e6 / 0.88, 4e6 / 1.28])


def test_a_reading_counts_by_the_time_that_it_shares_with_the_steps():
    # Lines of 4.8 s, and readings of as many that begin 1.2 s before each: a quarter of a line is of the next one.
    found = account(
        in_time(ledger(STEP, lines=5, steps=10)),
        config=settings_of(),
        gauges=tuple(gauge(NOW + 4.8 * n + 3.6, float(n), seconds=4.8) for n in range(6)),
    )
    assert [pair.bytes_per_second for pair in traffic.pairs(found)] == pytest.approx([1.25, 2.25, 3.25, 4.25])


def test_lines_that_are_shorter_than_a_reading_are_taken_together():
    found = traffic.pairs(over([0.02] * 41, [1e6] * 41, seconds=5.0))
    many = traffic.pairs(
        account(
            in_time(ledger(STEP, lines=41, steps=10, **SHARED)),
            config=settings_of(),
            gauges=tuple(gauge(NOW + 20 * n, 1e6, seconds=20.0) for n in range(1, 11)),
        )
    )
    assert len(found) == 40
    # Lines of 4.8 s: five of them are as long as a reading.
    assert [pair.steps for pair in many] == [50] * 8


def test_an_evaluation_is_not_in_a_step_and_its_traffic_is_left_out():
    found = over([0.1] * 12, [1e6] * 12)
    rows = list(found.evidence.rows[0])
    rows[6] = replace(rows[6], seconds={**rows[6].seconds, "eval": 5.0})
    pairs = traffic.pairs(replace(found, evidence=replace(found.evidence, rows={0: tuple(rows)})))
    assert 60 not in {pair.step for pair in pairs}
    assert {round(pair.step_seconds, 9) for pair in pairs} == {0.58}
    assert len(pairs) == 10


def test_readings_that_were_thinned_still_make_pairs():
    found = over([0.1 + 0.01 * n for n in range(200)], [1e6] * 200)
    thin = found.evidence.gauges[::20]
    pairs = traffic.pairs(replace(found, evidence=replace(found.evidence, gauges=thin)))
    assert len(pairs) >= traffic.ENOUGH_PAIRS
    assert all(pair.steps >= 30 for pair in pairs)


def test_a_long_run_has_no_more_pairs_than_can_be_looked_at():
    found = over([0.1] * 3000, [1e6] * 3000, seconds=5.0)
    pairs = traffic.pairs(found)
    assert 500 < len(pairs) <= traffic.MOST_PAIRS
    assert {pair.steps for pair in pairs} == {30}
    assert {round(pair.step_seconds, 9) for pair in pairs} == {0.58}


def test_longer_steps_that_move_the_same_bytes_go_against_the_traffic():
    found = traffic.asked(over([0.1 * (1 + n % 5) for n in range(20)], [1e7] * 20))
    assert found.is_known and found.chart == "traffic"
    assert found.answer.startswith("Where steps took longer, less went over the network in a second (r = -0.")
    assert "19 stretches of steps" in found.answer
    assert "A step moves the same 9.5 MiB each time" in found.answer
    assert any("each of 2 processes sends 9.5 MiB of gradients a step" in line for line in found.evidence)


def test_traffic_that_makes_steps_longer_is_told():
    times = [0.1 * (1 + n % 5) for n in range(20)]
    found = traffic.asked(over(times, [1e7 * taken**2 for taken in times]))
    assert found.answer.startswith("Where steps took longer, more went over the network in a second (r = ")
    assert "may hold the steps up" in found.answer


def test_traffic_without_any_relation_is_called_chance():
    times = [0.1 * (1 + n % 5) for n in range(26)]
    found = traffic.asked(over(times, [1e6 * (0.48 + taken) * (1 + n // 5 % 5) for n, taken in enumerate(times)]))
    assert found.answer.startswith("Hardly: ")
    assert "the network is not what makes some steps longer" in found.answer


def test_one_process_is_told_that_this_is_not_its_gradients():
    found = traffic.asked(over([0.1 * (1 + n % 5) for n in range(20)], [1e7] * 20, world=1))
    assert found.is_known
    assert "There is one process" in found.answer


def test_traffic_that_does_not_vary_can_t_be_followed_and_is_still_drawn():
    found = traffic.asked(over([0.1] * 20, [1e7] * 20))
    assert not found.is_known and found.chart == "traffic"
    assert "Can't tell: the traffic and step time hardly varied" in found.answer


def test_no_traffic_at_all_is_no_variation():
    found = traffic.asked(over([0.1 * (1 + n % 5) for n in range(20)], [0.0] * 20))
    assert not found.is_known and "the traffic hardly varied" in found.answer


def test_without_gauges_it_is_said_how_to_get_them():
    found = over([0.1] * 20, [1e7] * 20)
    bare = traffic.asked(replace(found, evidence=replace(found.evidence, gauges=())))
    assert not bare.is_known and bare.chart is None
    assert "traffic is known for 0 of the 8 stretches" in bare.answer and "--gauge-seconds 5" in bare.answer


def test_a_reading_without_its_network_is_passed_over():
    found = over([0.1] * 4, [1e7] * 4)
    gauges = (gauge(NOW + 10, None), replace(gauge(NOW + 10, 1.0), network=None), gauge(NOW + 10, 1.0, seconds=0.0))
    assert traffic.pairs(replace(found, evidence=replace(found.evidence, gauges=gauges))) == ()


def test_processes_of_one_machine_are_told_that_no_gauge_sees_them():
    found = over([0.1] * 4, [1e7] * 4)
    rows = {rank: tuple(replace(row, host="h1") for row in rows) for rank, rows in found.evidence.rows.items()}
    answered = traffic.asked(replace(found, evidence=replace(found.evidence, rows=rows)))
    assert any("all processes are on one machine" in line for line in answered.evidence)


# Two machines with a V100 each that people trained a translation with, over 100 Mbit/s and over 1000.


def translation(link_mbit: str) -> dict[str, str]:
    with (FACTS / "translation_network.csv").open(newline="") as lines:
        return next(row for row in csv.DictReader(lines) if row["link_mbit_per_s"] == link_mbit)


def translated(*links: str) -> Account:
    """Such a run, which spends the same stretch over each of some links. A step moves the same bytes over any."""
    slow, fast = translation("100"), translation("1000")
    step_bytes = float(slow["observed_network_kb_per_s"]) * 1000 * float(slow["s_per_step"])
    compute = 0.4 * float(fast["s_per_step"])
    # The last of a bit of noise: no two steps of a real run are the same.
    comms = [float(translation(link)["s_per_step"]) - compute for link in links for _ in range(10)]
    comms = [comm * (1 + 0.02 * (number % 3 - 1)) for number, comm in enumerate(comms)]
    step = {"data_wait": 0.0, "compute": compute, "optimizer": 0.0, "comm": 0.0, "host": 0.0, "peer_wait": 0.0}
    rows = in_time(slowed(ledger(step, lines=len(comms), steps=10, **SHARED), [0.0, *comms]))
    totals, kept = dict(rows[0].totals), []
    for row in rows:
        totals = {bucket: (value or 0) + (row.seconds.get(bucket) or 0) for bucket, value in totals.items()}
        kept.append(replace(row, totals=dict(totals)))
    ledgers = [tuple(kept), tuple(replace(row, rank=1, host="h2") for row in kept)]
    found = account(*ledgers, config=settings_of(), gauges=read(rows, [0.0, *[step_bytes] * len(comms)], seconds=5.0))
    return replace(found, verdict=verdict.judge(found.evidence))


def test_the_network_was_the_bottleneck_of_the_translation_at_100_mbit():
    found = translated("100")
    answered = employment.network(found)
    assert answered.answer.startswith("Yes: 97.")
    assert "of all time went into exchanging gradients among 2 processes" in answered.answer
    rates = [pair.bytes_per_second for pair in traffic.pairs(found)]
    assert rates == pytest.approx([12.5e6] * len(rates), rel=0.03)


def test_the_translation_s_steps_went_against_its_traffic_over_both_links():
    found = traffic.asked(translated("100", "1000"))
    assert found.is_known
    assert found.answer.startswith("Where steps took longer, less went over the network in a second (r = -")
    assert "A step moves the same 357.6 MiB each time" in found.answer
