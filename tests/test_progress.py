import pytest

from stoker import progress


def test_without_a_terminal_there_is_a_line_at_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    clock = iter([0.0, *(10.0 * k for k in range(1, 11))])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress.follow(iter(range(10, 110, 10)), total=200, what="packing", show=True)
    assert capsys.readouterr().err.splitlines() == [
        "packing: 30 of 200, 1/s, 4 min 15 s left",
        "packing: 60 of 200, 1/s, 2 min 48 s left",
        "packing: 90 of 200, 1/s, 2 min 04 s left",
    ]


def test_nothing_is_said_where_nobody_looks(capsys: pytest.CaptureFixture[str]):
    progress.follow(iter([1, 2]), total=2, what="packing", show=False)
    assert capsys.readouterr().err == ""
