from dataclasses import replace

import pytest

from stoker.plan.history import Past
from stoker.records import Attempt, LedgerRow
from stoker.report import cost, summary
from stoker.report.account import Account
from tests.machine.made_up import ledger
from tests.report.accounts import CONVERGED, IMPROVING, NOW, STEP, account, answers, in_time, plain, settings_of, told


def started_twice(*, down: float = 100.0, end: float | None = 300.0) -> Account:
    """A run that was killed at 100 s, went on after a while, read a checkpoint for 5 s and did 7 s again."""
    rows = list(in_time(ledger(STEP, lines=4, steps=50), begin=NOW))
    again = in_time(ledger(STEP, lines=4, steps=50, attempt=2, setup=4.0), begin=NOW + 101 + down)
    later = {"lost": 7.0, "restore": 5.0, "down": down}
    rows += [replace(row, totals={**row.totals, **later}) for row in again]
    attempts = (
        Attempt(started_at=NOW, host="h1", world=1),
        Attempt(started_at=NOW + 100 + down, host="h1", world=1, ended_at=end and NOW + end, status="done"),
    )
    rows = [replace(row, at=NOW + 25 * row.step / 50) if row.attempt == 1 else row for row in rows]
    return account(tuple(rows), config=settings_of(dollars_per_hour=36.0), attempts=attempts)


def recounted(found: Account, rows: tuple[LedgerRow, ...]) -> Account:
    """The same run with another ledger."""
    evidence = replace(found.evidence, rows={0: rows})
    return replace(found, evidence=evidence, cost=cost.of(evidence, pack_seconds=None, now=found.at))


def test_card_and_answers_name_the_same_loss():
    found = started_twice()
    assert "of it 15.0 s lost work" in summary.duration(found).lines
    assert "of it $0.15 for lost work" in summary.price(found).lines
    assert not any("lost" in line for card in summary.cards(plain(IMPROVING)) for line in card.lines)


def test_the_rate_on_the_card_is_that_of_the_last_start():
    def rate(found: Account) -> str:
        assert found.evidence.record is not None
        record = replace(found.evidence.record, result={"samples_per_second": 300.0})
        return summary.duration(replace(found, evidence=replace(found.evidence, record=record))).lines[-1]

    assert rate(plain(IMPROVING)) == "300 samples/s, evaluation included"
    assert rate(started_twice()) == "300 samples/s, evaluation included, in its last start"


@pytest.mark.parametrize("status", ["diverged", "oom", "failed"])
def test_a_run_that_went_wrong_is_promised_no_end(status: str):
    found = plain(IMPROVING[:5], epochs=10, status=status, dollars_per_hour=3.6)
    given = answers(found)
    assert given["time"].answer.endswith("It ended at step 500 of 1,000.")
    assert given["cost"].answer == "$0.60 up to its end, at $3.60 an hour."
    assert not any(word in line for card in summary.cards(found) for line in card.lines for word in ("to go", "when"))


def test_stages_of_a_resolution_that_was_not_measured_leave_the_time_open():
    running = (Attempt(started_at=NOW, host="h1", world=1),)
    found = plain(
        IMPROVING[:5], stages="160@64 x 6, 224@64 x 4", epochs=10, status="running", attempts=running,
        dollars_per_hour=3.6,
    )  # fmt: skip
    given = answers(found)
    why = "not known: no step at 224 pixels was measured yet"
    assert f"how long the rest will take is {why}." in given["time"].answer
    assert "$1.00 so far; what the rest will cost is not known" in given["cost"].answer
    assert f"what is left is {why}" in summary.duration(found).lines


def test_a_start_at_no_time_that_there_is_is_told_so():
    given = answers(plain(IMPROVING, attempts=(Attempt(started_at=1e18, host="h1", world=1, ended_at=1e18),)))["time"]
    assert told(given, "first start: at no time that can be read")


