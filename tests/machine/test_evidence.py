"""What a run's files say, whatever state they are in."""

import dataclasses
import json
from pathlib import Path

import pytest

from stoker import lines, records, runs, settings
from stoker.config import Config
from stoker.machine import evidence, verdict
from stoker.machine.evidence import gather, pace, steady
from stoker.records import GaugeRow, LedgerRow
from stoker.runs import Run
from tests.machine.made_up import ledger, starved, with_a_slow_one


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose GPU waits for samples."""
    config = settings.with_values(Config(), {"resolution": 64, "compute_threads": 2, "data": str(tmp_path / "photos")})
    made = runs.create(tmp_path / "run", config, resumed_from=None)
    for row in starved():
        runs.append_line(made.ledger, row)
    return made


def test_all_of_a_run_is_gathered(run: Run, tmp_path: Path) -> None:
    run.machine.write_text(json.dumps({"cores": {"allotted": 8}}))
    (run.folder / "plan.json").write_text(json.dumps({"tried": {"amp bf16": 1.9, "compile": None}}))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "pack.json").write_text(json.dumps({"made": {"short_side": 256}}))
    runs.update_record(run, fixed={"atoms": 3}, status="done")
    found = gather(run)
    assert found.rows == {0: starved()}
    assert found.missing == ()
    assert found.config is not None and found.config.train.atoms == 3, "what was fixed at the start is part of it"
    assert (found.state, found.is_done, found.world, found.steps) == ("done", True, 1, 60)
    assert found.tried == {"amp bf16": 1.9}
    assert found.packed == {"short_side": 256}


def test_every_process_has_its_ledger_and_a_missing_one_is_told(run: Run) -> None:
    for rank, rows in enumerate(with_a_slow_one()):
        run.ledger_of(rank).write_text("".join(records.line(row) + "\n" for row in rows))
    assert list(gather(run).rows) == [0, 1, 2]
    run.ledger_of(1).unlink()
    assert any("1 of 3 processes" in what for what in gather(run).missing)


def test_ledgers_of_more_processes_than_there_are_now_are_left_alone(run: Run) -> None:
    for rank, rows in enumerate(with_a_slow_one()):
        run.ledger_of(rank).write_text("".join(records.line(row) + "\n" for row in rows))
    for row in starved(attempt=2):
        runs.append_line(run.ledger, row)
    found = gather(run)
    assert list(found.rows) == [0]
    (one,) = evidence.paces(found)
    assert one.steps == 50 and one.seconds["data_wait"] == pytest.approx(0.3)


def test_torn_lines_are_passed_over(run: Run) -> None:
    whole = run.ledger.read_text()
    run.ledger.write_text(whole + whole.splitlines()[-1][:100])
    found = gather(run)
    assert (len(found.rows[0]), found.missing) == (7, ())


@pytest.mark.parametrize("text", ["[1]", "[]", "{ torn", "[" * 200_000])
@pytest.mark.parametrize("name", ["plan.json", "machine.json"])
def test_files_that_hold_something_else_are_told(run: Run, name: str, text: str) -> None:
    (run.folder / name).write_text(text)
    found = gather(run)
    assert (found.plan, found.profile) == ({}, {})
    assert len([what for what in found.missing if what.startswith(f"{name}, because it")]) == 1


def test_a_ledger_that_is_a_folder_is_told(run: Run) -> None:
    run.ledger.unlink()
    run.ledger.mkdir()
    assert gather(run).missing == ("ledger.jsonl, because it can't be read: Is a directory",)


@pytest.mark.parametrize("spoiled", [{"version": 99}, {"unheard_of": 1}])
def test_lines_of_another_version_are_told_and_the_others_read(run: Run, spoiled: dict[str, int]) -> None:
    first = json.loads(run.ledger.read_text().splitlines()[0])
    with open(run.ledger, "a") as file:
        file.write(json.dumps({**first, **spoiled}) + "\n3\n{}\n")
    found = gather(run)
    assert len(found.rows[0]) == 7
    assert any("1 lines of ledger.jsonl" in what for what in found.missing)
    assert verdict.judge(found).limit == "CPU decode"


def test_a_run_without_anything_still_gets_an_answer(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{")
    (tmp_path / "run" / "machine.json").write_text("[1]")
    found = gather(Run(tmp_path / "run"))
    assert (found.rows, found.record, found.config, found.profile) == ({}, None, None, {})
    assert any("settings" in what for what in found.missing)
    judged = verdict.judge(found)
    assert judged.limit is None
    assert judged.state == "not known: record.json can't be read"
    assert any("ledger lines" in what for what in judged.missing)


def test_without_settings_and_profile_the_ledger_is_still_judged(run: Run) -> None:
    run.config.write_text("{}")
    run.record.unlink()
    found = verdict.judge(gather(run))
    assert found.limit == "CPU decode"
    assert any("machine.json" in what for what in found.missing)
    assert not any("--threads" in remedy.command for remedy in found.remedies), "nobody knows of a free core"


def test_gauges_of_all_processes_are_read(run: Run) -> None:
    row = GaugeRow(
        at=1.0, rank=0, host="h1", seconds=1.0, gpus=None, cpu_percent=50.0, process_cpu_percent=None,
        memory_used_bytes=None, memory_available_bytes=None, disk_read_bytes_per_second=None,
        disk_write_bytes_per_second=None, process_read_bytes_per_second=None, network=None, iowait_percent=None,
    )  # fmt: skip
    for rank in (0, 1):
        runs.append_line(run.gauges_of(rank), dataclasses.replace(row, rank=rank))
    assert [row.rank for row in gather(run).gauges] == [0, 1]


def test_the_first_line_of_steps_is_left_out_where_it_can_be_spared() -> None:
    assert [row.step for row in steady(ledger({"compute": 1.0}, lines=6, steps=10))] == [20, 30, 40, 50, 60]
    assert [row.step for row in steady(ledger({"compute": 1.0}, lines=2, steps=10))] == [10, 20]
    assert [row.step for row in steady(ledger({"compute": 1.0}, lines=1, steps=3))] == [3]


def test_steps_are_judged_by_the_last_start_that_has_enough_of_them() -> None:
    before, after = ledger({"compute": 1.0}), ledger({"compute": 2.0}, attempt=2)
    changed, too_short = pace((*before, *after)), pace((*before, *after[:2]))
    assert changed is not None and too_short is not None
    assert changed.step_seconds == pytest.approx(2.0)
    assert too_short.step_seconds == pytest.approx(1.0)


def test_steps_of_more_processes_say_nothing_about_those_of_fewer() -> None:
    found = pace((*ledger({"compute": 1.0}, world=2), *ledger({"compute": 2.0}, attempt=2, lines=1, steps=5)))
    assert found is not None
    assert (found.steps, found.step_seconds) == (5, pytest.approx(2.0))


def test_checkpoints_of_the_beginning_are_not_spread_over_steps() -> None:
    rows = ledger({"compute": 1.0, "checkpoint": 0.1, "eval": 0.2})
    begun = dataclasses.replace(rows[0], seconds={**rows[0].seconds, "checkpoint": 50.0})
    found = pace((begun, *rows[1:]))
    assert found is not None
    assert found.now_and_then == pytest.approx({"checkpoint": 0.1, "eval": 0.2})
    assert (found.step_seconds, found.whole_seconds) == pytest.approx((1.0, 1.3))


def test_what_was_not_measured_is_not_in_a_pace() -> None:
    found = pace(ledger({"compute": 1.0, "host": None}))
    assert found is not None and "host" not in found.seconds


def many(run: Run, *, starts: int, count: int) -> list[LedgerRow]:
    """A ledger too long to be read whole, of some starts; each goes back a little."""
    step = {**dict.fromkeys(evidence.STEP_BUCKETS, 0.1), "host": None}
    rows: list[LedgerRow] = []
    for attempt in range(1, starts + 1):
        made = ledger(step, lines=count, attempt=attempt, device="cpu")
        first = rows[-1].step - 5 if rows else 0
        rows += [dataclasses.replace(row, at=row.at + 1e5 * attempt, step=first + row.step) for row in made]
    run.ledger.write_text("".join(records.line(row) + "\n" for row in rows))
    return rows


def test_a_long_ledger_is_thinned_to_longer_intervals(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = many(run, starts=3, count=500)
    monkeypatch.setattr(lines, "WHOLE_BYTES", 100_000)
    assert run.ledger.stat().st_size > lines.WHOLE_BYTES
    monkeypatch.setattr(evidence, "MOST_ROWS", 300)
    found = gather(run)
    assert len(found.rows[0]) < 320
    assert found.missing == () and found.totals == rows[-1].totals
    assert found.steps == sum(row.steps for row in rows)
    assert verdict.judge(found).samples == sum(row.samples for row in rows)
    thinned, whole = pace(found.rows[0]), pace(rows)
    assert thinned is not None and whole is not None
    assert thinned.seconds == pytest.approx(whole.seconds) and "host" not in thinned.seconds


def test_many_gauges_are_thinned(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MOST_ROWS", 50)
    values: dict[str, None] = dict.fromkeys(
        ["gpus", "cpu_percent", "process_cpu_percent", "memory_used_bytes", "memory_available_bytes",
         "disk_read_bytes_per_second", "disk_write_bytes_per_second", "process_read_bytes_per_second", "network",
         "iowait_percent"]
    )  # fmt: skip
    rows = [GaugeRow(at=at, rank=0, host="h", seconds=1.0, **values) for at in range(500)]  # type: ignore[arg-type]
    run.gauges_of(0).write_text("".join(records.line(row) + "\n" for row in rows))
    found = gather(run)
    assert len(found.gauges) == 50 and (found.gauges[0].at, found.gauges[-1].at) == (0, 499)


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "null", "{}", '{"version": 1}', "\udcff", "[" * 100_000, '{"status": 5}']
)
def test_a_record_or_settings_of_anything_else_are_told(run: Run, text: str) -> None:
    for path, word in ((run.record, "what became of the run"), (run.config, "the settings")):
        before = path.read_bytes()
        path.write_bytes(text.encode(errors="surrogateescape"))
        found = gather(run)
        is_fine = path == run.config and text in ("{}", '{"version": 1}')  # defaults, all of them
        assert is_fine or any(word in one for one in found.missing)
        assert found.rows
        path.write_bytes(before)


def test_figures_that_make_no_sense_are_left_out_of_the_verdict(run: Run) -> None:
    run.machine.write_text(json.dumps({"cores": {"allotted": "eight"}}))
    found = verdict.sensible(gather(run))
    assert found.profile == {} and found.rows and any("make no sense" in one for one in found.missing)
    assert verdict.judge(found).limit is not None
    run.ledger.write_text("".join(records.line(dataclasses.replace(row, seconds={})) + "\n" for row in starved()))
    found = verdict.sensible(gather(run))
    assert found.rows == {} and any("the ledger" in one for one in found.missing)
    assert verdict.judge(found).limit is None


def test_evidence_that_makes_sense_is_left_alone(run: Run) -> None:
    found = gather(run)
    assert verdict.sensible(found) is found
