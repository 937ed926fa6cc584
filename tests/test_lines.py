"""Files of lines, whatever their size and state."""

import io
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from stoker import lines, records
from stoker.records import Event, MetricRow

PATH = Path("metrics.jsonl")


def row(step: int, *, kind: Any = "train") -> MetricRow:
    return MetricRow(kind=kind, epoch=0, step=step, samples=16, lr=0.1, scores={"loss": 1.0})


def write(*rows: MetricRow, path: Path = PATH) -> None:
    path.write_text("".join(records.line(one) + "\n" for one in rows))


def steps(found: lines.Found[MetricRow]) -> list[int]:
    return [one.step for one in found.rows]


def many(count: int, *, every: int = 10_000) -> None:
    """So many training lines, and an evaluation after each `every` of them."""
    text, evaluation = records.line(row(-1)), records.line(row(-1, kind="eval"))
    with open(PATH, "w") as file:
        for step in range(count):
            file.write(text.replace("-1", str(step)) + "\n")
            if step % every == every - 1:
                file.write(evaluation.replace("-1", str(step)) + "\n")


class Counted(io.FileIO):
    """A file that counts the bytes that are read of it."""

    total = 0

    def readinto(self, buffer: Any) -> int:
        got = super().readinto(buffer) or 0
        Counted.total += got
        return got


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    """The bytes that are read of files of lines."""

    def opened(path: Path, mode: str, buffering: int = io.DEFAULT_BUFFER_SIZE) -> io.BufferedReader:
        return io.BufferedReader(Counted(path, mode), max(buffering, 1))

    monkeypatch.setattr(Counted, "total", 0)
    monkeypatch.setattr(lines, "open", opened, raising=False)
    return Counted


def test_all_lines_are_read_and_a_torn_last_one_is_passed_over() -> None:
    assert lines.whole(PATH, MetricRow) == lines.Found(path=PATH)
    write(row(1), row(2))
    with open(PATH, "a") as file:
        file.write('{"kind":"tra')
    found = lines.whole(PATH, MetricRow)
    assert (steps(found), found.torn, found.told, found.is_thinned) == ([1, 2], 1, [], False)


