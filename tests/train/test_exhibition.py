"""What a run shows of its task, and that showing it changes nothing."""

import errno
import itertools
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save

from stoker import api, checkpoint, records, runs, settings
from stoker.config import Config
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.dist import World
from stoker.errors import Problem
from stoker.machine.interrupts import StopRequest
from stoker.records import Event, Exhibit, MetricRow
from stoker.runs import Run
from stoker.tasks import Shown, classify, exhibits
from stoker.tasks.classify import Classify
from stoker.train import exhibition
from stoker.train.ledger import Ledger
from stoker.train.site import Site
from tests.train import finished

CPU = torch.device("cpu")
AFTER = {"classes", "confusion", "confusions", "worst"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """All that the exhibition is given."""

    run: Run
    config: Config
    task: Classify
    data: Dataset
    clock: Ledger = field(default_factory=Ledger)
    stop: StopRequest = field(default_factory=StopRequest)

    def opening(self, task: Any = None) -> str | None:
        return exhibition.opening(self.config, task or self.task, self.data, self.site)

    def closing(self, task: Any = None) -> str | None:
        return exhibition.closing(self.config, task or self.task, self.data, self.site)

    @property
    def site(self) -> Site:
        """As much of one as is looked at."""
        return cast(Site, SimpleNamespace(run=self.run, world=World(), device=CPU, clock=self.clock, stop=self.stop))

    def shown(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run.exhibits / f"{name}.json").read_text())
        return found


@dataclass
class Speech:
    """A task that shows words, and remembers what it was given."""

    own: Classify
    asked: list[tuple[Any, list[Plan]]] = field(default_factory=list)
    shown: tuple[Shown, ...] = (Shown(exhibit=Exhibit(name="said", title="", caption="", kind="text", text="hm")),)

    def model(self, *, classes: int) -> torch.nn.Module:
        return self.own.model(classes=classes)

    def exhibits(self, model: Any, data: Dataset, plans: Iterator[Plan], **more: Any) -> tuple[Shown, ...]:
        assert not torch.is_grad_enabled()
        self.asked.append((model, [*itertools.islice(plans, 100)]))
        return self.shown


def place(folder: Path, data: Path, quick: dict[str, Any], **values: Any) -> Place:
    """A finished run with weights of chance."""
    run = finished.run_of(folder, data=data, **{**quick, "atoms": 1, "report": True, **values})
    config = settings.with_values(runs.read_config(run), records.read_record(run.record).fixed)
    task = classify.task_of(config)
    return Place(run=run, config=config, task=task, data=task.open(seed=0, show=False))


@pytest.fixture
def done(tmp_path: Path, dial_folder: Path, quick: dict[str, Any]) -> Place:
    return place(tmp_path / "runs" / "done", dial_folder, quick)


@pytest.fixture
def new(tmp_path: Path, dial_folder: Path, quick: dict[str, Any]) -> Place:
    """A run before its first step."""
    config = settings.with_values(Config(), {**quick, "data": str(dial_folder), "atoms": 1, "report": True})
    run = runs.create(tmp_path / "runs" / "new", config, resumed_from=None)
    task = classify.task_of(config)
    return Place(run=run, config=config, task=task, data=task.open(seed=0, show=False))


def result_of(folder: Path) -> tuple[dict[str, bytes], list[MetricRow]]:
    """All weights of a run and of its optimiser, as bytes, and all its scores."""
    files = {f"{p.parent.name}/{p.name}": p.read_bytes() for p in folder.glob("checkpoints/*/*.safetensors")}
    return files, records.read_lines(folder / "metrics.jsonl", MetricRow)


