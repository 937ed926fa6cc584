"""What only a GPU can show. Run by hand where there is one: python -m pytest -m gpu; results in docs/benchmarks.md."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import api, checkpoint, records, runs, settings
from stoker.config import Config
from stoker.data import order
from stoker.data.loader import Loader
from stoker.records import LedgerRow
from stoker.runs import Run
from stoker.train import loop

from . import test_everything
from .doomed import Start
from .test_resume import STEPS_AN_EPOCH, digests, started, undisturbed

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
    ends = (("after-update", 5), ("in-checkpoint-file", 2), ("in-evaluation", 1), ("after-update", 5), ("never", 1))
    codes = started(*(Start(folder=str(folder), moment=moment, count=count, threads=2) for moment, count in ends))
    assert codes == [-9, -9, -9, -9, 0]
    assert digests(Run(folder)) == whole


def test_an_exact_run_with_everything_on_killed_on_a_gpu_ends_with_the_same_bits(asked: Config, tmp_path: Path) -> None:
    # Everything but weights to begin with: this machine may have no timm to make them.
    on = {k: v for k, v in test_everything.EVERYTHING.items() if k != "freeze_epochs"}
    base = settings.with_values(asked, {"resolution": 0, "batch": 256, "epochs": 10})
    config = settings.with_values(base, {**on, "exact": True})
    whole = {**undisturbed(tmp_path / "whole", config), **average_of(Run(tmp_path / "whole"))}
    folder = tmp_path / "killed"
    runs.create(folder, config, resumed_from=None)
    ends = (("after-update", 8), ("in-snapshot", 2), ("in-evaluation", 1), ("after-update", 15), ("never", 1))
    codes = started(*(Start(folder=str(folder), moment=moment, count=count, threads=2) for moment, count in ends))
    assert codes == [-9, -9, -9, -9, 0]
    assert {**digests(Run(folder)), **average_of(Run(folder))} == whole


def average_of(run: Run) -> dict[str, str]:
    file = checkpoint.find(run, "latest") / checkpoint.EMA
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_waits_for_nothing(asked: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two lines the host never waits for the GPU, with everything on."""
    on = {k: v for k, v in test_everything.EVERYTHING.items() if k not in ("freeze_epochs", "stages", "atoms")}
    config = settings.with_values(asked, {**on, "log_steps": 1000, "checkpoint_steps": 0, "epochs": 2})
    original, calls = loop.step.gradients, [0]

    def strict(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        # The first steps allocate, autotune and draw constants up.
        torch.cuda.set_sync_debug_mode("error" if 3 < calls[0] < STEPS_AN_EPOCH else "default")
        return original(*args, **kwargs)

    monkeypatch.setattr(loop.step, "gradients", strict)
    try:
        api.train(config=config, name=tmp_path / "run", show=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert calls[0] == 2 * STEPS_AN_EPOCH


def test_a_step_that_runs_out_of_memory_is_done_again_in_smaller_atoms(asked: Config, tmp_path: Path) -> None:
    free, whole = torch.cuda.mem_get_info()
    del free
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.2e9 / whole)
    try:
        config = settings.with_values(asked, {"batch": 96, "resolution": 224, "epochs": 2})
        record = api.train(config=config, name=tmp_path / "run", show=False).record
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert record.status == "done" and record.fixed["atoms"] > 1
    assert any(e.kind == "out-of-memory" for e in records.read_lines(Run(tmp_path / "run").events, records.Event))


def test_the_largest_batch_that_fits_is_found(asked: Config, tmp_path: Path) -> None:
    record = api.train(config=settings.with_values(asked, {"batch": "auto"}), name=tmp_path / "run", show=False).record
    assert record.status == "done" and record.fixed["batch"] == 12, "120 samples bound it: 8, then 12"


def test_a_fast_run_on_a_gpu_goes_on_after_a_kill(asked: Config, tmp_path: Path) -> None:
    config = settings.with_values(asked, {"amp": "bf16"})
    folder = tmp_path / "killed"
    runs.create(folder, config, resumed_from=None)
    killed = Start(folder=str(folder), moment="after-update", count=STEPS_AN_EPOCH + 2, threads=2)
    assert started(killed, Start(folder=str(folder))) == [-9, 0]


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
        plans = order.training_plans(pace.route(epochs=2, resolution=32), seed=0, epoch=0, position=0, rank=0, world=1)
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