@pytest.mark.parametrize(
    "bad",
    [
        '{"version":2}', "[]", "5", "null", '"text"', '{"version":1}', records.line(row(1)).replace("16", '"16"'),
        records.line(row(1)).replace("0.1", "1e999"), records.line(row(1)).replace("train", "test"),
        records.line(row(1)).replace('{"loss":1.0}', '{"loss":"high"}'), records.line(row(1))[:-1] + ',"more":1}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_is_told_and_the_others_are_read(bad: str) -> None:
    PATH.write_text(f"{records.line(row(1))}\n{bad}\n{bad}\n{records.line(row(2))}\n")
    found = lines.whole(PATH, MetricRow)
    assert steps(found) == [1, 2]
    assert len(found.told) == 1 and found.told[0].startswith("2 lines of metrics.jsonl, because")


def test_binary_lines_and_deep_nests_are_passed_over() -> None:
    PATH.write_bytes(b"\xff\xfe\x00\n" + b"[" * 100_000 + b"\n" + records.line(row(3)).encode() + b"\n")
    found = lines.whole(PATH, MetricRow)
    assert (steps(found), found.torn) == ([3], 2)


def test_a_score_that_was_no_number_does_not_spoil_its_line() -> None:
    write(MetricRow(kind="train", epoch=0, step=1, samples=1, lr=float("nan"), scores={"loss": float("inf")}))
    (found,) = lines.whole(PATH, MetricRow).rows
    assert found.lr is None and found.scores == {"loss": None}


def test_few_lines_are_not_thinned_and_many_of_a_small_file_are() -> None:
    write(*map(row, range(100)))
    assert steps(lines.sampled(PATH, MetricRow, 100)) == list(range(100))
    found = lines.sampled(PATH, MetricRow, 12)
    assert steps(found) == [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99] and found.is_thinned
    assert steps(lines.sampled(PATH, MetricRow, 1)) == [0]


@pytest.mark.parametrize("gone", [True, False])
def test_what_is_no_file_holds_no_lines_and_is_told_where_it_is_there(gone: bool) -> None:
    if not gone:
        PATH.mkdir()
    for found in (
        lines.sampled(PATH, MetricRow, 5),
        lines.holding(PATH, MetricRow, b"a"),
        lines.whole(PATH, MetricRow),
        lines.last(PATH, MetricRow, 5),
    ):
        assert found.rows == ()
        assert found.told == ([] if gone else ["metrics.jsonl, because it can't be read: Is a directory"])


def test_a_file_without_permission_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    write(row(1))

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lines, "open", refused, raising=False)
    assert lines.sampled(PATH, MetricRow, 5).told == ["metrics.jsonl, because it can't be read: Permission denied"]


@pytest.mark.parametrize("count", [10, 50_000])
def test_lines_that_are_no_json_are_told_unless_it_is_the_last_without_its_end(count: int) -> None:
    PATH.write_text((records.line(row(1)) + "\nrubbish\n") * count + '{"kind":"tra')
    (told,) = lines.sampled(PATH, MetricRow, 500).told
    assert told.endswith(" lines of metrics.jsonl, because they are no JSON")
    assert told.startswith("10 ") or count > 10


def test_the_last_lines_are_read_and_all_are_counted() -> None:
    write(*map(row, range(100)))
    found = lines.last(PATH, MetricRow, 3)
    assert (steps(found), found.count, found.is_thinned) == ([97, 98, 99], 100, True)
    every = lines.last(PATH, MetricRow, 100)
    assert (steps(every), every.count, every.is_thinned) == (list(range(100)), 100, False)


def test_of_a_large_file_only_the_sampled_lines_are_read(counted: type[Counted]) -> None:
    many(50_000)
    assert PATH.stat().st_size > lines.WHOLE_BYTES
    found = lines.sampled(PATH, MetricRow, 200)
    taken = steps(found)
    assert taken == sorted(set(taken)) and 190 <= len(taken) <= 200 and found.is_thinned
    assert taken[0] == 0 and taken[-1] == 49_999 and found.rows[-1].kind == "eval"
    gaps = [b - a for a, b in itertools.pairwise(taken)]
    assert max(gaps) < 300 and found.torn == 0 and found.told == []
    # A few kilobytes around each place, and the end.
    assert counted.total <= 200 * 3 * lines.AROUND_BYTES + lines.LONGEST_BYTES + lines.AROUND_BYTES


def test_lines_longer_than_their_distance_come_once_each() -> None:
    text = "x" * 60_000
    rows = [Event(at=number, kind="note", what=text) for number in range(100)]
    PATH.write_text("".join(records.line(one) + "\n" for one in rows))
    assert [one.at for one in lines.sampled(PATH, Event, 4000).rows] == list(range(100))


def test_a_large_file_may_end_in_a_torn_line_or_hold_broken_ones() -> None:
    many(50_000)
    with open(PATH, "r+b") as file:
        file.seek(PATH.stat().st_size // 2)
        file.write((b"\x00" * 99 + b"\n") * 3000)
        file.seek(0, os.SEEK_END)
        file.write(b'{"kind":"train","epo')
    found = lines.sampled(PATH, MetricRow, 200)
    assert found.rows[0].step == 0 and found.rows[-1].kind == "eval"
    assert 5 <= found.torn <= 20 and 180 <= len(found.rows) + found.torn <= 200


def test_a_large_file_of_one_line_holds_nothing() -> None:
    PATH.write_bytes(b"x" * (lines.WHOLE_BYTES + 1))
    assert lines.sampled(PATH, MetricRow, 100, apart=lambda a, b: True).rows == ()


def changing(old: MetricRow, new: MetricRow) -> bool:
    return old.epoch != new.epoch


@pytest.mark.parametrize("count", [1000, 50_000])
def test_the_rows_on_both_sides_of_a_change_are_kept(count: int) -> None:
    ends = [count // 7, count // 7 + 1, count // 7 + 2, count // 2, count - 1]
    text = records.line(row(-1))
    with open(PATH, "w") as file:
        for step in range(count):
            epoch = sum(step >= end for end in ends)
            file.write(text.replace("-1", str(step)).replace('"epoch":0', f'"epoch":{epoch}') + "\n")
    found = lines.sampled(PATH, MetricRow, 50, apart=changing)
    assert {step for end in ends for step in (end - 1, end)} <= set(steps(found))
    assert steps(found) == sorted(set(steps(found))) and len(found.rows) <= 60


def test_the_lines_that_hold_some_bytes_are_found_among_many() -> None:
    many(30_000, every=1000)
    found = lines.holding(PATH, MetricRow, b'"kind":"eval"')
    assert steps(found) == list(range(999, 30_000, 1000))
    with open(PATH, "a") as file:
        file.write(records.line(row(5, kind="eval")))
    assert steps(lines.holding(PATH, MetricRow, b'"kind":"eval"'))[-1] == 5, (
        "the last line has no end yet, but is whole"
    )
    assert lines.holding(PATH, MetricRow, b"nowhere").rows == ()


def test_a_line_across_two_blocks_is_found_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    write(*(row(step, kind="eval" if step % 3 == 0 else "train") for step in range(30)))
    for size in (1, 7, 100, 113):
        monkeypatch.setattr(lines, "BLOCK_BYTES", size)
        assert steps(lines.holding(PATH, MetricRow, b'"kind":"eval"')) == list(range(0, 30, 3))
