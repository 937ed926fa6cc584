import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stoker import api, runs
from stoker.errors import Problem
from stoker.report import comparison
from stoker.report.comparison import Comparison, compare
from stoker.report.comparison.columns import BY_KEY, text
from stoker.report.comparison.repeats import Cell
from stoker.report.markdown import safe
from tests.report.compared import CODE, CPU, PROFILE, made

FACTS = Path(__file__).parents[2] / "facts" / "caltech256_finetune.csv"
NASTY = "=1+1|<img src=x>`*_[a](b)"


def only(found: Comparison) -> Cell:
    (cell,) = found.cells
    return cell


def by_name(found: Comparison) -> dict[str, Cell]:
    return {cell.name: cell for cell in found.cells}


def test_repeats_are_one_line_with_mean_spread_and_number():
    for seed, top1 in enumerate((50.0, 52.0, 57.0)):
        made(f"s{seed}", seed=seed, top1=(20.0, top1), step_seconds=0.1 * (1 + seed))
    cell = only(compare([Path("runs")]))
    assert cell.name == "s0, s1, s2"
    top1 = cell.figures["top1_percent"]
    assert top1 is not None
    assert top1.mean == pytest.approx(53.0) and top1.spread == pytest.approx(13**0.5) and top1.count == 3
    epoch = cell.figures["seconds_per_epoch"]
    # Twenty steps, and the evaluations' part of them.
    assert epoch is not None and epoch.mean == pytest.approx((2 + 4 + 6) / 3 + 4)
    assert [run.seed for run in cell.runs] == [0, 1, 2]


def test_a_run_alone_has_no_spread():
    made("one")
    cell = only(compare([Path("one")]))
    assert all(figure is None or (figure.spread is None and figure.count == 1) for figure in cell.figures.values())
    assert cell.figures["top1_percent"] is not None


@pytest.mark.parametrize(
    "other",
    [
        {"lr": 0.2},
        {"threads": 1},
        {"fingerprint": "f2"},
        {"world": 2},
        {"profile": {**PROFILE, "torch": "2.11.0"}},
        {"profile": {**PROFILE, "cudnn": "9.1"}},
        {"profile": {**PROFILE, "image": "ngc"}},
        {"profile": {**PROFILE, "gpus": [{"name": "K80"}]}},
        {"profile": {**PROFILE, "cores": {"allotted": 64, "present": 64}}},
        {"profile": {**PROFILE, "cpu": "Xeon 8480"}},
        {"target_accuracy": 99.0},
        {"eval_epochs": 2},
        {"on_divergence": "stop"},
        {"checkpoint_epochs": 2},
        {"checkpoint_steps": 5},
        {"checkpoint_minutes": 1.0},
        {"mtbf_hours": 1.0},
        {"code": {**CODE, "version": "0.2.0"}},
        {"status": "failed", "why": "a cable"},
    ],
    ids=str,
)
def test_runs_that_differ_in_more_than_the_seed_are_no_repeats(other: dict[str, Any]):
    made("one", seed=1)
    made("two", seed=2, **other)
    assert [cell.name for cell in compare([Path("runs")]).cells] == ["one", "two"]


def test_runs_of_as_many_atoms_on_other_numbers_of_processes_are_no_repeats():
    made("one", seed=1, atoms=2)
    made("two", seed=2, atoms=2, world=2)
    assert len(compare([Path("runs")]).cells) == 2


def test_the_path_of_the_data_and_what_is_written_down_make_no_difference():
    made("one", seed=1, data="here", log_steps=1)
    made("two", seed=2, data="there", log_steps=50, report=False, gauge_seconds=1.0)
    assert only(compare([Path("runs")])).name == "one, two"


def test_what_keeps_runs_of_one_gpu_apart_is_told():
    made("few", eval_epochs=2)
    made("many", profile={**PROFILE, "cores": {"allotted": 64, "present": 64}})
    cells = by_name(compare([Path("runs")]))
    assert (cells["few"].first.cpu, cells["many"].first.cpu) == ("CPU x86_64, 8 cores", "CPU x86_64, 64 cores")
    assert (cells["few"].first.settings, cells["many"].first.settings) == ({"eval_epochs": 2}, {"eval_epochs": 1})
    assert "CPU x86\\_64, 64 cores" in comparison.markdown(compare([Path("runs")]))