def test_a_run_that_shows_things_ends_with_the_same_bits(dial_folder: Path, quick: dict[str, Any]) -> None:
    values = {**quick, "data": str(dial_folder), "report": False, "gauge_seconds": 0.0, "plan": False, "ema": 0.9}
    api.train(config=settings.with_values(Config(), values), name="plain", show=False)
    api.train(config=settings.with_values(Config(), {**values, "report": True}), name="shown", show=False)
    weights, scores = result_of(Path("runs/plain"))
    assert len(weights) >= 6 and len(scores) > 4
    assert result_of(Path("runs/shown")) == (weights, scores)
    assert {path.stem for path in Path("runs/shown/exhibits").glob("*.json")} == {"augmented", *AFTER}
    # The counts are those of the evaluation that the best weights come from.
    best = max((row for row in scores if row.kind == "eval"), key=lambda row: row.scores["top1"])
    matrix = np.array(json.loads(Path("runs/shown/exhibits/confusion.json").read_text())["rows"])
    assert matrix.sum() == best.samples == 24
    assert 100 * matrix.trace() / matrix.sum() == pytest.approx(best.scores["top1"])


@pytest.mark.parametrize("when", ["opening", "closing"])
def test_nothing_global_is_changed(when: str, done: Place, new: Place) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    random = np.random.get_state()[1]
    threads, kind = torch.get_num_threads(), torch.get_default_dtype()
    flags = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()
    assert (new.opening() if when == "opening" else done.closing()) is None
    assert torch.equal(torch.get_rng_state(), before) and np.array_equal(np.random.get_state()[1], random)
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, kind)
    assert flags == (
        torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()
    )  # fmt: skip


def test_the_opening_shows_the_first_samples(new: Place) -> None:
    assert new.opening() is None
    shown = new.shown("augmented")
    assert shown["version"] == 1 and shown["kind"] == "pictures" and len(shown["pictures"]) == 16
    for one in shown["pictures"]:
        with Image.open(new.run.exhibits / one["file"]) as picture:
            assert picture.size == (96, 96)
    assert len([*new.run.exhibits.iterdir()]) == 17


def test_the_opening_is_over_once_a_run_has_begun(done: Place) -> None:
    assert done.opening() is None and not done.run.exhibits.exists()


def test_a_run_that_begins_with_another_ones_state_shows_its_own_first_step(new: Place, done: Place) -> None:
    origin = checkpoint.folder(done.run, finished.STEP)
    state = {**json.loads((origin / "state.json").read_text()), "epoch": 1, "position": 32}
    files = {"model.safetensors": (origin / "model.safetensors").read_bytes(), "state.json": json.dumps(state).encode()}
    there = checkpoint.write(done.run, 9, files)
    runs.update_record(new.run, resumed_from=str(there))
    speech = Speech(new.task)
    assert new.opening(speech) is None
    plan = speech.asked[0][1][0]
    assert speech.asked[0][0] is None and plan.epoch == 1 and plan.positions.tolist() == [*range(32, 48)]


def test_the_closing_uses_the_average_where_training_kept_one(
    tmp_path: Path, dial_folder: Path, quick: dict[str, Any]
) -> None:
    both = place(tmp_path / "both", dial_folder, quick, average=True)
    speech = Speech(both.task)
    assert both.closing(speech) is None and both.closing() is None
    ((network, plans),) = speech.asked
    wanted = load_file(checkpoint.folder(both.run, finished.STEP) / "ema.safetensors")
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in network.state_dict().items())
    assert not network.training and sorted(np.concatenate([plan.samples for plan in plans])) == [*range(24)]
    said = "The best weights, of step 7, averaged over steps, on all 24 held-out samples"
    assert all(both.shown(name)["caption"].startswith(said) for name in AFTER)


def test_the_matrix_has_the_score_of_a_plain_evaluation(done: Place) -> None:
    assert done.closing() is None
    matrix = np.array(done.shown("confusion")["rows"])
    scores = api.eval(done.run.folder, batch=16, show=False)
    assert matrix.sum() == scores.samples == 24
    assert 100 * matrix.trace() / matrix.sum() == pytest.approx(scores.scores["top1"])


