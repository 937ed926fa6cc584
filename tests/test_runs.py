"""A run folder is whole at every moment."""

import os
from pathlib import Path

import pytest

from stoker import api, locks, records, runs
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import MetricRow
from stoker.runs import Run


def test_a_file_is_replaced_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("file.txt")
    runs.write_whole(path, "old")

    def broken(*_: object) -> None:
        raise OSError(5, "the cable was pulled")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="cable"):
        runs.write_whole(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in Path().iterdir()] == ["file.txt"]


def test_a_run_is_found_by_its_name_and_by_its_folder() -> None:
    run = runs.create(Path("runs/mine"), Config(), resumed_from=None)
    assert runs.open_run(Path("mine")) == runs.open_run(Path("runs/mine")) == run
    with pytest.raises(Problem, match="runs here are runs/mine"):
        runs.open_run(Path("yours"))


def test_a_folder_with_other_things_in_it_is_not_taken_over() -> None:
    Path("photos").mkdir()
    Path("photos/cat.jpg").write_text("meow")
    with pytest.raises(Problem, match="not empty and is no run"):
        runs.create(Path("photos"), Config(), resumed_from=None)
    assert os.listdir("photos") == ["cat.jpg"]


def test_what_a_kill_left_of_a_folder_in_the_making_is_taken_over() -> None:
    Path("half/checkpoints").mkdir(parents=True)
    assert runs.create(Path("half"), Config(), resumed_from=None).config.exists()


def test_a_folder_that_can_not_be_made_is_a_problem() -> None:
    Path("file").write_text("")
    with pytest.raises(Problem, match="can't be written"):
        runs.create(Path("file/run"), Config(), resumed_from=None)


def test_operational_settings_may_change_between_two_starts() -> None:
    runs.create(Path("run"), Config(), resumed_from=None)
    run = runs.create(Path("run"), api.configured(threads=3), resumed_from=None)
    assert runs.read_config(run).loader.threads == 3


def test_metrics_beyond_the_checkpoint_are_cut() -> None:
    run = runs.create(Path("run"), Config(), resumed_from=None)
    rows = [
        MetricRow(kind=kind, epoch=epoch, step=step, samples=1, lr=0.1, scores={})
        for kind, epoch, step in (("train", 0, 5), ("train", 0, 10), ("eval", 1, 10), ("train", 1, 15), ("eval", 2, 20))
    ]
    for row in rows:
        runs.append_line(run.metrics, row)
    runs.cut_metrics(run, step=15, evaluated=1)
    assert records.read_lines(run.metrics, MetricRow) == rows[:4]
    runs.cut_metrics(run, step=10, evaluated=0)
    assert records.read_lines(run.metrics, MetricRow) == rows[:2]


def test_what_a_kill_left_half_written_is_removed() -> None:
    run = runs.create(Path("run"), Config(), resumed_from=None)
    (run.checkpoints / ".00000003.tmp").mkdir()
    (run.folder / ".record.json.77.tmp").write_text("{")
    run.exhibits.mkdir()
    (run.exhibits / ".given.json.77.tmp").write_text("{")
    run.events.write_text('{"whole": 1}\n{"to')
    run.ledger.write_text('{"torn from the first')
    run.gauges_of(0).write_text("")
    runs.tidy(run)
    assert run.events.read_text() == '{"whole": 1}\n'
    assert run.ledger.read_text() == run.gauges_of(0).read_text() == ""
    assert sorted(p.name for p in run.folder.rglob("*")) == [
        "checkpoints",
        "config.json",
        "events.jsonl",
        "exhibits",
        "gauges.jsonl",
        "ledger.jsonl",
        "record.json",
    ]


def test_a_lock_is_held_by_one() -> None:
    run: Run = runs.create(Path("run"), Config(), resumed_from=None)
    with locks.held(run.lock), pytest.raises(Problem, match="trained by another process"), locks.held(run.lock):
        pass
    with locks.held(run.lock):
        pass
