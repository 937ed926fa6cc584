import importlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker import api, records, runs, settings
from stoker.config import Config
from stoker.data import sources
from stoker.errors import Problem
from stoker.records import Event, LedgerRow, MetricRow
from stoker.runs import Run
from stoker.tasks.classify import Classify
from stoker.train import divergence, outlets, track
from stoker.train.track import Tracker

KINDS = ("tensorboard", "wandb", "mlflow")
Curves = dict[str, list[tuple[int, float]]]
# What these packages use of others is their makers' business.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb"),
]


@pytest.fixture(autouse=True)
def _no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trackers are waited for on the slowest machine, and end."""
    monkeypatch.setattr(track, "PATIENCE_SECONDS", 120.0)
    monkeypatch.setattr(track, "HURRY_SECONDS", 120.0)
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("track ")] == []


def part(run: Run, number: int) -> str:
    """What a tracker calls a run."""
    return run.folder.name + (f"-{number}" if number > 1 else "")


def from_tensorboard(run: Run, number: int) -> tuple[Curves, dict[str, Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    found = EventAccumulator(str(run.folder / "track/tensorboard" / part(run, number)), size_guidance={"scalars": 0})
    found.Reload()
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    kinds = {name: value.WhichOneof("kind") for name, value in values.items()}
    # Files of two starts within a second are read in the order of their processes' numbers.
    curves = {tag: sorted((event.step, event.value) for event in found.Scalars(tag)) for tag in found.Tags()["scalars"]}
    return curves, {name: getattr(value, kinds[name]) for name, value in values.items()}


def from_mlflow(run: Run, number: int) -> tuple[Curves, dict[str, Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=outlets.database(run.folder / "track/mlflow"))
    experiment = client.get_experiment_by_name("stoker")
    named = {found.info.run_name: found for found in client.search_runs([experiment.experiment_id])}
    found = named[part(run, number)]
    curves = {
        key: [(metric.step, metric.value) for metric in client.get_metric_history(found.info.run_id, key)]
        for key in found.data.metrics
    }
    return curves, {"status": found.info.status, **found.data.params}


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline file: blocks of 32 KiB, as LevelDB writes its log."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = path.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield Record.FromString(whole)
            whole = b""


def wandb_files(run: Run) -> list[list[Any]]:
    """The records of each offline file, when their writer, a process of wandb's own, is done; a kill ends both."""
    paths = sorted((run.folder / "track/wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)
    for count in range(400):
        found = [list(wandb_records(path)) for path in paths]
        ended = [bool(some) and some[-1].WhichOneof("record_type") == "exit" for some in found]
        if all(ended) or (ended[-1] and count > 10):
            break
        time.sleep(0.05)
    return found


def from_wandb(run: Run, number: int) -> tuple[Curves, dict[str, Any]]:
    curves: Curves = {}
    said: dict[str, Any] = {}
    ids = set()
    for file in wandb_files(run):
        is_wanted = False
        for record in file:
            kind = record.WhichOneof("record_type")
            if kind == "run":
                is_wanted = record.run.display_name == part(run, number)
            if not is_wanted:
                continue
            if kind == "run":
                ids.add(record.run.run_id)
                said |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            if kind == "history":
                row = {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
                for name in row.keys() - {"_step", "_runtime", "_timestamp"}:
                    curves.setdefault(name, []).append((row["_step"], row[name]))
            if kind == "summary":
                best = {".".join(i.nested_key) or i.key: i.value_json for i in record.summary.update}
                curves |= {n: [(-1, json.loads(text))] for n, text in best.items() if n.startswith("best/")}
    assert len(ids) == 1, "every start of a run goes on with the same one"
    return curves, said


READERS: dict[str, Callable[[Run, int], tuple[Curves, dict[str, Any]]]] = {
    "tensorboard": from_tensorboard,
    "wandb": from_wandb,
    "mlflow": from_mlflow,
}


def curves_of(run: Run) -> Curves:
    """The curves that a run's own metrics make."""
    found: Curves = {}
    for row in records.read_lines(run.metrics, MetricRow):
        for name, value in {**row.scores, "lr": row.lr, "epoch": row.epoch}.items():
            if value is not None:
                found.setdefault(f"{row.kind}/{name}", []).append((row.step, value))
    return found


def assert_same(found: Curves, wanted: Curves) -> None:
    """The learning curves are the same, point by point; the numbers of TensorBoard are shorter."""
    learned = {name: curve for name, curve in found.items() if name.startswith(("train/", "eval/"))}
    assert learned.keys() == wanted.keys()
    for name, curve in wanted.items():
        assert [step for step, _ in learned[name]] == [step for step, _ in curve], name
        assert [value for _, value in learned[name]] == pytest.approx([value for _, value in curve], rel=1e-6), name


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, what: Callable[[], None]) -> None:
    """Let something happen in a step of a start of a run."""
    loss, calls = Classify.loss, [0]

    def disturbed(self: Any, model: Any, inputs: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            what()
        return loss(self, model, inputs)

    monkeypatch.setattr(Classify, "loss", disturbed)


def crash() -> None:
    raise RuntimeError("a crash")


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tracker_holds_what_was_learned_also_of_a_run_that_crashed_and_stopped_on_the_way(
    kind: str, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    wanted = {**quick, "data": str(dial_folder), "name": "tracked", "track": kind, "show": False, "plan": False}
    run = Run(Path("runs/tracked"))
    with monkeypatch.context() as patch:
        at_step(patch, 6, crash)
        with pytest.raises(RuntimeError, match="a crash"):
            api.train(**wanted)
    assert records.read_lines(run.metrics, MetricRow)[-1].step == 4, "and the next start begins at 0"
    with monkeypatch.context() as patch:
        at_step(patch, 10, stop)
        assert api.train(**wanted).record.status == "stopped"
    trained = api.train(**wanted)
    assert trained.record.status == "done"
    assert not [event for event in records.read_lines(run.events, Event) if event.kind == "track"]

    curves, said = READERS[kind](run, 1)
    assert_same(curves, curves_of(run))
    best = trained.record.result["best"]
    assert curves["best/top1"][-1][1] == pytest.approx(best["top1"])
    assert kind == "wandb" or curves["best/top1"][-1][0] == best["step"]
    assert len(curves["pace/samples_per_second"]) == len(curves["train/loss"])
    shares = {name: curve[-1][1] for name, curve in curves.items() if name.startswith("share/")}
    assert sum(shares.values()) == pytest.approx(1.0, rel=1e-5) and "share/host" not in shares, "host is not measured"
    assert (str(said["model"]), int(said["batch"]), float(said["lr"])) == ("timm/test_resnet", 16, 0.1)
    assert said.get("status", "FINISHED") == "FINISHED"


def a_run(steps: int) -> Run:
    """A run whose metrics go to a step, with nothing else in it."""
    run = runs.create(Path("some/run"), Config(), resumed_from=None)
    for step in range(2, steps + 1, 2):
        runs.append_line(run.metrics, row_of(step))
    return run


def row_of(step: int, *, loss: float | None = None) -> MetricRow:
    scores = {"loss": 10.0 - step if loss is None else loss, "top1": float(step)}
    return MetricRow(kind="train", epoch=0, step=step, samples=16, lr=0.1, scores=scores)


def learned(tracker: Tracker, row: MetricRow) -> None:
    """What training does with a line."""
    runs.append_line(tracker.run.metrics, row)
    tracker.row(row)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_back_is_tracked_anew_from_its_beginning(kind: str):
    run = a_run(4)
    with Tracker(run) as tracker:
        tracker.open(kind, Config())
        tracker.begin(step=4, rollbacks=0, best=None)
        learned(tracker, row_of(6))
        learned(tracker, row_of(8, loss=99.0))
        runs.cut_metrics(run, step=6, evaluated=0)
        tracker.begin(step=6, rollbacks=0, best=None)
        learned(tracker, row_of(8))
        tracker.close("done")
        assert list(tracker.problems()) == []
    first, _ = READERS[kind](run, 1)
    assert first["train/loss"] == [(2, 8.0), (4, 6.0), (6, 4.0), (8, 99.0)], "what went wrong stays to be seen"
    second, _ = READERS[kind](run, 2)
    assert_same(second, curves_of(run))


KILLED = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.train.test_track import a_run, learned, row_of
from stoker.config import Config
from stoker.train.track import Tracker
tracker = Tracker(a_run(4))
tracker.open(sys.argv[2], Config())
tracker.begin(step=4, rollbacks=0, best=None)
learned(tracker, row_of(6))
held = tracker.folder / "held.json"
while not held.exists() or '"train": 6' not in held.read_text():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kind", "goes_on_with"), [("tensorboard", 1), ("wandb", 2), ("mlflow", 1)])
def test_a_kill_costs_a_tracker_nothing(kind: str, goes_on_with: int):
    root = Path(__file__).parents[2]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(root), kind], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    run = Run(Path("some/run"))
    runs.cut_metrics(run, step=4, evaluated=0)
    with Tracker(run) as tracker:
        tracker.open(kind, Config())
        tracker.begin(step=4, rollbacks=0, best={"top1": 4.0, "loss": 6.0, "step": 4})
        learned(tracker, row_of(6))
        learned(tracker, row_of(8))
        tracker.close("done")
        assert list(tracker.problems()) == []
    curves, _ = READERS[kind](run, goes_on_with)
    assert_same(curves, curves_of(run))
    assert len(curves["train/loss"]) == 4 and curves["best/top1"][-1][1] == 4.0


@pytest.mark.parametrize("goes_on_from", [6, 12])
def test_a_run_that_was_killed_as_it_went_back_is_tracked_anew(goes_on_from: int):
    run = a_run(4)
    with Tracker(run) as tracker:
        tracker.open("tensorboard", Config())
        tracker.begin(step=4, rollbacks=0, best=None)
        learned(tracker, row_of(6))
        learned(tracker, row_of(8, loss=99.0))
        tracker.close("failed")
    # What happened then was never told.
    runs.cut_metrics(run, step=6, evaluated=0)
    for step in range(8, goes_on_from + 1, 2):
        runs.append_line(run.metrics, row_of(step))
    for last in (goes_on_from + 2, goes_on_from + 4):
        with Tracker(run) as tracker:
            tracker.open("tensorboard", Config())
            tracker.begin(step=last - 2, rollbacks=1, best=None)
            learned(tracker, row_of(last))
            tracker.close("stopped")
            assert list(tracker.problems()) == []
    assert (8, 99.0) in from_tensorboard(run, 1)[0]["train/loss"]
    assert_same(from_tensorboard(run, 2)[0], curves_of(run))
    assert {path.name for path in tracker.folder.iterdir()} == {"run", "run-2", "held.json"}


def test_a_tracker_that_is_slow_is_told_in_order_what_happened(monkeypatch: pytest.MonkeyPatch):
    run, may_begin = a_run(4), threading.Event()
    read = Tracker._read
    monkeypatch.setattr(Tracker, "_read", lambda self: may_begin.wait(60) and read(self))
    with Tracker(run) as tracker:
        tracker.open("tensorboard", Config())
        tracker.begin(step=4, rollbacks=0, best=None)
        learned(tracker, row_of(6))
        learned(tracker, row_of(8, loss=99.0))
        runs.cut_metrics(run, step=6, evaluated=0)
        tracker.begin(step=6, rollbacks=1, best=None)
        learned(tracker, row_of(8))
        may_begin.set()
        tracker.close("done")
        assert list(tracker.problems()) == []
    assert from_tensorboard(run, 1)[0]["train/loss"] == [(2, 8.0), (4, 6.0), (6, 4.0), (8, 99.0)]
    assert_same(from_tensorboard(run, 2)[0], curves_of(run))


def test_training_does_not_wait_until_its_metrics_are_read(monkeypatch: pytest.MonkeyPatch):
    run, readers, parsed = a_run(4), list[str](), records.parsed

    def noted(*given: Any) -> Any:
        readers.append(threading.current_thread().name)
        return parsed(*given)

    monkeypatch.setattr(records, "parsed", noted)
    with Tracker(run) as tracker:
        tracker.open("tensorboard", Config())
        tracker.begin(step=4, rollbacks=0, best=None)
        tracker.close("stopped")
    assert readers == ["track tensorboard"]


def test_metrics_that_can_not_be_read_end_the_tracking_alone():
    run = a_run(4)
    run.metrics.write_text('{"version": 99}\n')
    with Tracker(run) as tracker:
        tracker.open("tensorboard", Config())
        tracker.begin(step=4, rollbacks=0, best=None)
        tracker.close("stopped")
        (told,) = tracker.problems()
    assert "holds version 99 of MetricRow" in told


def test_a_rollback_is_told_to_the_tracker(quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch):
    begins, begin = list[tuple[int, int]](), Tracker.begin

    def noted(self: Tracker, *, step: int, rollbacks: int, best: Any) -> None:
        begins.append((step, rollbacks))
        begin(self, step=step, rollbacks=rollbacks, best=best)

    seen, calls = divergence.seen, list[int]()

    def once(*given: Any, **more: Any) -> Any:
        calls.append(1)
        return divergence.Found(kind="loss", what="it rises") if len(calls) == 3 else seen(*given, **more)

    monkeypatch.setattr(Tracker, "begin", noted)
    monkeypatch.setattr(divergence, "seen", once)
    trained = api.train(**quick, data=str(dial_folder), name="back", track="tensorboard", show=False, plan=False)
    assert trained.record.status == "done" and begins == [(0, 0), (0, 1)]
    run = Run(trained.folder)
    assert_same(from_tensorboard(run, 2)[0], curves_of(run))


def test_tensorboard_has_on_the_disk_what_it_is_said_to_hold(monkeypatch: pytest.MonkeyPatch):
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.summary.writer.record_writer import RecordWriter

    write = RecordWriter.write

    def slow(self: Any, data: bytes) -> None:
        time.sleep(0.05)
        write(self, data)

    # A thread of its own writes the file: whoever does not wait for it finds nothing there.
    monkeypatch.setattr(RecordWriter, "write", slow)
    writer = outlets.TensorBoard(Path("there"), "name", {}, outlets.Held(id="1"))
    try:
        writer.write([track.entry_of(row_of(step)) for step in (2, 4, 6)])
        (path,) = Path("there/name").iterdir()
        assert len([*RawEventFileLoader(str(path)).Load()]) == 5, "the version, the settings and three steps"
    finally:
        writer.close("done")


def test_wandb_stays_offline_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run = a_run(4)
    with Tracker(run) as tracker:
        assert "wandb sync" in tracker.open("wandb", Config())
        tracker.begin(step=4, rollbacks=0, best=None)
        tracker.close("done")
        assert list(tracker.problems()) == []
    assert_same(from_wandb(run, 1)[0], curves_of(run))


def test_what_shows_mlflow_has_to_be_installed_first():
    with Tracker(Run(Path("some/run"))) as tracker:
        said = tracker.open("mlflow", Config())
    assert f"pip install mlflow, then mlflow ui --backend-store-uri {outlets.database(tracker.folder)}" in said


def test_a_tracker_that_breaks_ends_the_tracking_and_not_the_run(
    quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    write, calls = outlets.TensorBoard.write, [0]

    def breaks(self: Any, entries: Any) -> None:
        calls[0] += 1
        if calls[0] > 3:
            raise OSError(28, "No space left on device")
        write(self, entries)

    monkeypatch.setattr(outlets.TensorBoard, "write", breaks)
    trained = api.train(**quick, data=str(dial_folder), name="broken", track="tensorboard", show=False, plan=False)
    assert trained.record.status == "done"
    run = Run(trained.folder)
    (told,) = [event.what for event in records.read_lines(run.events, Event) if event.kind == "track"]
    assert "tensorboard gets no more figures" in told and "No space left on device" in told
    assert len(records.read_lines(run.metrics, MetricRow)) == 10


@pytest.mark.parametrize(("waiting", "told"), [(10_000, "were not taken within 100 ms"), (1, "1 lines wait for it")])
def test_a_tracker_that_hangs_is_left_behind(
    waiting: int, told: str, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    answers = threading.Event()
    monkeypatch.setattr(outlets.TensorBoard, "write", lambda *_: answers.wait())
    monkeypatch.setattr(track, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(track, "MOST_WAITING", waiting)
    trained = api.train(**quick, data=str(dial_folder), name="hung", track="tensorboard", show=False, plan=False)
    assert trained.record.status == "done"
    (what,) = [e.what for e in records.read_lines(Run(trained.folder).events, Event) if e.kind == "track"]
    assert told in what
    answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("track "):
            assert thread.daemon
            thread.join(5)


MISSING = [(kind, package) for kind, packages in outlets.PACKAGES.items() for package in packages]


@pytest.mark.parametrize(("kind", "package"), MISSING)
def test_a_package_that_is_missing_is_a_problem_before_training(
    kind: str, package: str, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    # So that an import fails, as it does where the package is not installed.
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(package)
    monkeypatch.setattr(sources, "prepared", lambda *_, **__: pytest.fail("data was looked for before"))
    with pytest.raises(Problem, match=f"--track {kind} needs {package}, which is not installed") as found:
        api.train(**quick, data=str(dial_folder), name="refused", track=kind, show=False, plan=False)
    assert "pip install 'stoker[track]'" in str(found.value.fix)
    assert not Path("runs/refused").exists(), "nothing was trained, so nothing is left"


def test_a_folder_that_is_removed_is_filled_anew():
    run = a_run(6)
    for _ in range(2):
        with Tracker(run) as tracker:
            tracker.open("tensorboard", Config())
            tracker.begin(step=6, rollbacks=0, best=None)
            tracker.close("stopped")
        assert_same(from_tensorboard(run, 1)[0], curves_of(run))
        shutil.rmtree(tracker.folder)


def test_what_is_no_number_is_left_out():
    assert track.entry_of(row_of(2, loss=float("nan"))).figures == {
        "train/top1": 2.0,
        "train/lr": 0.1,
        "train/epoch": 0.0,
    }
    assert {type(value) for value in track.flat(Config()).values()} <= {bool, int, float, str}
    assert track.flat(Config()).keys() == {setting.name for setting in settings.listed(Config())}


def test_speed_counts_no_evaluation_and_shares_count_all():
    given = []
    tracker = Tracker(Run(Path("run")))
    tracker._hand_over = given.append  # type: ignore[method-assign]
    seconds = {"compute": 3.0, "data_wait": 1.0, "eval": 4.0, "host": None}
    row = LedgerRow(
        at=0.0, rank=0, world=1, attempt=1, step=20, steps=20, samples=80, seconds=seconds, totals=seconds,
        read_seconds=0.1, decode_seconds=0.5, device="cpu",
    )  # fmt: skip
    tracker.pace(row)
    (entry,) = given[0].entries
    shares = {"share/compute": 0.375, "share/data_wait": 0.125, "share/eval": 0.5}
    assert entry.figures == {**shares, "pace/samples_per_second": 20.0}