def test_a_run_that_ran_out_of_memory_is_a_line_that_says_what_was_asked_for():
    made("big", status="oom", why="out of memory: tried to allocate 20 GiB", batch=4096, top1=(), amp="bf16")
    made("small")
    found = compare([Path("runs")])
    cell = by_name(found)["big"]
    row = cell.first
    assert (row.status, row.batch, row.atom, row.dtype, row.model) == ("oom", 4096, 4096, "bf16", "resnet18")
    assert cell.mean("top1_percent") is None and cell.mean("samples_per_second") is None
    assert "**big**: oom, out of memory: tried to allocate 20 GiB" in comparison.markdown(found)


@pytest.mark.parametrize("status", ["failed", "diverged", "stopped", "timeout"])
def test_a_run_that_is_not_done_stays_a_line_with_its_reason(status: str):
    made("sad", status=status, why="the loss is nan")
    row = only(compare([Path("sad")])).first
    assert (row.status, row.why) == (status, "the loss is nan")
    assert row.top1_percent == 50.0


def test_a_run_whose_process_is_gone_was_killed():
    made("gone", status="running")
    row = only(compare([Path("gone")])).first
    assert row.status == "killed" and row.why is not None and "the same command again" in row.why
    # The last line of training is of the second epoch; both were evaluated.
    assert (row.epochs, row.epochs_asked) == (2, 2)


def test_two_and_four_processes_scale_by_what_one_does():
    made("one", batch=32, step_seconds=0.1)
    made("two", batch=64, world=2, step_seconds=0.1)
    made("four", batch=128, world=4, step_seconds=0.125)
    made("other batch", batch=256, world=4, step_seconds=0.1)
    cells = by_name(compare([Path("runs")]))
    assert cells["one"].mean("samples_per_second") == pytest.approx(320)
    assert cells["one"].scaling_efficiency == pytest.approx(1.0)
    assert cells["two"].scaling_efficiency == pytest.approx(1.0)
    assert cells["four"].mean("samples_per_second") == pytest.approx(1024)
    assert cells["four"].scaling_efficiency == pytest.approx(0.8)
    assert cells["four"].scaling_kind == "same batch a process"
    assert (cells["other batch"].scaling_efficiency, cells["other batch"].scaling_kind) == (None, None)


def test_the_same_batch_on_more_processes_scales_too_and_says_so():
    made("one", batch=32, step_seconds=0.1)
    made("two", batch=32, world=2, step_seconds=0.0625)
    found = compare([Path("runs")])
    cells = by_name(found)
    assert cells["one"].scaling_efficiency == pytest.approx(1.0)
    assert cells["two"].scaling_efficiency == pytest.approx(0.8)
    assert {cell.scaling_kind for cell in found.cells} == {"same batch in all"}
    rows = list(csv.DictReader(io.StringIO(comparison.csv(found), newline="")))
    assert [row["scaling_kind"] for row in rows] == ["same batch in all"] * 2
    assert "same batch in all" in comparison.markdown(found)


def test_the_same_batch_a_process_comes_before_the_same_batch_in_all():
    made("one", batch=32, step_seconds=0.1)
    made("half", batch=16, step_seconds=0.1)
    made("two", batch=32, world=2, step_seconds=0.1)
    two = by_name(compare([Path("runs")]))["two"]
    # By a process with half of the batch, which makes 160 samples a second, not by one that makes 320.
    assert (two.scaling_efficiency, two.scaling_kind) == (pytest.approx(1.0), "same batch a process")


@pytest.mark.parametrize(
    "other",
    [{"fingerprint": "f2"}, {"mixup": 0.2}, {"erase": 0.5}, {"threads": 1}, {"crop_scale": (0.5, 1.0)},
     {"optimizer": "adamw"}, {"compile": True}],
    ids=str,
)  # fmt: skip
def test_other_data_and_other_work_for_each_sample_are_nothing_to_scale_by(other: dict[str, Any]):
    made("one")
    made("two", world=2, batch=64, **other)
    assert [cell.scaling_efficiency for cell in compare([Path("runs")]).cells] == [None, None]


def test_data_that_nobody_knows_is_nothing_to_scale_by():
    made("one", fingerprint="")
    made("two", world=2, batch=64, fingerprint="")
    assert [cell.scaling_efficiency for cell in compare([Path("runs")]).cells] == [None, None]