def test_what_restarts_cost_is_added_up():
    given = answers(started_twice())["time"]
    assert "It took 5 min 00 s from its first start to its end" in given.answer
    assert "the machine was held for 3 min 20 s of it, in 2 starts" in given.answer
    # 7 s lost, 5 s of restoring and 3 s of setup more than the first start had, of 200 s.
    assert "15.0 s of that (7.5 %) were lost work; for 1 min 40 s it was down." in given.answer
    for line in ("down: 1 min 40 s", "lost: 7.0 s", "restore: 5.0 s", "setup: 3.0 s", "1 start ended without a word"):
        assert told(given, line)
    assert not told(given, "rollback")


def test_one_start_has_lost_nothing_even_if_its_beginning_was_read():
    found = plain(IMPROVING)
    rows = tuple(replace(row, totals={**row.totals, "restore": 0.03}) for row in found.evidence.rows[0])
    given = answers(recounted(found, rows))["time"]
    assert given.answer == "It took 10 min 00 s from its first start to its end, in one start. " + ("No work was lost.")


def test_a_rollback_in_one_start_is_told():
    found = plain(IMPROVING)
    rows = tuple(replace(row, totals={**row.totals, "rollback": 60.0}) for row in found.evidence.rows[0])
    given = answers(recounted(found, rows))["time"]
    assert "60.0 s of it (10.0 %) were lost work." in given.answer and told(given, "rollback: 60.0 s")


def test_a_running_run_says_how_much_is_left():
    running = (Attempt(started_at=NOW, host="h1", world=1),)
    given = answers(plain(IMPROVING[:5], epochs=10, status="running", attempts=running))
    assert given["time"].answer.startswith("So far it took 16 min 40 s from its first start to now, in one start.")
    assert "It is at step 500 of 1,000, and has about 4 min 00 s left." in given["time"].answer
    assert given["trained"].answer.startswith("Not yet after 5 of 10 epochs: ")


def test_a_run_costs_what_its_machine_was_held_for():
    given = answers(started_twice())["cost"]
    # 200 s at a cent a second; of it 15 s of lost work.
    assert given.answer == "$2.00 in all, at $36.00 an hour. In it: lost work $0.15."
    assert told(given, "of it lost work (done for nothing, or by later starts only to go on): 15.0 s")
    assert told(given, "what the machine may have cost while the run was down is not in it")


def test_packing_and_what_is_left_are_paid_for_too():
    running = (Attempt(started_at=NOW, host="h1", world=1),)
    found = plain(
        IMPROVING[:5], epochs=10, status="running", attempts=running, dollars_per_hour=3.6, pack_seconds=500.0
    )
    given = answers(found)["cost"]
    assert given.answer == "$1.50 so far, and $1.74 when it is done, at $3.60 an hour. In it: packing $0.50."
    assert told(given, "packing is charged in full, at this run's price")


def test_without_a_price_it_is_said_how_to_give_one():
    given = answers(plain(CONVERGED))["cost"]
    assert not given.is_known
    assert "no price is known" in given.answer and "--dollars-per-hour" in given.answer
    assert told(given, "the machine was held: 10 min 00 s") and told(given, "packing: not known")


def test_small_change_is_not_called_nothing():
    assert answers(plain(CONVERGED, dollars_per_hour=0.03))["cost"].answer.startswith("less than $0.01 in all")


@pytest.mark.parametrize(("error", "held", "said"), [(0.2, False, "20.0 % longer"), (-0.1, True, "10.0 % shorter")])
def test_a_plan_is_held_against_what_came_of_it(error: float, held: bool, said: str):
    past = Past(
        run="one", limit="compute", planned_seconds=100, low_seconds=90, high_seconds=110,
        actual_seconds=100 * (1 + error), error=error, held=held,
    )  # fmt: skip
    given = answers(plain(CONVERGED, past=past))["plan"]
    assert said in given.answer and given.chart == "planned"
    assert ("within the bounds" in given.answer) == held


def test_a_plan_without_an_end_can_t_be_judged():
    found = plain(CONVERGED)
    planned = replace(found, evidence=replace(found.evidence, plan={"forecast": {"steps": 1}}))
    assert "what it took was not written into its plan" in answers(planned)["plan"].answer
    assert "there is no plan of it" in answers(found)["plan"].answer
