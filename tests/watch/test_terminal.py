import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from stoker import runs
from stoker.errors import Problem
from stoker.watch import terminal
from tests.watch import made_up
from tests.watch.made_up import made, training


@pytest.fixture(autouse=True)
def _size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


def test_one_frame_shows_all_runs_and_the_one_that_goes_on_closely(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made(tmp_path / "old", steps=100)
    run = made(tmp_path / "new", status="running", steps=40)
    runs.append_line(run.gauges_of(0), made_up.gauged(made_up.NOW))
    made_up.told(run, "resume", "goes on")
    with training(run):
        terminal.show(tmp_path, once=True)
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    first, second = shown.splitlines()[1:3]
    assert first.startswith("new") and "running" in first and "40 %" in first and "6.0 s" in first
    assert second.startswith("old") and "100 %" in second
    for part in (
        "step 40 of 100  epoch 5 of 10",
        "compute 90%",
        "data_wait 10%",
        "Epoch [3] held out",
        "CPU 50 %",
        "resume: goes on",
    ):
        assert part in shown


def test_it_fits_the_screen_however_many_runs_there_are(tmp_path: Path):
    from rich.console import Console

    for number in range(40):
        made(tmp_path / f"run{number:02d}", steps=20)
    scene = terminal.Scene(tmp_path)
    scene.look()
    console = Console(width=80, height=24, force_terminal=True)
    with console.capture() as captured:
        console.print(terminal.frame(scene, tmp_path, width=80, height=24))
    lines = captured.get().splitlines()
    assert len(lines) <= 24 and any("31 runs more" in line for line in lines)


def test_names_are_text_and_nothing_that_a_terminal_obeys(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made(tmp_path / "[bold red]x[/]", steps=20)
    run = made(tmp_path / "b", steps=40)
    made_up.told(run, "[red]kind", "\x1b[2J\x07gone[/nothing]")
    terminal.show(tmp_path, once=True)
    shown = capsys.readouterr().out
    assert "[bold red]x[/]" in shown and "\x1b" not in shown and "?[2J?gone[/nothing]" in shown


def test_a_folder_without_runs_says_so_and_one_that_is_not_there_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    terminal.show(tmp_path, once=True)
    assert "no runs under" in capsys.readouterr().out
    with pytest.raises(Problem, match="is no folder"):
        terminal.show(tmp_path / "nowhere", once=True)


CODE = "import sys; from pathlib import Path; from stoker.watch import terminal; terminal.show(Path(sys.argv[1]))"


def test_q_leaves_and_the_terminal_is_as_before(tmp_path: Path):
    made(tmp_path / "some-run", steps=20)
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path)], stdin=theirs, stdout=theirs, stderr=theirs)
    shown = b""
    while b"some-run" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b"q")
    while b"\x1b[?1049l" not in shown:  # back from the other screen
        shown += os.read(ours, 4096)
    assert process.wait(60) == 0 and termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
