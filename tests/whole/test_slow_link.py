"""A slow link between two hosts is named before a run, and after it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker import api, records
from stoker.records import LedgerRow
from stoker.runs import Run
from tests.whole import hosts
from tests.whole.hosts import Hosts

MBIT = 50
pytestmark = pytest.mark.alone
# A gigabyte a second would not hold this network up; fifty megabits do: 1.5 MB of gradients a step.
SETTINGS = [
    "--model", "timm/test_resnet", "--resolution", "32", "--batch", "16", "--flip", "0", "--device", "cpu",
    "--compute-threads", "1", "--threads", "1", "--log-steps", "4", "--eval-epochs", "100",
    "--no-report",
]  # fmt: skip


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Hosts]:
    with hosts.joined(2) as joined:
        joined.rate(MBIT)
        yield joined


def trained(two_hosts: Hosts, folder: Path, data: Path, *words: str) -> list[tuple[int, str]]:
    """Exit code and errors of the two processes that train a run together."""
    command = ["-m", "stoker", "train", "--name", str(folder), "--data", str(data), *SETTINGS, *words]
    ended = two_hosts.torchrun(command, timeout=240)
    return [(one.returncode, one.stderr) for one in ended]


@pytest.fixture(scope="module")
def slow_run(two_hosts: Hosts, dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 35 steps over the slow link."""
    folder = tmp_path_factory.mktemp("slow") / "run"
    ended = trained(two_hosts, folder, dial_folder, "--epochs", "5")
    assert [code for code, _ in ended] == [0, 0], ended
    return Run(folder)


def test_a_run_that_the_network_slows_down_is_refused_before_it_starts(
    two_hosts: Hosts, dial_folder: Path, tmp_path: Path
) -> None:
    ended = trained(two_hosts, tmp_path / "run", dial_folder, "--epochs", "100")
    assert all(code != 0 for code, _ in ended), ended
    said = "\n".join(errors for _, errors in ended)
    assert "network makes this run" in said
    assert "--anyway" in said
    assert not (tmp_path / "run").exists(), "nothing of it stays"


def test_time_on_the_wire_is_comm_on_both_hosts(slow_run: Run) -> None:
    for rank in (0, 1):
        rows = [row for row in records.read_lines(slow_run.ledger_of(rank), LedgerRow) if row.steps][1:]
        steps, comm = sum(row.steps for row in rows), sum(row.seconds["comm"] or 0.0 for row in rows)
        # What travels each way by the ring's formula, at what the shaper lets through.
        wire = rows[0].sent_bytes * 8 / (MBIT * 1e6)
        assert comm / steps == pytest.approx(wire, rel=0.15)
        whole = sum(value or 0.0 for row in rows for value in row.seconds.values())
        assert sum(row.seconds["other"] or 0.0 for row in rows) < 0.02 * whole
        assert rows[0].host == f"h{rank + 1}"


def test_why_names_the_network_and_what_would_be_gained(slow_run: Run) -> None:
    verdict = api.why(slow_run.folder)
    assert verdict.limit == "network"
    rows = [row for row in records.read_lines(slow_run.ledger, LedgerRow) if row.steps][1:]
    comm = sum(row.seconds["comm"] or 0.0 for row in rows)
    rest = sum(value or 0.0 for row in rows for name, value in row.seconds.items() if name != "comm")
    assert verdict.step_gain == pytest.approx((comm + rest) / rest, rel=0.3)
    assert verdict.remedies, "there is something to do about it"
    assert json.dumps(api.as_json(verdict))