def test_of_many_samples_some_are_looked_at_evenly_spread(done: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhibition, "MOST", 9)
    speech = Speech(done.task)
    assert done.closing(speech) is None and done.closing() is None
    looked_at = np.sort(np.concatenate([plan.samples for plan in speech.asked[0][1]]))
    assert len(looked_at) == 9 and looked_at[0] == 0 and looked_at[-1] == 23
    assert set(np.diff(looked_at)) <= {2, 3, 4}
    assert np.sum(done.shown("confusion")["rows"]) == 9
    assert "on 9 of 24 held-out samples, spread over all of them" in done.shown("worst")["caption"]


def test_where_it_ends_early_samples_of_all_classes_were_seen(done: Place) -> None:
    many = replace(done.data, held_out=done.data.held_out.taken(np.sort(np.arange(960) % 24)))
    speech = Speech(done.task)
    runs.update_record(done.run, fixed={**records.read_record(done.run.record).fixed, "batch": 100})
    assert replace(done, data=many).closing(speech) is None
    plans = speech.asked[0][1]
    assert {len(plan.samples) for plan in plans} == {64}, "also where an atom is larger"
    assert set(many.held_out.label[plans[0].samples]) == set(many.held_out.label)


def test_who_was_asked_to_stop_looks_at_nothing(done: Place) -> None:
    done.stop.request("SIGTERM")
    speech = Speech(done.task)
    assert done.closing(speech) == "SIGTERM asks for an end"
    assert speech.asked == [] and not done.run.exhibits.exists()


