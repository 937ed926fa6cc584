"""A process that is dead or stuck ends the others, with the reason; one that is only slow does not."""

import dataclasses
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import dist, records
from stoker.dist import World, watch
from stoker.dist.watch import GOODBYE, Beat, Seen, reason_to_stop
from stoker.records import Event
from tests.dist.conftest import run_module

CPU = torch.device("cpu")
NOW = 1000.0
BEAT = Beat(count=5, name="process 1 on far", step=120, phase="data_wait", still_seconds=0.0, longest_seconds=0.5)


@pytest.fixture(scope="module")
def fates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What became of pairs of processes of which one met its fate."""
    folder = tmp_path_factory.mktemp("watched")
    run_module("tests.dist.watched", folder)
    return folder


def codes(fates: Path) -> Any:
    return json.loads((fates / "codes.json").read_text())


def reason(*, silent: float = 0.0, unanswered: float = 0.0, rank: int = 1, **changes: Any) -> str | None:
    """The judgement on one other process."""
    answered_at = NOW - unanswered
    seen = {rank: Seen(beat=dataclasses.replace(BEAT, **changes), at=answered_at - silent)}
    return reason_to_stop(seen, answered_at=answered_at, now=NOW)


def test_a_stopped_process_ends_the_other_with_the_reason(fates: Path) -> None:
    assert codes(fates)["stopped"]["other"] == 75
    said = (fates / "stopped.0").read_text()
    assert re.search(r"process 1 on \S+ has given no sign of life for \d+ s \(last: step 8, \w+\); this process", said)
    (event,) = records.read_lines(fates / "stopped.events", Event)
    assert event.kind == "peer_lost" and event.what in said and "start the same command again" in event.what


def test_a_killed_process_is_noticed_by_training_and_by_the_watch(fates: Path) -> None:
    assert codes(fates)["killed"] == {"victim": -9, "other": 75}
    said = (fates / "killed.0").read_text()
    assert "told: another process is gone: " in said and "its own message says why" in said
    assert "has given no sign of life" in said


def test_the_loss_of_the_machine_where_all_meet_is_noticed(fates: Path) -> None:
    assert codes(fates)["first_stopped"]["other"] == 75
    assert "the machine of process 0, where the processes meet, has not" in (fates / "first_stopped.1").read_text()


def test_a_stuck_process_ends_all_and_is_named(fates: Path) -> None:
    assert codes(fates)["stuck"] == {"victim": 75, "other": 75}
    for rank in range(2):
        said = (fates / f"stuck.{rank}").read_text()
        assert re.search(r"process 1 on \S+ has made no progress for \d+ s \(step 8, data_wait\); this process", said)


def test_a_process_that_failed_ends_the_other_with_its_error(fates: Path) -> None:
    assert codes(fates)["failed"]["other"] == 75
    assert "has ended at step 8: the disk is full; this process stops" in (fates / "failed.0").read_text()


def test_a_process_that_left_in_peace_is_not_missed(fates: Path) -> None:
    assert codes(fates)["fine"] == {"victim": 0, "other": 0}


def test_a_machine_that_slept_goes_on(fates: Path) -> None:
    assert codes(fates)["slept"] == {"victim": 0, "other": 0}, (fates / "slept.0").read_text()


def test_silence_counts_from_thirty_seconds_and_only_while_the_store_answers() -> None:
    assert reason(silent=29) is None
    assert "no sign of life for 30 s" in str(reason(silent=30))
    assert reason(silent=20, unanswered=15) is None
    assert "machine of process 0" in str(reason(silent=29, unanswered=30))


def test_after_the_goodbye_of_the_first_process_a_silent_store_is_no_loss() -> None:
    assert reason(rank=0, unanswered=60, end=GOODBYE) is None
    assert reason(rank=1, unanswered=60, end=GOODBYE) is not None
    assert reason(rank=1, silent=60, end=GOODBYE) is None


def test_a_failed_process_leaves_the_others_time_to_fail_by_themselves() -> None:
    assert reason(silent=9, end="out of memory") is None
    assert "has ended at step 120: out of memory" in str(reason(silent=10, end="out of memory"))


def test_long_steps_are_no_standstill() -> None:
    assert reason(still_seconds=44) is None
    assert "no progress for 46 s (step 120, data_wait)" in str(reason(still_seconds=46))
    assert reason(still_seconds=46, longest_seconds=20) is None
    assert reason(still_seconds=201, longest_seconds=20) is not None


def test_the_one_that_stood_still_first_is_named() -> None:
    waiting = Seen(beat=dataclasses.replace(BEAT, name="process 0", phase="compute", still_seconds=45.5), at=NOW)
    stuck = Seen(beat=dataclasses.replace(BEAT, still_seconds=44.5), at=NOW - 1.5)
    assert "process 1 on far" in str(reason_to_stop({0: waiting, 1: stuck}, answered_at=NOW, now=NOW))


def test_only_a_phase_of_a_step_is_a_standstill_and_never_before_the_first_step() -> None:
    one = dist.Watch(World(size=2), CPU, events=None)
    for step, phase, is_judged in [
        (0, "setup", False),
        (500, "data_wait", False),  # where a resumed run goes on
        (501, "data_wait", True),
        (501, "comm", False),
        (501, "compute", True),
        (501, "eval", False),
    ]:
        one.at(step, phase)
        time.sleep(0.001)
        assert (one._beat().still_seconds > 0) == is_judged, (step, phase)


def test_the_longest_step_is_measured_without_the_first_and_without_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.01)
    one = dist.Watch(World(size=2), CPU, events=None)
    judge = threading.Thread(target=one._judge)
    judge.start()
    found = []
    for step, phase in enumerate(["compute", "eval", "comm", "eval"]):
        one.at(step, phase)
        time.sleep(0.3)
        found.append(one._longest_seconds)
    one._over.set()
    judge.join()
    assert found[1] == found[2] == 0 < found[3]


def test_one_process_has_nobody_to_watch() -> None:
    before = threading.active_count()
    with dist.Watch(World(), CPU, events=None) as one:
        one.at(0, "compute")
        assert threading.active_count() == before
