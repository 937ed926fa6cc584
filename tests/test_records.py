"""What is written down reads back, also after a kill in the middle of a line."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Literal

import pytest

from stoker import records, runs
from stoker.errors import Problem
from stoker.records import Attempt, Event, MetricRow, RunRecord


def event(number: int) -> Event:
    return Event(at=float(number), kind="test", what=f"number {number}")


def test_lines_read_back_and_a_torn_last_line_is_passed_over() -> None:
    path = Path("events.jsonl")
    for number in range(3):
        runs.append_line(path, event(number))
    with open(path, "a") as file:
        file.write('{"at": 3.0, "kind": "te')
    assert records.read_lines(path, Event) == [event(0), event(1), event(2)]


def test_a_file_that_is_not_there_has_no_lines() -> None:
    assert records.read_lines(Path("nothing.jsonl"), Event) == []


def test_a_line_of_another_version_is_refused() -> None:
    Path("events.jsonl").write_text(json.dumps({**dataclasses.asdict(event(1)), "version": 99}) + "\n")
    with pytest.raises(Problem, match="version 99 of Event"):
        records.read_lines(Path("events.jsonl"), Event)


def test_a_number_that_is_not_finite_becomes_null() -> None:
    row = MetricRow(kind="train", epoch=0, step=1, samples=2, lr=0.1, scores={"loss": math.nan, "top1": math.inf})
    assert json.loads(records.line(row))["scores"] == {"loss": None, "top1": None}


def test_a_record_with_its_attempts_reads_back() -> None:
    record = RunRecord(status="stopped", attempts=(Attempt(started_at=1.0, host="here", world=2),), result={"a": 1})
    Path("record.json").write_text(json.dumps(dataclasses.asdict(record)))
    assert records.read_record(Path("record.json")) == record


@pytest.mark.parametrize(
    ("value", "kind", "is_one"),
    [
        (1, float, True), (1.5, float, True), (True, float, False), (None, float, False), ("1", float, False),
        (math.inf, float, False), (math.nan, float, False), (10**30, int, False), (1.0, int, False), (True, int, False),
        (None, float | None, True), (math.nan, float | None, False), ({"a": None}, dict[str, float], True),
        ({"a": None}, dict[str, dict[str, float]], False), ({"a": "b"}, dict[str, float], False),
        ([1], list[int], True), ((1,), list[int], False), ((1, "a"), tuple[int, ...], False), ("a", Any, True),
        (((1,), ("a",)), tuple[tuple[Any, ...], ...], True), (("a",), tuple[tuple[Any, ...], ...], False),
        ("train", Literal["train", "eval"], True), ([], Literal["train", "eval"], False), ("", str, True),
    ],
)  # fmt: skip
def test_a_value_of_json_is_of_its_declared_type_or_not(value: Any, kind: Any, is_one: bool) -> None:
    assert records.fits(value, kind) is is_one


@pytest.mark.parametrize(
    "text",
    [
        "[]", "5", "null", "{}", '{"version": 1}', '{"version": 1, "status": "dead"}',
        '{"version": 1, "status": "done", "attempts": 5}', '{"version": 1, "status": "done", "attempts": [[]]}',
        '{"version": 1, "status": "done", "attempts": [{"started_at": "now", "host": "h", "world": 1}]}',
        '{"version": 1, "status": "done", "data": []}',
    ],
)  # fmt: skip
def test_a_record_of_anything_else_is_refused_in_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(Problem, match=r"record\.json"):
        records.read_record(tmp_path / "record.json")


@pytest.mark.parametrize("text", ["[" * 200_000, "{ torn", "[]", "5"])
def test_a_record_that_is_none_is_a_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(Problem, match="holds no RunRecord"):
        records.read_record(tmp_path / "record.json")
