"""The command line as its users meet it: what it prints, for people and for programs, and what it leaves behind."""

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker import api, checkpoint, cli, locks, records, runs
from stoker.data import native
from stoker.errors import Problem
from stoker.records import MetricRow
from stoker.runs import Run

QUICK = [
    "--model", "timm/test_resnet", "--resolution", "32", "--batch", "16", "--epochs", "2", "--log-steps", "2",
    "--flip", "0", "--device", "cpu", "--compute-threads", "1", "--threads", "2", "--no-report",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert cli.main(["train", *QUICK, "--data", str(dial_folder), "--name", str(folder), "--keep-epochs", "1"]) == 0
    return folder


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """The answer of a command with --json."""
    capsys.readouterr()
    assert cli.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_step_line_has_time_data_loss_and_scores_with_their_means(
    dial_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *QUICK, "--data", str(dial_folder), "--name", "shown"]) == 0
    told = capsys.readouterr()
    number = r"\d+\.\d+ \(\d+\.\d+\)"
    form = rf"Epoch \[1\]\[\d/7\]  Time {number}  Data {number}  Loss {number}  Top1 {number}  Top5 {number}  lr \S+"
    assert len(re.findall(form, told.err)) == 4
    assert "where the time went" in told.err
    assert "run      runs/shown" in told.out and "verdict  " in told.out


