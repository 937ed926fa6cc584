"""On a GPU the ledger goes by the GPU's own time. Run by hand where there is one; results in docs/benchmarks.md."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import api, records
from stoker.data.loader import Loader
from stoker.records import LedgerRow
from stoker.runs import Run
from stoker.tasks.classify import Classify
from stoker.train import marks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use"),
]
STEPS = 60


@pytest.fixture
def trained(quick: dict[str, Any], dial_folder: Path, tmp_path: Path) -> Any:
    """Trains ResNet-18 on a GPU, and gives the seconds of its ledger after the first lines, by bucket and step."""
    settings = {
        **quick, "data": str(dial_folder), "device": "cuda", "model": "torchvision/resnet18", "resolution": 64,
        "batch": 16, "epochs": 20, "log_steps": 7, "eval_epochs": 100, "plan": False,
    }  # fmt: skip

    def run(**changes: Any) -> dict[str, float]:
        done = api.train(name=tmp_path / f"run{len(list(tmp_path.iterdir()))}", show=False, **{**settings, **changes})
        rows = [row for row in records.read_lines(Run(done.folder).ledger, LedgerRow) if row.steps]
        whole, first = rows[-1].totals, records.read_record(Run(done.folder).record).attempts[0].started_at
        assert sum(value or 0.0 for value in whole.values()) == pytest.approx(rows[-1].at - first, rel=0.01)
        steady = rows[len(rows) // 2 :]
        steps = sum(row.steps for row in steady)
        return {name: sum(row.seconds[name] or 0.0 for row in steady) / steps for name in steady[0].seconds}

    return run


def test_waiting_for_data_is_data_wait(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Loader.ready
    monkeypatch.setattr(Loader, "ready", lambda self, seconds: time.sleep(0.05) or ready(self, seconds))
    found = trained()
    # A GPU that waits for data begins with an empty queue, so that it waits for launches, too.
    assert found["data_wait"] == pytest.approx(0.05, rel=0.05)
    assert found["data_wait"] + found["compute"] + found["optimizer"] + found["host"] > 0.95 * sum(found.values())
    assert found["other"] < 0.02 * sum(found.values())


def test_work_on_the_gpu_is_compute_and_not_host(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trained()
    loss, size = Classify.loss, 8192
    square = torch.ones(size, size, device="cuda")
    started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(2):
        started.record()
        square @ square
        ended.record()
    torch.cuda.synchronize()
    planted = started.elapsed_time(ended) / 1000

    def heavier(self: Classify, model: Any, inputs: Any) -> Any:
        square @ square
        return loss(self, model, inputs)

    monkeypatch.setattr(Classify, "loss", heavier)
    found = trained()
    grown = found["compute"] + found["host"] - plain["compute"] - plain["host"]
    # Work that a GPU gets while it would wait for launches hides them: so it may grow by less than was planted.
    assert found["compute"] - plain["compute"] == pytest.approx(planted, rel=0.15)
    assert grown <= 1.05 * planted
    assert found["other"] < 0.02 * sum(found.values())


def test_a_thread_that_comes_late_with_work_is_host(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = Classify.loss
    monkeypatch.setattr(Classify, "loss", lambda self, model, inputs: time.sleep(0.03) or loss(self, model, inputs))
    found = trained()
    assert found["host"] > 0.025
    assert found["host"] == pytest.approx(0.03, rel=0.35)
    assert found["compute"] < 0.02
    assert found["other"] < 0.02 * sum(found.values())


def test_marks_are_used_again_and_never_pile_up() -> None:
    stream = marks.Stream(torch.device("cuda", 0))
    for _ in range(20 * marks.LOOK_AT):
        stream.enter("compute")
        torch.ones(8, device="cuda").add_(1)
    torch.cuda.synchronize()
    list(stream.passed())
    assert len(stream._free) < 4 * marks.LOOK_AT
