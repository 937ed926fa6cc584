import json

from stoker.watch.board import Board


def test_someone_new_is_told_all_and_then_only_what_changes():
    board = Board()
    board.put("run/a", {"step": 1})
    board.put("run/b", {"step": 1})
    news = board.since("", run="")
    assert news.is_whole and news.texts == {"run/a": '{"step":1}', "run/b": '{"step":1}'}
    board.put("run/a", {"step": 1})
    board.put("run/b", {"step": 2})
    later = board.since(board.mark(news), run="")
    assert not later.is_whole and later.texts == {"run/b": '{"step":2}'}
    assert board.since(board.mark(later), run="").texts == {}


def test_what_is_gone_is_told_to_those_who_knew_it():
    board = Board()
    board.put("run/a", 1)
    board.put("part/a/lines", [])
    before = board.mark(board.since("", run="a"))
    board.drop("run/a")
    board.drop("part/a/")
    assert board.since(before, run="a").texts == {"run/a": None, "part/a/lines": None}
    assert board.since("", run="a").texts == {}


def test_the_parts_of_a_run_are_told_to_those_who_look_at_it():
    board = Board()
    board.put("part/a/lines", ["x"])
    assert board.since("", run="a").texts == {"part/a/lines": '["x"]'}
    assert board.since("", run="b").texts == {}
    assert board.since("", run="").texts == {}


def test_a_mark_of_another_board_or_of_nothing_that_is_one_gets_all():
    board = Board()
    board.put("run/a", 1)
    for seen in ("", f"{Board().name}.1", f"{board.name}.x", f"{board.name}", "." * 99):
        assert board.since(seen, run="").is_whole


def test_a_number_that_is_not_finite_is_null():
    board = Board()
    board.put("run/a", {"loss": float("nan")})
    assert json.loads(board.since("", run="").texts["run/a"] or "") == {"loss": None}
