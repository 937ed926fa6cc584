from pathlib import Path

import pytest

from stoker.watch.ending import Ending


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.jsonl"


def add(path: Path, text: bytes) -> None:
    with open(path, "ab") as file:
        file.write(text)


def test_at_first_come_the_last_lines_and_then_what_is_new(path: Path):
    add(path, b"".join(b"line %03d\n" % n for n in range(100)))
    ending = Ending(path, last_bytes=27)
    assert ending.new().texts == (b"line 097", b"line 098", b"line 099")
    assert ending.new().texts == ()
    add(path, b"line 100\nline 101\n")
    assert ending.new().texts == (b"line 100", b"line 101")


@pytest.mark.parametrize(("last_bytes", "expected"), [(9, 1), (10, 1), (17, 1), (18, 2), (1000, 3)])
def test_a_line_that_is_cut_at_the_beginning_is_left_out(path: Path, last_bytes: int, expected: int):
    add(path, b"line 000\nline 001\nline 002\n")
    assert len(Ending(path, last_bytes=last_bytes).new().texts) == expected


def test_a_torn_last_line_waits_until_it_is_whole(path: Path):
    ending = Ending(path, last_bytes=1000)
    add(path, b"one\ntw")
    assert ending.new().texts == (b"one",)
    add(path, b"o")
    assert ending.new().texts == ()
    add(path, b"\nthree\n")
    assert ending.new().texts == (b"two", b"three")


def test_a_file_that_is_not_there_yet_is_no_restart_and_one_that_goes_is(path: Path):
    ending = Ending(path, last_bytes=1000)
    assert ending.new().restarted is False
    add(path, b"one\n")
    found = ending.new()
    assert found.texts == (b"one",) and not found.restarted
    path.unlink()
    assert ending.new().restarted
    add(path, b"two\n")
    assert ending.new().texts == (b"two",)


@pytest.mark.parametrize("replaced", [b"one\n", b"one\nzwei\n", b"other\nlines\nand more of them\n"])
def test_a_file_that_was_cut_or_replaced_starts_over(path: Path, tmp_path: Path, replaced: bytes):
    add(path, b"one\ntwo\nthree\n")
    ending = Ending(path, last_bytes=1000)
    ending.new()
    (tmp_path / "other").write_bytes(replaced)
    (tmp_path / "other").rename(path)
    found = ending.new()
    assert found.restarted and found.texts == tuple(replaced.splitlines())


def test_the_same_lines_written_anew_and_more_are_no_restart(path: Path, tmp_path: Path):
    add(path, b"one\ntwo\n")
    ending = Ending(path, last_bytes=1000)
    ending.new()
    (tmp_path / "other").write_bytes(b"one\ntwo\nthree\n")
    (tmp_path / "other").rename(path)
    found = ending.new()
    assert not found.restarted and found.texts == (b"three",)


def test_after_a_long_silence_only_the_last_bytes_are_read(path: Path):
    add(path, b"first\n")
    ending = Ending(path, last_bytes=100)
    ending.new()
    add(path, b"x" * 9 + b"\n" + b"y" * 99999 + b"\n" + b"last\n")
    before = ending.read_bytes
    assert ending.new().texts == (b"last",)
    assert ending.read_bytes - before < 400
