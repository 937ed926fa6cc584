"""Every second is in exactly one bucket, and it is the right one."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker import api, records, runs
from stoker.data.loader import Loader
from stoker.records import BUCKETS, LedgerRow
from stoker.runs import Run
from stoker.tasks.classify import Classify
from stoker.train import evaluation, ledger
from stoker.train.ledger import Ledger
from stoker.train.saves import Saves

pytestmark = pytest.mark.alone


class Slowed:
    """A function with a delay planted in some of its calls, and how long it then took, all in all."""

    def __init__(self, original: Callable[..., Any], *, seconds: float, every: int = 1) -> None:
        self.original, self.seconds, self.every = original, seconds, every
        self.calls = 0
        self.planted = self.whole = 0.0

    def __get__(self, owner: Any, _: type) -> Callable[..., Any]:
        return lambda *args, **kwargs: self(owner, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(args[0], Loader) and not args[0].is_training:
            return self.original(*args, **kwargs)
        began = time.perf_counter()
        self.calls += 1
        if self.calls % self.every == 0:
            time.sleep(self.seconds)
            self.planted += time.perf_counter() - began
        try:
            return self.original(*args, **kwargs)
        finally:
            self.whole += time.perf_counter() - began


@pytest.fixture
def rows(quick: dict[str, Any], dial_folder: Path, tmp_path: Path) -> Callable[[], list[LedgerRow]]:
    """Trains a run with a line for every step, and gives the lines of its ledger."""

    def trained() -> list[LedgerRow]:
        config = api.configured(**{**quick, "data": str(dial_folder), "log_steps": 1, "checkpoint_steps": 5})
        runs.create(tmp_path / "run", config, resumed_from=None)
        api.work(tmp_path / "run", show=False)
        return records.read_lines(Run(tmp_path / "run").ledger, LedgerRow)

    return trained


@pytest.mark.parametrize(
    ("bucket", "owner", "name", "seconds"),
    [
        ("data_wait", Loader, "ready", 0.1),
        ("checkpoint", Saves, "save", 0.3),
        ("eval", evaluation, "evaluated", 0.5),
    ],
)
def test_a_planted_delay_lands_in_its_bucket(
    rows: Any, monkeypatch: pytest.MonkeyPatch, bucket: str, owner: Any, name: str, seconds: float
) -> None:
    slowed = Slowed(getattr(owner, name), seconds=seconds)
    monkeypatch.setattr(owner, name, slowed)
    totals = rows()[-1].totals
    assert slowed.planted > 0.5 * slowed.whole
    assert totals[bucket] == pytest.approx(slowed.whole, rel=0.05)
    assert totals["other"] < 0.02 * sum(value or 0.0 for value in totals.values())


def test_a_delay_planted_in_every_second_step_lands_in_compute(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed = Slowed(Classify.loss, seconds=0.8, every=2)
    monkeypatch.setattr(Classify, "loss", slowed)
    # An evaluation goes through loss as well; it is left out here, so that calls are steps.
    monkeypatch.setattr(Classify, "score", lambda self, model, inputs: slowed.original(self, model, inputs)[1].detach())
    steps = [row for row in rows() if row.steps]
    assert slowed.calls == len(steps) == 14
    slow = statistics.median(row.seconds["compute"] for row in steps[1::2])
    fast = statistics.median(row.seconds["compute"] for row in steps[::2])
    assert slow - fast == pytest.approx(slowed.planted / 7, rel=0.05)


def test_the_buckets_sum_to_the_wall_clock_and_other_is_small(rows: Any) -> None:
    lines = rows()
    last = lines[-1]
    assert set(last.totals) == set(BUCKETS)
    assert sum(value or 0.0 for value in last.totals.values()) == pytest.approx(last.at - first_start(), abs=0.05)
    # The middle of all steps: a pause of Python's own, to look for garbage, may fall into any one of them.
    steps = [line.seconds for line in lines if line.steps]
    assert (
        statistics.median((one["other"] or 0.0) / sum(value or 0.0 for value in one.values()) for one in steps) < 0.02
    )
    assert all(value is None or value >= 0 for line in lines for value in line.seconds.values())
    assert last.totals["host"] is None, "nothing on a CPU measures an idle GPU"


def first_start() -> float:
    return records.read_record(Run(Path("run")).record).attempts[0].started_at


def test_a_bucket_inside_another_takes_its_time_from_it() -> None:
    clock = Ledger()
    with clock.into("eval"):
        time.sleep(0.02)
        with clock.into("data_wait"):
            time.sleep(0.05)
    seconds = clock.interval()
    assert seconds["data_wait"] == pytest.approx(0.05, rel=0.2)
    assert seconds["eval"] == pytest.approx(0.02, rel=0.5)
    assert clock.interval()["eval"] == 0.0


def row(at: float, **totals: float) -> LedgerRow:
    return LedgerRow(
        at=at, rank=0, world=1, attempt=1, step=1, steps=1, samples=1, seconds={}, totals=dict(totals),
        read_seconds=0.0, decode_seconds=0.0, device="cpu",
    )  # fmt: skip


def test_work_after_the_checkpoint_is_lost_and_the_time_until_the_next_start_is_down() -> None:
    # 10 s of work, saved at 110; 5 s more seen in a line at 115; alive until 116; started again at 130.
    got = ledger.carried(
        kept={"compute": 10.0},
        kept_at=110.0,
        kept_step=0,
        last=row(115.0, compute=15.0),
        alive_at=116.0,
        started_at=130.0,
    )
    assert got["compute"] == 10.0
    assert got["lost"] == pytest.approx(6.0)
    assert got["down"] == pytest.approx(14.0)
    assert sum(got.values()) == pytest.approx(130.0 - 100.0)


def test_without_a_checkpoint_everything_before_is_lost_or_down() -> None:
    got = ledger.carried(
        kept=None, kept_at=100.0, kept_step=0, last=row(104.0, setup=4.0), alive_at=105.0, started_at=120.0
    )
    assert got["setup"] == 0.0
    assert got["lost"] == pytest.approx(5.0)
    assert got["down"] == pytest.approx(15.0)


def test_a_clean_stop_loses_nothing() -> None:
    last = row(112.0, compute=10.0, checkpoint=2.0)
    got = ledger.carried(
        kept={"compute": 10.0}, kept_at=110.0, kept_step=1, last=last, alive_at=112.0, started_at=130.0
    )
    assert got["checkpoint"] == 2.0
    assert got["lost"] == 0.0
    assert got["down"] == pytest.approx(18.0)


def test_what_was_down_before_an_earlier_start_stays_down() -> None:
    last = row(150.0, compute=10.0, lost=5.0, down=30.0, setup=5.0)
    got = ledger.carried(kept=None, kept_at=100.0, kept_step=0, last=last, alive_at=150.0, started_at=160.0)
    assert got["lost"] == pytest.approx(20.0)
    assert got["down"] == pytest.approx(40.0)


def test_the_first_start_of_a_run_has_nothing_behind_it() -> None:
    got = ledger.carried(kept=None, kept_at=100.0, kept_step=0, last=None, alive_at=None, started_at=100.0)
    assert set(got.values()) == {0.0}


class Drawn:
    """Marks that a GPU passes when the test says so."""

    def __init__(self) -> None:
        self.pure_seconds: float | None = None
        self.entered: list[str] = []
        self.coming: list[ledger.Passed] = []

    def enter(self, bucket: str) -> None:
        self.entered.append(bucket)

    def begin_step(self) -> None: ...

    def end_step(self) -> None: ...

    def forget(self) -> None:
        self.pure_seconds = None

    def passed(self) -> list[ledger.Passed]:
        found, self.coming = self.coming, []
        return found


def passed(bucket: str, seconds: float, *, ends_step: bool = False) -> ledger.Passed:
    return ledger.Passed(bucket=bucket, seconds=seconds, ends_step=ends_step)


def test_with_marks_time_is_counted_when_the_gpu_has_passed_them() -> None:
    clock, drawn = Ledger(unmeasured={"host"}), Drawn()
    clock.follow(drawn)
    with clock.into("compute"):
        time.sleep(0.02)
    assert clock.interval(steps=1)["compute"] == 0.0
    drawn.coming = [passed("compute", 3.0), passed("optimizer", 1.0, ends_step=True)]
    seconds = clock.interval(steps=1)
    assert (seconds["compute"], seconds["optimizer"], seconds["host"]) == (3.0, 1.0, None)
    assert drawn.entered[:3] == ["setup", "compute", "setup"]


def test_what_a_gpu_took_longer_than_its_work_needs_is_host() -> None:
    clock, drawn = Ledger(unmeasured={"host"}), Drawn()
    clock.follow(drawn)
    drawn.pure_seconds = 1.5
    drawn.coming = [passed("transfer", 0.5), passed("compute", 4.0), passed("optimizer", 0.5, ends_step=True)] * 2
    seconds = clock.interval(steps=2)
    assert seconds["host"] == pytest.approx(2 * (5.0 - 1.5))
    assert seconds["compute"] == pytest.approx(2 * 4.0 - 7.0)
    assert clock.so_far()["host"] == pytest.approx(7.0)


def test_the_exchange_of_each_step_is_kept_until_it_is_split() -> None:
    clock, drawn = Ledger(), Drawn()
    clock.follow(drawn)
    drawn.coming = [passed("comm", 1.0), passed("optimizer", 0.1, ends_step=True), passed("comm", 2.0),
                    passed("comm", 0.5), passed("optimizer", 0.1, ends_step=True), passed("comm", 9.0)]  # fmt: skip
    assert clock.steps_over() == [1.0, 2.5]
    clock.waited(1.5)
    seconds = clock.interval()
    assert (seconds["comm"], seconds["peer_wait"]) == (pytest.approx(11.0), pytest.approx(1.5))
    assert clock.so_far()["peer_wait"] == pytest.approx(1.5)


def test_no_more_is_called_waiting_than_the_exchange_took() -> None:
    clock = Ledger()
    with clock.into("comm"):
        time.sleep(0.01)
    clock.waited(5.0)
    seconds = clock.interval()
    assert seconds["comm"] == 0.0
    assert 0.0 < seconds["peer_wait"] < 1.0
