"""What only a GPU can show. Run by hand where there is one: python -m pytest -m gpu; results in docs/benchmarks.md."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import api, records, runs, settings
from stoker.config import Config
from stoker.data import order
from stoker.data.loader import Loader
from stoker.records import LedgerRow
from stoker.runs import Run

from .test_resume import STEPS_AN_EPOCH, finished, killed_at, undisturbed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use"),
]


@pytest.fixture
def asked(quick: dict[str, Any], dial_folder: Path) -> Config:
    changes = {"data": str(dial_folder), "epochs": 3, "checkpoint_steps": 3, "device": "cuda", "resolution": 64}
    return api.configured(**{**quick, **changes, "model": "torchvision/resnet18"})


@pytest.mark.parametrize("amp", ["off", "bf16", "fp16"])
def test_an_exact_run_killed_on_a_gpu_ends_with_the_same_bits(asked: Config, tmp_path: Path, amp: str) -> None:
    config = settings.with_values(asked, {"exact": True, "amp": amp})
    whole = undisturbed(tmp_path / "whole", config)
    folder = tmp_path / "killed"
    runs.create(folder, config, resumed_from=None)
    killed_at(folder, 1, "after-update", 5)
    killed_at(folder, 2, "in-checkpoint-file", 2)
    killed_at(folder, 4, "in-evaluation", 1)
    killed_at(folder, 2, "after-update", 5)
    assert finished(folder) == whole


def test_a_fast_run_on_a_gpu_goes_on_after_a_kill(asked: Config, tmp_path: Path) -> None:
    config = settings.with_values(asked, {"amp": "bf16"})
    folder = tmp_path / "killed"
    runs.create(folder, config, resumed_from=None)
    killed_at(folder, 2, "after-update", STEPS_AN_EPOCH + 2)
    finished(folder)


# torch 2.11 imports parts of itself that it calls deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_run_counts_its_compilation_apart(asked: Config, tmp_path: Path) -> None:
    runs.create(tmp_path / "run", settings.with_values(asked, {"compile": True, "amp": "bf16"}), resumed_from=None)
    assert api.work(tmp_path / "run", show=False).record.status == "done"
    totals = records.read_lines(Run(tmp_path / "run").ledger, LedgerRow)[-1].totals
    assert (totals["compile"] or 0) > (totals["compute"] or 0)
    assert (totals["other"] or 0) < 0.02 * sum(value or 0 for value in totals.values())


def test_pinned_batches_hold_the_same_pixels(asked: Config, dial_folder: Path) -> None:
    from stoker.data import sources

    data = sources.open_source(asked.data, seed=0, show=False)
    pace = order.Pace(count=len(data.train), batch=16, atoms=1, last_step="drop")
    found = []
    for pin in (False, True):
        plans = order.training_plans(pace, seed=0, epoch=0, position=0, epochs=2, rank=0, world=1)
        loader = Loader(data.train, plans, image=asked.image, seed=0, threads=4, ahead=4, pin=pin)
        moved = [(batch.pixels.to("cuda", non_blocking=pin), batch.labels) for batch in loader]
        torch.cuda.synchronize()
        found.append([(pixels.cpu(), labels) for pixels, labels in moved])
        loader.close()
    for plain, pinned in zip(*found, strict=True):
        assert torch.equal(plain[0], pinned[0]) and torch.equal(plain[1], pinned[1])


def test_the_doctor_sees_the_gpu_and_the_record_its_memory(asked: Config, tmp_path: Path) -> None:
    profile = api.doctor(tmp_path)
    assert profile.cuda_works and profile.gpus
    record = api.train(config=asked, name=tmp_path / "run", show=False).record
    assert record.result["peak_memory_bytes"] == torch.cuda.max_memory_allocated()