def test_a_terminal_shows_a_bar_with_rate_and_time_left(dial_folder: Path) -> None:
    terminal, end = pty.openpty()
    words = [sys.executable, "-m", "stoker", "train", *QUICK, "--data", str(dial_folder), "--name", "bar"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    process = subprocess.Popen(words, stdin=end, stdout=end, stderr=end, env=environment)
    os.close(end)
    told = b""
    with contextlib.suppress(OSError):  # the terminal is gone when its last process is
        while piece := os.read(terminal, 4096):
            told += piece
    assert process.wait(60) == 0
    seen = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", told).decode()
    assert re.search(r"training .* \d+/14 \d+ samples/s left \d\d:\d\d", seen)


def test_the_record_that_train_prints_has_its_shape(dial_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *QUICK, "--data", str(dial_folder), "--name", "r", "--epochs", "1"]
    found = said(words, capsys)
    assert found.keys() == {"folder", "record", "verdict", "was_done", "plan", "report"}
    assert found["record"].keys() == {
        "status", "attempts", "fixed", "data", "resumed_from", "result", "why", "version",
    }  # fmt: skip
    assert found["record"]["result"].keys() == {"epoch", "step", "best", "samples_per_second", "peak_memory_bytes"}
    assert found["record"]["fixed"] == {
        "model": "timm/test_resnet", "atoms": 1, "compute_threads": 1, "resolution": 32,
        "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
    }  # fmt: skip
    attempts = found["record"]["attempts"]
    assert said(words, capsys)["record"]["attempts"] == attempts, "a run that is done is not started again"


def test_a_run_that_ends_leaves_its_page_and_report_writes_it_again(
    dial_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *QUICK, "--report", "--data", str(dial_folder), "--name", "r", "--epochs", "1"]
    assert cli.main(words) == 0
    folder = Path("runs/r")
    assert f"report   {folder / 'report.html'}" in capsys.readouterr().out
    assert (folder / "report.html").exists() and not (folder / "report.md").exists()
    assert {path.stem for path in (folder / "exhibits").glob("*.json")} >= {"augmented", "confusion", "worst"}
    found = said(["report", "r", "--to", "here.html", "--dollars-per-hour", "2"], capsys)
    assert found.keys() == {"html", "markdown", "html_bytes", "missing"}
    assert Path("here.html").stat().st_size == found["html_bytes"] and Path("here.md").exists()
    assert "$2.00 an hour" in Path("here.html").read_text()


@pytest.mark.parametrize("is_full", [False, True])
def test_a_page_that_can_not_be_made_leaves_the_run_done(
    dial_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_full: bool
) -> None:
    append = runs.append_line

    def appended(path: Path, row: Any) -> None:
        if is_full and path.name == "events.jsonl" and row.kind == "report":
            raise Problem("the disk is full", fix="free some space")
        append(path, row)

    def failed(*_: Any, **__: Any) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr("stoker.report.writing.write", failed)
    monkeypatch.setattr(runs, "append_line", appended)
    words = ["train", *QUICK, "--report", "--data", str(dial_folder), "--name", "r", "--epochs", "1"]
    assert cli.main(words) == 0
    printed = capsys.readouterr()
    assert "the report was not written: no ink; try again with: stoker report runs/r" in printed.err
    assert "status   done" in printed.out and "report.html" not in printed.out
    assert ("no ink" in Path("runs/r/events.jsonl").read_text()) if not is_full else True


def test_compare_answers_people_programs_and_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(["compare", str(run), "--target", "1"], capsys)
    assert found.keys() == {"at", "cells", "target_percent", "dollars_per_hour", "beside", "definitions", "version"}
    assert cli.main(["compare", str(run)]) == 0
    assert "timm/test_resnet" in capsys.readouterr().out
    for name, sign in (("c.md", "| "), ("c.csv", ","), ("c.html", "<table")):
        assert cli.main(["compare", str(run), "--to", name]) == 0
        assert sign in Path(name).read_text()
    assert cli.main(["compare", str(run), "--to", "c.txt"]) == 2
    assert ".md, .csv, .html" in capsys.readouterr().err


def test_why_eval_predict_inspect_and_doctor_answer_programs(
    run: Path, dial_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(["why", str(run)], capsys).keys() == {
        "state", "step", "wall_seconds", "steps", "samples", "shares", "not_measured", "useful_share", "busy_percent",
        "mfu", "limit", "gain", "step_seconds", "step_gain", "straggler", "amp", "remedies", "elsewhere", "missing",
        "sentence", "definitions", "version",
    }  # fmt: skip
    scores = said(["eval", str(run)], capsys)
    assert scores.keys() == {
        "model", "checkpoint", "average", "data", "resolution", "samples", "unreadable", "matched", "scores",
    }  # fmt: skip
    answers = said(["predict", str(run), *map(str, sorted(dial_folder.rglob("val/*/*.jpg"))[:2])], capsys)
    assert [a.keys() for a in answers] == [{"input", "classes", "probabilities", "unreadable"}] * 2
    assert sum(answers[0]["probabilities"]) <= 1.0001 and len(answers[0]["classes"]) == 5
    found = said(["inspect", str(dial_folder)], capsys)
    assert found.keys() == {
        "data", "classes", "train_samples", "held_out_samples", "held_out", "total_bytes", "empty", "ignored_files",
        "look", "sheet",
    }  # fmt: skip
    assert sum(found["classes"].values()) == 144 and found["look"]["formats"] == {"JPEG": 144}
    profile = said(["doctor"], capsys)
    assert {"python", "torch", "gpus", "cores", "memory", "disk", "findings"} <= profile.keys()


def test_eval_gives_what_training_wrote_down(run: Path) -> None:
    rows = [row for row in records.read_lines(Run(run).metrics, MetricRow) if row.kind == "eval"]
    for epoch, row in enumerate(rows, start=1):
        scores = api.eval(run, checkpoint=f"epoch_{epoch}", show=False)
        assert scores.samples == row.samples == 24
        assert scores.scores == pytest.approx(row.scores)


def test_eval_takes_other_data_of_the_same_classes(run: Path, dial_folder: Path, tmp_path: Path) -> None:
    assert api.eval(run, data=str(dial_folder / "train"), show=False).samples == 120
    (tmp_path / "other" / "spoon").mkdir(parents=True)
    with pytest.raises(Problem, match="spoon"):
        api.eval(run, data=str(tmp_path / "other"), show=False)


def test_predict_says_which_picture_it_can_not_read(run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("hello")
    nothing, text = api.predict(run, [tmp_path / "nothing.jpg", tmp_path / "text.jpg"])
    assert "nothing" in nothing.input and nothing.unreadable and "not a picture" in (text.unreadable or "")
    assert cli.main(["predict", str(run), str(tmp_path / "text.jpg")]) == 1


def test_a_target_ends_a_run_early(quick: dict[str, Any], dial_folder: Path) -> None:
    record = api.train(
        name="r", data=str(dial_folder), show=False, target_accuracy=0.1, **{**quick, "epochs": 50}
    ).record
    assert record.status == "done"
    assert record.result["epoch"] < 50 and record.result["best"]["top1"] >= 0.1


def test_every_epoch_asked_for_is_kept_and_the_names_point_to_whole_checkpoints(run: Path) -> None:
    opened = Run(run)
    for name in ("latest", "best", "epoch_1", "epoch_2"):
        checkpoint.read(checkpoint.find(opened, name))
    assert checkpoint.steps(opened) == [14, 7]


def test_a_new_run_begins_with_another_runs_checkpoint_and_goes_on_for_longer(
    run: Path, quick: dict[str, Any], dial_folder: Path
) -> None:
    values = {**quick, "data": str(dial_folder), "flip": 0.0, "crop_scale": (0.08, 1.0)}
    longer = {**values, "epochs": 4, "batch": 40}
    record = api.train(name="longer", resume=str(checkpoint.find(Run(run), "epoch_1")), show=False, **longer).record
    assert record.status == "done" and record.resumed_from is not None
    rows = [row for row in records.read_lines(Run(Path("runs/longer")).metrics, MetricRow) if row.kind == "train"]
    assert rows[0].epoch == 1 and rows[-1].epoch == 3
    assert sum(row.samples for row in rows) == 3 * 120
    with pytest.raises(Problem, match="was started from"):
        api.train(name="longer", show=False, **longer)
    short = {**longer, "epochs": 1}
    with pytest.raises(Problem, match="has 1 epochs behind it, and this run ends after 1"):
        api.train(name="short", resume=str(checkpoint.find(Run(run), "epoch_1")), show=False, **short)
    with pytest.raises(Problem, match="made with another seed"):
        api.train(name="seeded", resume=str(checkpoint.find(Run(run), "epoch_1")), show=False, seed=5, **longer)


def test_a_run_begun_with_another_runs_best_has_a_best_of_its_own(
    run: Path, quick: dict[str, Any], dial_folder: Path
) -> None:
    values = {**quick, "data": str(dial_folder), "flip": 0.0, "crop_scale": (0.08, 1.0), "epochs": 3}
    record = api.train(name="own", resume=str(run / "epoch_1"), show=False, target_accuracy=0.1, **values).record
    best = checkpoint.find(Run(Path("runs/own")), "best")
    assert int(best.name) == record.result["best"]["step"]
    assert checkpoint.find(Run(run), str(Path("runs/own/best").resolve())) == best.resolve()


@pytest.mark.parametrize(("name", "value"), [("optimizer", "adamw"), ("amp", "fp16")])
def test_a_run_can_not_begin_with_the_state_of_another_optimiser_or_precision(
    run: Path, quick: dict[str, Any], dial_folder: Path, name: str, value: str
) -> None:
    with pytest.raises(Problem, match=f"was made with {name} "):
        api.train(
            name="other", resume=str(run / "epoch_1"), show=False, data=str(dial_folder), **{**quick, name: value}
        )
    assert not Path("runs/other").exists()


def test_a_higher_target_lets_a_finished_run_go_on(quick: dict[str, Any], dial_folder: Path) -> None:
    values = {**quick, "data": str(dial_folder), "name": "r", "show": False, "epochs": 3}
    assert api.train(target_accuracy=0.1, **values).record.result["epoch"] < 3
    assert api.train(target_accuracy=0.1, **values).was_done
    assert api.train(target_accuracy=100.0, **values).record.result["epoch"] == 3


def test_a_setting_that_stoker_chose_may_be_named_and_left_out_again(quick: dict[str, Any], dial_folder: Path) -> None:
    values = {**quick, "data": str(dial_folder), "name": "r", "show": False, "epochs": 1}
    for atoms in (0, 1, 0):
        assert api.train(**values, atoms=atoms).record.fixed["atoms"] == 1
    with pytest.raises(Problem, match="atoms: 0 -> 2"):
        api.train(**values, atoms=2)


def test_a_start_that_was_refused_may_be_put_right_under_the_same_name(
    quick: dict[str, Any], dial_folder: Path
) -> None:
    values = {**quick, "data": str(dial_folder), "name": "r", "show": False, "epochs": 1}
    with pytest.raises(Problem, match="batch norm needs two"):
        api.train(**values, atoms=16)
    assert api.train(**values, atoms=4).record.status == "done"


def test_why_knows_a_killed_run_from_a_running_one(run: Path, tmp_path: Path) -> None:
    copy = Run(shutil.copytree(run, tmp_path / "copy"))
    assert api.why(copy.folder).state == "done"
    runs.update_record(copy, status="running")
    assert api.why(copy.folder).state.startswith("killed")
    with locks.held(copy.lock):
        assert api.why(copy.folder).state == "running"


def test_without_auto_resume_a_new_folder_is_used_and_the_old_one_left_alone(
    quick: dict[str, Any], dial_folder: Path
) -> None:
    first = api.train(name="mine", data=str(dial_folder), show=False, **{**quick, "epochs": 1})
    before = {p: p.read_bytes() for p in first.folder.rglob("*") if p.is_file()}
    second = api.train(name="mine", data=str(dial_folder), show=False, auto_resume=False, **{**quick, "epochs": 1})
    assert second.folder == Path("runs/mine-2")
    assert before == {p: p.read_bytes() for p in first.folder.rglob("*") if p.is_file()}


def test_a_run_is_named_by_its_settings(quick: dict[str, Any], dial_folder: Path) -> None:
    one = api.train(data=str(dial_folder), show=False, **{**quick, "epochs": 1})
    again = api.train(data=str(dial_folder), show=False, **{**quick, "epochs": 1, "log_steps": 3})
    other = api.train(data=str(dial_folder), show=False, **{**quick, "epochs": 1, "seed": 1})
    assert one.folder == again.folder != other.folder


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    told = capsys.readouterr().out
    assert all(f"\n{name} " in told for name in cli.COMMANDS)
    assert cli.main(["trian"]) == 2
    assert "did you mean stoker train?" in capsys.readouterr().err


def test_a_contact_sheet_that_can_not_be_written_is_refused_before_anything_is_decoded(
    dial_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.data.survey.looks", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(Problem, match="contact sheet"):
        api.inspect(str(dial_folder), sheet="nowhere/sheet.png", show=False)


def test_packing_with_fewer_than_no_workers_is_refused(dial_folder: Path) -> None:
    with pytest.raises(Problem, match="workers is -1"):
        api.pack(dial_folder, "p", workers=-1, show=False)


def test_data_in_the_place_of_a_recipe_is_refused_with_the_flag_for_it(dial_folder: Path) -> None:
    with pytest.raises(Problem) as found:
        api.configured(str(dial_folder))
    assert found.value.fix == f"data is given with --data {dial_folder}"


def test_training_without_the_native_decoder_says_so_once_and_works(
    dial_folder: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    assert api.train(data=str(dial_folder), name="slow", **quick).record.status == "done"
    said = "".join(capfd.readouterr())
    assert said.count(native.MISSING) == 1 and "decode threads, Pillow" in said