@pytest.mark.parametrize("by", ["a stop", "time"])
def test_an_end_on_the_way_shows_what_was_seen_until_then(
    by: str, done: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, looks = Classify.answers, list[int]()

    def asked(self: Classify, model: Any, pixels: torch.Tensor) -> torch.Tensor:
        looks.append(len(pixels))
        if by == "a stop":
            done.stop.request("SIGTERM")
        else:
            # The clock goes on by ten seconds, and a little.
            now = exhibition.time.monotonic
            monkeypatch.setattr(exhibition, "time", SimpleNamespace(monotonic=lambda: now() + 10.1))
        return answers(self, model, pixels)

    monkeypatch.setattr(Classify, "answers", asked)
    monkeypatch.setattr(exhibition, "LARGEST_BATCH", 6)
    assert done.closing() is None and looks == [6]
    assert np.sum(done.shown("confusion")["rows"]) == 6
    assert all("on 6 of 24 held-out samples" in done.shown(name)["caption"] for name in AFTER)


def test_a_long_run_takes_longer_to_look(done: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    done.clock.totals.update(compute=900.0, eval=200.0, down=9000.0)
    said, times = list[bool](), iter([0.0, 54.0, 56.0])

    class Patient(Speech):
        def exhibits(self, *_: Any, is_over: Any, **__: Any) -> tuple[Shown, ...]:
            said.extend([is_over(), is_over()])
            return ()

    monkeypatch.setattr(exhibition, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert done.closing(Patient(done.task)) is None and said == [False, True]


def test_a_stop_while_a_run_that_is_done_is_looked_at_leaves_it_done(
    dial_folder: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    after = exhibits.after

    def stopped(*given: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return after(*given, **more)

    monkeypatch.setattr(exhibits, "after", stopped)
    values = {**quick, "data": str(dial_folder), "report": True, "plan": False}
    trained = api.train(config=settings.with_values(Config(), values), name="asked", show=False)
    assert trained.record.status == "done"
    assert not Path("runs/asked/exhibits/worst.json").exists()
    told = [event.what for event in records.read_lines(Run(trained.folder).events, Event) if event.kind == "exhibits"]
    assert told == ["what the network sees is not shown: no held-out sample was seen in time"]


def test_no_batch_is_larger_than_an_atom_also_where_memory_ran_out_on_the_way(done: Place) -> None:
    record = records.read_record(done.run.record)
    runs.update_record(done.run, fixed={**record.fixed, "atoms": 4})
    speech = Speech(done.task)
    assert done.closing(speech) is None
    assert {len(plan.samples) for plan in speech.asked[0][1]} == {4}


def test_a_task_without_pictures_shows_what_it_has(new: Place) -> None:
    assert new.opening(Speech(new.task)) is None
    assert [path.name for path in new.run.exhibits.iterdir()] == ["said.json"]
    assert records.built(new.shown("said"), Exhibit, Path()).text == "hm"


def test_what_is_no_number_becomes_null(new: Place) -> None:
    table = Exhibit(name="said", title="", caption="", kind="table", columns=("a",), rows=((float("nan"),),))
    assert new.opening(Speech(new.task, shown=(Shown(exhibit=table),))) is None
    assert new.shown("said")["rows"] == [[None]]


def test_showing_it_again_leaves_nothing_of_the_time_before(done: Place) -> None:
    done.run.exhibits.mkdir()
    for name in ("worst-77.png", "worst.json", "confusion-00.png", "other-00.png"):
        (done.run.exhibits / name).write_bytes(b"old")
    assert done.closing() is None
    left = {path.name for path in done.run.exhibits.iterdir()}
    assert not {"worst-77.png", "confusion-00.png"} & left and "other-00.png" in left
    assert done.closing() is None
    assert {path.name for path in done.run.exhibits.iterdir()} == left
    named = {one["file"] for one in done.shown("worst")["pictures"]}
    assert named == {name for name in left if name.startswith("worst-")} and len(named) == 24


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmore"), "out of memory"),
        (MemoryError(), "out of memory"),
        (Problem("nothing can be read", fix="look"), "nothing can be read"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError: "),
    ],
)
def test_whatever_goes_wrong_is_said_and_ends_nothing(
    error: Exception, said: str, done: Place, new: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(Classify, "exhibits", failing)
    assert new.opening() == said and done.closing() == said
    assert torch.is_grad_enabled()


def test_a_full_disk_ends_nothing(done: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert "the disk is full" in (done.closing() or "")
    assert [*done.run.exhibits.iterdir()] == []
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    pictures = (Shown(exhibit=Exhibit(name="p", title="", caption="", kind="pictures"), files={"p-00.png": b"p"}),)
    assert done.closing(Speech(done.task, shown=pictures)) == "OSError: [Errno 28] No space left on device"


def test_weights_that_are_torn_or_gone_end_nothing(done: Place) -> None:
    weights = checkpoint.folder(done.run, finished.STEP) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "has not the hash" in (done.closing() or "")
    shutil.rmtree(done.run.checkpoints)
    assert done.closing() is not None and not done.run.exhibits.exists()


def test_an_unreadable_sample_is_no_reason_not_to_show_the_others(
    tmp_path: Path, dial_folder: Path, quick: dict[str, Any]
) -> None:
    shutil.copytree(dial_folder, tmp_path / "d")
    run = place(tmp_path / "run", tmp_path / "d", quick)
    run.data.held_out.path(3).unlink()
    assert run.closing() is None
    assert np.sum(run.shown("confusion")["rows"]) == 23
    assert "(1 sample could not be read)" in run.shown("worst")["caption"]


def test_45_classes_are_shown(done: Place) -> None:
    label = (np.arange(24) * 7 % 45).astype(np.int32)
    many = replace(
        done.data, classes=tuple(f"c{k}" for k in range(45)), held_out=replace(done.data.held_out, label=label)
    )
    torch.manual_seed(0)
    weights = {name: tensor.contiguous() for name, tensor in done.task.model(classes=45).state_dict().items()}
    state = json.dumps({"version": 1, "model": "timm/test_resnet", "classes": 45, "step": 8}).encode()
    checkpoint.write(done.run, 8, {"model.safetensors": save(weights), "state.json": state})
    checkpoint.point(done.run, "best", 8)
    assert replace(done, data=many).closing() is None
    shown = done.shown("confusion")
    assert len(shown["columns"]) == len(shown["rows"]) <= 30 and "Of 45 classes" in shown["caption"]
    assert len(done.shown("classes")["rows"]) == len(set(label.tolist()))
