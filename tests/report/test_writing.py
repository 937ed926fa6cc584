"""The report of a run, on the disk."""

import json
import os
import re
from pathlib import Path

import pytest

from stoker import runs, settings
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import Attempt, GaugeRow, LedgerRow, MetricRow
from stoker.report import writing
from stoker.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of some steps."""
    made = runs.create(tmp_path / "runs" / "mine", Config(), resumed_from=None)
    seconds: dict[str, float | None] = {"compute": 3.0, "data_wait": 1.0, "host": None}
    for place in range(1, 4):
        totals = {name: value and value * place for name, value in seconds.items()}
        row = LedgerRow(
            at=4.0 * place, rank=0, world=1, attempt=1, step=20 * place, steps=20, samples=80, seconds=seconds,
            totals=totals, read_seconds=0.1, decode_seconds=0.5, device="cpu",
        )  # fmt: skip
        runs.append_line(made.ledger, row)
        scores = {"loss": 2.0 / place, "top1": 20.0 * place, "top5": 30.0 * place}
        runs.append_line(
            made.metrics, MetricRow(kind="eval", epoch=place, step=20 * place, samples=9, lr=None, scores=scores)
        )
    return made


def test_a_report_is_a_page_and_its_twin_with_pictures(run: Run) -> None:
    written = writing.write(run)
    assert written.html == run.folder / "report.html" and written.markdown == run.folder / "report.md"
    assert written.html_bytes == written.html.stat().st_size
    text = written.markdown.read_text()
    shown = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert {"report/losses.png", "report/ledger.png"} <= set(shown)
    for path in shown:
        assert (run.folder / path).read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (run.folder / "report").iterdir()} == {Path(path).name for path in shown}
    assert "60.00 %" in text and "Bound by" in text


def test_a_report_elsewhere_leaves_the_run_alone(run: Run, tmp_path: Path) -> None:
    before = sorted(run.folder.rglob("*"))
    written = writing.write(run, at=tmp_path / "there" / "mine (1).html")
    assert written.html.exists() and written.markdown == tmp_path / "there" / "mine (1).md"
    assert sorted(run.folder.rglob("*")) == before
    assert "](mine%20%281%29/losses.png)" in written.markdown.read_text()


def test_the_price_that_is_asked_for_counts(run: Run) -> None:
    record = json.loads(run.record.read_text())
    record["attempts"] = [{"started_at": 0.0, "host": "h", "world": 1, "ended_at": 7200.0, "status": "stopped"}]
    run.record.write_text(json.dumps(record))
    assert "**$7.00**".replace("$", "\\$") in writing.write(run, dollars_per_hour=3.5).markdown.read_text()
    assert "no price an hour was given" in writing.write(run).markdown.read_text()


def test_a_report_is_written_again_over_the_old_one(run: Run) -> None:
    first = writing.write(run).html.read_text()
    row = GaugeRow(
        at=1.0, rank=0, host="h", seconds=1.0, gpus=None, cpu_percent=50.0, process_cpu_percent=40.0,
        memory_used_bytes=1, memory_available_bytes=1, disk_read_bytes_per_second=None,
        disk_write_bytes_per_second=None, process_read_bytes_per_second=None, network=None, iowait_percent=None,
    )  # fmt: skip
    for second in range(5):
        runs.append_line(run.gauges_of(0), GaugeRow(**{**row.__dict__, "at": float(second)}))
    assert "The machine meanwhile" not in first
    assert "The machine meanwhile" in writing.write(run).html.read_text()


def test_what_is_missing_is_told(run: Run) -> None:
    run.config.write_text('{"version": 1, "nonsense": {}}')
    written = writing.write(run)
    assert any("the settings" in what for what in written.missing)
    assert "the settings, because" in written.html.read_text()


def test_a_name_that_is_no_text_is_written_all_the_same(run: Run) -> None:
    folder = run.folder.with_name(os.fsdecode(b"caf\xe9"))
    run.folder.rename(folder)
    assert "caf?" in writing.write(Run(folder)).html.read_text()


def test_a_place_that_can_not_be_written_is_a_problem(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="can't be written"):
        writing.write(run, at=tmp_path / "file" / "report.html")
    with pytest.raises(Problem, match="twin in Markdown"):
        writing.write(run, at=tmp_path / "report.md")


def test_a_price_is_checked_and_gives_way_to_that_of_the_settings(run: Run) -> None:
    with pytest.raises(Problem, match="an hour costs -5 dollars"):
        writing.write(run, dollars_per_hour=-5.0)
    runs.update_record(run, attempts=(Attempt(started_at=0.0, host="h", world=1, ended_at=7200.0, status="stopped"),))
    run.config.write_text(settings.as_json(settings.with_values(Config(), {"dollars_per_hour": 2.0})))
    found = writing.write(run, dollars_per_hour=3.5).markdown
    assert found is not None and "**\\$4.00**" in found.read_text()