def test_without_fewer_processes_there_is_nothing_to_scale_by():
    made("one", world=4, batch=128)
    made("two", world=4, batch=128, lr=0.2)
    assert [cell.scaling_efficiency for cell in compare([Path("runs")]).cells] == [None, None]


def test_another_device_is_nothing_to_scale_by():
    made("cpu", profile=CPU)
    made("gpu", world=2, batch=64)
    assert [cell.scaling_efficiency for cell in compare([Path("runs")]).cells] == [None, None]


def test_the_time_and_cost_to_a_target_end_with_the_evaluation_that_reached_it():
    made("one", top1=(20.0, 50.0, 60.0), epochs=3)
    found = compare([Path("one")], target=45.0, dollars_per_hour=3600.0)
    # The setup, two epochs of two seconds, and two evaluations.
    assert only(found).mean("target_seconds") == pytest.approx(10 + 4 + 2 * 4)
    assert only(found).mean("target_dollars") == pytest.approx(22)
    assert only(found).mean("dollars") == pytest.approx(10 + 6 + 3 * 4)
    assert only(compare([Path("one")], target=61.0)).figures["target_seconds"] is None


def test_repeats_of_which_some_reach_the_target_say_how_many():
    for seed, top1 in enumerate((50.0, 52.0, 57.0)):
        made(f"s{seed}", seed=seed, top1=(20.0, top1))
    found = compare([Path("runs")], target=51.0)
    figure = only(found).figures["target_seconds"]
    assert figure is not None and figure.count == 2
    assert safe("(2 of 3)") in comparison.markdown(found)


def test_a_cost_is_by_the_price_of_the_run_and_by_the_one_given_where_it_has_none():
    made("one", dollars_per_hour=36.0)
    made("free", lr=0.2)
    cells = by_name(compare([Path("runs")]))
    assert cells["one"].mean("dollars") == pytest.approx(0.22)
    assert cells["free"].figures["dollars"] is None
    cells = by_name(compare([Path("runs")], dollars_per_hour=3600.0))
    assert cells["one"].mean("dollars") == pytest.approx(0.22)
    assert cells["free"].mean("dollars") == pytest.approx(22.0)


def test_a_price_that_can_not_be_is_refused_also_for_a_run_with_its_own():
    made("one", dollars_per_hour=36.0)
    with pytest.raises(Problem, match="an hour costs -1 dollars"):
        compare([Path("one")], dollars_per_hour=-1.0)


def test_a_run_that_lost_nothing_says_nothing_of_it_and_one_that_did_says_how_much():
    made("one")
    found = compare([Path("runs")])
    assert only(found).mean("lost_seconds") == 0.0
    assert text(only(found), BY_KEY["lost_seconds"]) is None
    assert "| lost |" not in comparison.markdown(found)
    run = made("two", lr=0.2)
    rows = [json.loads(line) for line in run.ledger.read_text().splitlines()]
    for row in rows:
        row["totals"]["lost"] = 30.0
    run.ledger.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cells = by_name(compare([Path("runs")]))
    assert [text(cells[name], BY_KEY["lost_seconds"]) for name in ("one", "two")] == [None, "30.0 s"]


def test_of_equal_top1_the_evaluation_with_the_least_loss_is_the_best():
    run = made("one", top1=(50.0, 50.0))
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    rows[3]["scores"] |= {"loss": 0.5, "top5": 77.0}
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    row = only(compare([Path("one")])).first
    assert (row.top1_percent, row.top5_percent) == (50.0, 77.0)


def test_gauges_come_with_their_range_and_a_core_is_100_percent():
    made("one", busy=(60.0, 90.0))
    row = only(compare([Path("one")])).first
    assert row.gpu_busy_percent is not None and row.cpu_percent is not None
    assert (row.gpu_busy_percent.mean, row.gpu_busy_percent.least, row.gpu_busy_percent.most) == (75.0, 60.0, 90.0)
    assert row.cpu_percent.mean == 400.0
    assert row.data_wait_share == pytest.approx(0.2)
    assert safe("75 % (60-90)") in comparison.markdown(compare([Path("one")]))


