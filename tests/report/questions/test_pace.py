from dataclasses import replace

from tests.machine.made_up import ledger
from tests.report.accounts import STEP, account, answers, in_time, settings_of, told


def test_a_step_has_its_spread_without_evaluations():
    rows = list(ledger(STEP, lines=20, steps=50))
    for number, row in enumerate(rows[1:]):
        extra = {"compute": row.steps * (0.4 + 0.1 * (number % 2)), "eval": 20.0}
        rows[number + 1] = replace(row, seconds={**row.seconds, **extra})
    given = answers(account(in_time(rows), config=settings_of()))["step"]
    # The first line is left out, so ten lines of 0.58 s and nine of 0.48 s.
    assert given.answer.startswith("533 ms +- 49.9 ms, 120.2 samples/s, without evaluation and checkpoints.")
    assert "Nine of ten are between 480 ms and 580 ms." in given.answer
    assert given.chart == "step_times"
    assert told(given, "over 950 steps in 19 lines") and told(given, "single steps vary more")
