import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stoker.bench import contest, peers


def job_of(count: int) -> Any:
    return SimpleNamespace(rows=np.arange(count), side=4, workers=1)


def with_load(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    monkeypatch.setattr(peers, "found", lambda key: SimpleNamespace(load=load))


def test_the_rate_counts_neither_the_start_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.0, 100.0, 100.0, *(200.0 + k for k in range(12)), 500.0, 600.0, 700.0, 900.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    with_load(monkeypatch, lambda job: iter([(np.arange(8), None)] * 20))
    assert contest.samples_per_second("any", job_of(160)) == 8.0


def test_samples_that_are_left_out_or_come_twice_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "pillow_pixels", lambda job, row: np.zeros((4, 4, 3), np.uint8))

    def load(job: Any) -> Iterator[Any]:
        yield np.array([0, 1, 1]), np.full((3, 3, 4, 4), 2, np.uint8)

    with_load(monkeypatch, load)
    with pytest.raises(contest.Failed, match="2 of 3 samples, and 3 in all"):
        contest.mean_difference("any", job_of(3))
    with_load(monkeypatch, lambda job: iter([(np.array([1, 0]), np.full((2, 3, 4, 4), 2, np.uint8))]))
    assert contest.mean_difference("any", job_of(2)) == 2.0


def test_a_contestant_that_fails_says_why(tmp_path: Path) -> None:
    contestant = contest.Contestant(peers.found("loop"))
    try:
        with pytest.raises(contest.Failed, match=r"AttributeError: .* no attribute .boxes."):
            contestant.difference(job_of(1))
    finally:
        contestant.close()


def test_processes_are_kept_on_the_first_cores_and_the_caller_gets_its_own_back() -> None:
    before = os.sched_getaffinity(0)
    with contest.pinned(1) as cores:
        assert os.sched_getaffinity(0) == set(cores) == {min(before)}
    assert os.sched_getaffinity(0) == before