def test_a_cpu_is_a_machine_like_any_other():
    made("cpu", profile=CPU)
    made("gpu")
    cells = by_name(compare([Path("runs")]))
    assert cells["cpu"].first.machine == "CPU x86_64, 8 cores"
    assert cells["gpu"].first.machine == "4 x Tesla V100"
    assert cells["cpu"].first.software.driver is None and cells["cpu"].figures["gpu_busy_percent"] is None
    assert cells["cpu"].mean("samples_per_second") == pytest.approx(320)


def test_driver_cuda_cudnn_and_the_packages_that_differ_are_told():
    made("one", profile={**PROFILE, "image": "nvcr.io/pytorch:25.01"})
    made("two", code={**CODE, "packages": {"timm": "1.0.30", "rich": "15.0", "more": "1.0"}})
    cells = by_name(compare([Path("runs")]))
    one, two = cells["one"].first.software, cells["two"].first.software
    assert (one.driver, one.cuda, one.cudnn, one.torch) == ("570.1", "12.8", "9.10.2", "2.10.0")
    assert (one.image, two.image) == ("nvcr.io/pytorch:25.01", None)
    assert (one.packages, two.packages) == ({"rich": "14.0"}, {"rich": "15.0", "more": "1.0"})


def test_the_settings_that_differ_are_told_and_no_others():
    made("one", lr=0.2, log_steps=1)
    made("two", mixup=0.4)
    cells = by_name(compare([Path("runs")]))
    assert cells["one"].first.settings == {"lr": 0.2, "mixup": 0.0}
    assert cells["two"].first.settings == {"lr": 0.1, "mixup": 0.4}


def test_without_code_or_machine_a_run_is_told_as_far_as_it_goes():
    made("bare", code=None, profile=None)
    row = only(compare([Path("bare")])).first
    assert (row.machine, row.software.torch, row.software.packages, row.top1_percent) == (None, None, {}, 50.0)


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("record", {"version": 99}, "version 99 of RunRecord"),
        ("config", {"later": {"x": 1}}, "there is no setting later"),
    ],
)
def test_a_run_of_another_version_stays_a_line_with_the_reason(name: str, changed: dict[str, Any], said: str):
    path = getattr(made("old"), name)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    made("new", seed=1)
    cells = by_name(compare([Path("runs")]))
    assert said in (cells["old"].first.why or "")
    assert cells["old"].first.top1_percent == 50.0, "what can be read is told"
    assert cells["new"].first.why is None


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"gpus": 3, "packages": [1], "torch": 2}'])
@pytest.mark.parametrize("name", ["machine", "code", "config", "record", "ledger", "metrics"])
def test_a_file_that_holds_something_else_never_stops_the_comparison(name: str, text: str):
    getattr(made("odd"), name).write_text(text)
    made("even", seed=1)
    found = compare([Path("runs")], target=10.0)
    assert sorted(run.name for cell in found.cells for run in cell.runs) == ["even", "odd"]
    assert comparison.markdown(found) and comparison.csv(found)


def test_what_is_no_run_is_refused_and_the_runs_that_are_there_are_named():
    made("one")
    Path("empty").mkdir()
    with pytest.raises(Problem, match="empty is no run") as caught:
        compare([Path("one"), Path("empty")])
    assert "runs/one" in caught.value.fix
    with pytest.raises(Problem, match="nowhere is no run"):
        compare([Path("nowhere")])


def test_without_names_all_runs_are_compared_and_without_runs_it_says_so():
    with pytest.raises(Problem, match="no folder runs/"):
        compare([])
    made("one")
    made("two", lr=0.2)
    assert [cell.name for cell in compare([]).cells] == ["one", "two"]


def test_runs_are_found_by_folder_by_name_and_below_a_folder_each_once():
    run = made("one")
    made("sweep/cell-1", lr=0.2)
    made("sweep/cell-2", lr=0.3)
    # Something else inside of a run, and other people's settings.
    shutil.copytree(runs.ROOT / "sweep" / "cell-1", run.folder / "copy")
    Path("runs/model").mkdir()
    Path("runs/model/config.json").write_text("{}")
    assert [c.name for c in compare([Path("one"), run.folder, Path("sweep")]).cells] == ["one", "cell-1", "cell-2"]
    assert [run.name for cell in compare([Path("runs")]).cells for run in cell.runs] == ["one", "cell-1", "cell-2"]


