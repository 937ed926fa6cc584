"""What the ledger says, in words."""

import pytest

from stoker.machine import verdict
from stoker.machine.verdict import MEANING
from stoker.records import BUCKETS, LedgerRow


def row(steps: int, **totals: float | None) -> LedgerRow:
    return LedgerRow(
        at=0.0, rank=0, world=1, attempt=1, step=steps, steps=steps, samples=steps * 8, seconds={}, totals=dict(totals),
        read_seconds=0.0, decode_seconds=0.0, device="cpu",
    )  # fmt: skip


def test_every_bucket_has_a_meaning() -> None:
    assert set(MEANING) == set(BUCKETS)


def test_a_starved_run_is_bound_by_data_and_says_what_that_costs() -> None:
    found = verdict.judge([row(100, data_wait=60.0, compute=30.0, optimizer=10.0, host=None)], state="done")
    assert found.limit == "data"
    assert found.sentence == "Bound by data: 60% of the time. Without it the run would be 2.5 times as fast."
    assert found.useful_share == pytest.approx(0.4)
    assert found.not_measured == ("host",)
    assert [share.bucket for share in found.shares] == ["data_wait", "compute", "optimizer"]


def test_a_busy_run_is_bound_by_compute() -> None:
    assert verdict.judge([row(100, data_wait=1.0, compute=30.0, optimizer=10.0)], state="done").limit == "compute"


@pytest.mark.parametrize("rows", [[], [row(3, compute=1.0)]])
def test_there_is_no_verdict_without_evidence(rows: list[LedgerRow]) -> None:
    found = verdict.judge(rows, state="done")
    assert found.limit is None
    assert "20 are needed" in found.sentence
