import math
from dataclasses import replace

from stoker.records import Attempt
from stoker.report.account import Saved
from tests.machine.made_up import ledger
from tests.report import accounts
from tests.report.accounts import IMPROVING, NOW, STEP, account, answers, in_time, learned, plain, settings_of, told


def test_of_an_empty_folder_nothing_is_known_and_every_question_says_so():
    assert not any(question.is_known for question in answers(accounts.empty()).values())


def test_a_run_that_was_never_started_has_all_its_questions():
    found = account(config=settings_of(), status="stopped", opened={}, checkpoints=())
    never = replace(found.evidence, record=replace(found.evidence.record, attempts=()))  # type: ignore[type-var]
    given = answers(replace(found, evidence=never, cost=accounts.empty().cost))
    assert [key for key, question in given.items() if question.is_known] == ["schedule"]


def test_a_run_killed_after_three_steps_says_what_it_can():
    rows = in_time(ledger(STEP, lines=1, steps=3))
    killed = (Attempt(started_at=NOW, host="h1", world=1),)
    found = account(
        rows, config=settings_of(), status="running", state="killed; the same command again goes on", attempts=killed,
        checkpoints=(Saved(step=0, at=NOW, parts={"model.safetensors": 1000}, names=("latest",)),),
    )  # fmt: skip
    given = answers(found)
    assert "from its first start to its last sign of life, in one start" in given["time"].answer
    assert "It is at step 3 of 1,000" in given["time"].answer
    assert "the ledger tells of 3 steps, and 20 are needed" in given["step"].answer
    assert told(given["step"], "those took 480 ms each")
    assert {key for key, question in given.items() if question.is_known} == {
        "time", "gpus", "network", "schedule", "data", "checkpoint",
    }  # fmt: skip


def test_scores_that_were_no_numbers_are_passed_over():
    found = plain(IMPROVING)
    broken = (*found.evaluations, accounts.evaluation(11, None, None), accounts.evaluation(12, math.nan, math.inf))
    lost = replace(found.training[-1], scores={"loss": None, "top1": None})  # type: ignore[dict-item]
    given = answers(replace(found, evaluations=broken, training=(*found.training, lost)))
    assert told(given["trained"], "after 10 epochs (the last evaluation)")


def test_two_processes_of_a_run_answer_everything():
    rows = [in_time(ledger({**STEP, "comm": 0.05}, lines=20, steps=50, world=2, rank=rank)) for rank in range(2)]
    config = settings_of()
    given = answers(account(*rows, config=config, **learned(IMPROVING, config=config)))
    assert {key for key, question in given.items() if not question.is_known} == {"traffic", "cost", "plan"}
    assert given["network"].answer.startswith("No, it was bound by arithmetic: 9.4 %")