def test_runs_of_one_name_are_called_by_their_folders():
    made("a/x")
    made("b/x", lr=0.2)
    assert [cell.name for cell in compare([Path("runs")]).cells] == ["runs/a/x", "runs/b/x"]


def test_a_run_that_has_not_begun_is_a_line_of_what_was_asked_for():
    run = made("new", status="failed", why="no data", top1=())
    run.ledger.unlink()
    row = only(compare([Path("new")])).first
    assert (row.status, row.model, row.processes, row.epochs, row.wall_seconds) == ("failed", "resnet18", 1, None, None)
    assert row.machine == "4 x Tesla V100"


@pytest.mark.parametrize("values", [{"target": 0.0}, {"target": 101.0}, {"dollars_per_hour": -1.0},
                                    {"dollars_per_hour": float("nan")}])  # fmt: skip
def test_a_target_or_a_price_that_can_not_be_is_refused(values: dict[str, float]):
    made("one")
    with pytest.raises(Problem):
        compare([Path("one")], **values)


def test_markdown_shows_names_as_they_are_written():
    made("one", model=NASTY)
    made("two", why="a | b\n# c <b>", status="failed")
    text = comparison.markdown(compare([Path("runs")]))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert "<img" not in text and "<b>" not in text
    assert safe(NASTY) in text and safe("a | b # c <b>") in text
    assert "|" not in safe(NASTY).replace(r"\|", "") and "[a]" not in text
    assert {line.replace(r"\|", "").count("|") for line in table} == {table[0].count("|")}


def test_csv_is_raw_numbers_that_a_program_reads_back():
    made("one", seed=1, batch=64, busy=(60.0, 90.0))
    made("two", seed=2, top1=(20.0, 60.0), batch=64, busy=(60.0, 90.0))
    text = comparison.csv(compare([Path("runs")]))
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert text.count("\r\n") == 2
    assert row["run"] == "one, two" and row["runs"] == "2" and row["batch_samples"] == "64"
    assert float(row["top1_percent"]) == 55.0 and float(row["top1_percent_spread"]) == pytest.approx(50**0.5)
    assert (row["gpu_busy_percent_least"], row["gpu_busy_percent_most"]) == ("60.0", "90.0")
    assert float(row["peak_memory_bytes"]) == 3 << 30
    assert row["dollars"] == ""


@pytest.mark.parametrize("sign", ["=", "+", "-", "@"])
def test_no_text_in_a_csv_is_a_formula(sign: str):
    made("one", model=f"{sign}cmd|calc", status="failed", why=f"{sign}1")
    (row,) = csv.DictReader(io.StringIO(comparison.csv(compare([Path("one")])), newline=""))
    assert (row["model"], row["why"]) == (f"'{sign}cmd|calc", f"'{sign}1")
    assert row["top1_percent"] == "50.0"


def test_the_shape_of_the_json_is_kept():
    made("one")
    found = api.as_json(compare([Path("one")], beside=FACTS))
    assert found.keys() == {"at", "cells", "target_percent", "dollars_per_hour", "beside", "definitions", "version"}
    assert found["version"] == 1
    cell = found["cells"][0]
    assert cell.keys() == {"runs", "figures", "samples_per_second_per_process", "scaling_efficiency", "scaling_kind"}
    assert cell["figures"].keys() == {
        "top1_percent", "top5_percent", "last_top1_percent", "epochs", "seconds_per_epoch", "samples_per_second",
        "gpu_busy_percent", "cpu_percent", "peak_memory_bytes", "data_wait_share", "wall_seconds", "lost_seconds",
        "dollars", "target_seconds", "target_dollars",
    }  # fmt: skip
    assert cell["figures"]["top1_percent"].keys() == {"mean", "spread", "count", "least", "most"}
    assert cell["runs"][0].keys() == {
        "name", "folder", "status", "why", "is_reported", "machine", "device", "cpu", "processes", "hosts", "data",
        "model", "batch", "atom", "dtype", "resolution", "epochs_asked", "seed", "epochs", "top1_percent",
        "top5_percent", "last_top1_percent", "seconds_per_epoch", "samples_per_second", "gpu_busy_percent",
        "cpu_percent", "peak_memory_bytes", "data_wait_share", "wall_seconds", "lost_seconds", "dollars",
        "target_seconds", "target_dollars", "limit", "software", "settings", "alike", "missing",
    }  # fmt: skip
    assert json.dumps(found)
