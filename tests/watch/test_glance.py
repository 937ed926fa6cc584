import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stoker.config import Config
from stoker.records import Attempt, RunRecord
from stoker.settings import with_values
from stoker.watch.glance import Facts, glance, place, route
from tests.watch.made_up import BATCH, EPOCHS, NOW, SAMPLES, evaluated, scored, spent

CONFIG = with_values(Config(), {"batch": BATCH, "epochs": EPOCHS, "resolution": 32, "atoms": 1})
RECORD = RunRecord(
    status="running", attempts=(Attempt(started_at=NOW, host="box", world=1),), data={"train_samples": SAMPLES}
)


def facts(**changes: Any) -> Facts:
    ledger = tuple(spent(step) for step in range(2, 42, 2))
    scores = (*(scored(step) for step in range(2, 42, 2)), evaluated(40))
    known = {"record": RECORD, "config": CONFIG, "ledger": ledger, "scores": scores, "is_held": True, **changes}
    return Facts(folder=Path("runs/a"), name="a", state="running", **known)


def test_a_run_under_way_shows_how_far_it_is_and_how_long_it_takes():
    seen = glance(facts())
    assert (seen.state, seen.step, seen.steps, seen.epoch, seen.epochs) == ("running", 40, 100, 4, 10)
    assert seen.left_seconds == pytest.approx(60 * 0.1)
    assert seen.samples_per_second == pytest.approx(100) and seen.wait_share == pytest.approx(0.1)
    assert seen.loss == pytest.approx(0.4) and seen.held_out["top1"] == 20.0
    assert (seen.began_at, seen.heard_at, seen.starts) == (NOW, NOW + 4, 1)


def test_evaluations_and_checkpoints_lengthen_the_time_left():
    rows = [spent(step) for step in range(2, 42, 2)]
    rows[-1].totals["eval"] = 4.0
    assert glance(facts(ledger=tuple(rows))).left_seconds == pytest.approx(12)


def test_stages_count_by_their_samples():
    config = with_values(CONFIG, {"stages": "32@10 x 4, 32@20 x 6"})
    seen = glance(facts(config=config))
    assert seen.steps == 40 + 30 and seen.left_seconds == pytest.approx(60 * 0.1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "running"),
        ({"ledger": ()}, "starting"),
        ({"is_held": False}, "killed"),
        ({"record": None}, "unreadable"),
        ({"record": dataclasses.replace(RECORD, status="oom")}, "oom"),
        ({"record": RunRecord(status="stopped")}, "new"),
        ({"record": dataclasses.replace(RECORD, attempts=RECORD.attempts * 2)}, "starting"),
    ],
)
def test_the_state_is_one_word(changes: dict[str, Any], expected: str):
    assert glance(facts(**changes)).state == expected


def test_what_is_not_known_is_none_and_never_a_guess():
    seen = glance(facts(record=None, config=None, ledger=(), scores=()))
    nothing = (seen.steps, seen.epoch, seen.left_seconds, seen.loss, seen.samples_per_second, seen.wait_share)
    assert nothing == (None,) * 6 and seen.held_out == seen.best == {}


def test_before_the_first_line_the_plan_says_how_long_it_takes():
    seen = glance(facts(ledger=(), scores=(), plan={"forecast": {"total": {"likely": 7.5}}}))
    assert (seen.left_seconds, seen.is_planned) == (7.5, True)
    assert glance(facts(ledger=(), scores=(), plan={"forecast": "none"})).left_seconds is None


def test_the_best_evaluation_has_the_highest_accuracy_and_then_the_lowest_loss():
    rows = tuple(
        dataclasses.replace(evaluated(10 * n), scores={"loss": loss, "top1": top1})
        for n, (loss, top1) in enumerate([(1.0, 50.0), (0.8, 50.0), (0.1, 40.0)], start=1)
    )
    assert glance(facts(scores=rows)).best == {"loss": 0.8, "top1": 50.0, "epoch": 2}


def test_the_epoch_of_a_step_follows_the_stages():
    way = route(facts(config=with_values(CONFIG, {"stages": "32@10 x 1, 32@20 x 2"})))
    assert way is not None
    assert [place(way, step) for step in (0, 9, 10, 14, 15, 20)] == [0, 0, 1, 1, 2, 2]


def test_while_a_run_goes_on_the_best_of_an_earlier_end_is_not_taken_for_its_own():
    record = dataclasses.replace(RECORD, result={"best": {"top1": 5.0, "epoch": 1}})
    assert glance(facts(record=record)).best["top1"] == 20.0
    ended = glance(facts(record=dataclasses.replace(record, status="stopped")))
    assert ended.best == {"top1": 5.0, "epoch": 1}
