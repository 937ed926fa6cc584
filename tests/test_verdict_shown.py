"""A verdict in a terminal says all that it holds, and its commands can be copied."""

import pytest

from stoker import verdict_shown
from stoker.machine import verdict
from stoker.machine.evidence import Evidence
from tests.machine.made_up import evidence, ledger, over_a_slow_link, starved, with_a_slow_one


def told(known: Evidence, capsys: pytest.CaptureFixture[str]) -> str:
    """What is shown of a run."""
    verdict_shown.verdict(verdict.judge(known))
    return capsys.readouterr().out


def test_a_starved_run_is_told_where_its_time_goes_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    found = verdict.judge(evidence(starved()))
    text = told(evidence(starved()), capsys)
    assert "the training thread waited for samples" in text
    assert "Bound by CPU decode: 62% of the time." in text
    assert "without CPU decode it would be 2.67 times as fast" in text
    assert "useful   32.2 % of the wall clock, in which" in text
    assert found.amp is not None and f"amp      {found.amp}\n" in text
    best = found.remedies[0]
    assert f"1. {best.gain:.2f} times as fast ({best.low:.2f} - {best.high:.2f}): 7 decode threads\n" in text
    for remedy in found.remedies:
        assert f"   {remedy.command}\n" in text, "in one line"
    assert f"plan     what other machines would take: {found.elsewhere}\n" in text
    for what in found.missing:
        assert f"missing  {what}\n" in text
    assert "\nbusy " not in text and "\nMFU " not in text, "nothing is shown of what was not measured"


def test_a_slow_process_is_shown_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(evidence(*with_a_slow_one()), capsys)
    where = "process 2 on h3: the others wait 500 ms for it in every step"
    assert f"slow     {where}; its compute takes longer, 2.00 times as long as theirs\n" in text


def test_what_changes_the_result_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(evidence(*over_a_slow_link()), capsys)
    assert "send gradients as 16-bit numbers (changes what is learned, is a new run)" in text


def test_a_run_without_evidence_is_told_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(evidence(ledger({"compute": 1.0, "host": None}, lines=1, steps=5)), capsys)
    assert "No verdict yet: the ledger holds 5 steps, and 20 are needed." in text
    assert "missing  steps: there are 5" in text
    assert "not measured: host" in text
    assert "plan " not in text
