import io
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from stoker import comparison_shown
from stoker.report.comparison import Comparison, compare
from tests.report.compared import CPU, made

FACTS = Path(__file__).parent / "facts" / "caltech256_finetune.csv"


def shown(found: Comparison, monkeypatch: pytest.MonkeyPatch, *, width: int | None) -> str:
    """What a terminal of some width shows, or a file."""
    out = io.StringIO()
    if width is not None:
        console = Console(file=out, width=width, force_terminal=True, color_system=None, highlight=False)
        monkeypatch.setattr(comparison_shown, "console", lambda: console)
    else:
        monkeypatch.setattr(sys, "stdout", out)
    comparison_shown.comparison(found)
    return out.getvalue()


@pytest.fixture
def several() -> Comparison:
    """Repeats, a run on a CPU, and one that ran out of memory."""
    made("base", busy=(60.0, 90.0))
    made("again", seed=1, top1=(20.0, 60.0), busy=(60.0, 90.0))
    made("slow", profile=CPU)
    made("big", batch=4096, status="oom", why="out of memory: 20 GiB asked for", top1=())
    return compare([Path("runs")], target=40.0)


@pytest.mark.parametrize("width", [72, 80, 93, 120, 131, 200])
def test_every_figure_is_shown_and_no_line_is_wider_than_the_terminal(
    width: int, several: Comparison, monkeypatch: pytest.MonkeyPatch
):
    text = shown(several, monkeypatch, width=width)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "all      model resnet18" in text
    first = next(line for line in lines if line.startswith("run  "))
    assert "top-1" in first and "samples/s" in first
    for said in ("55.0 ± 7.1 %", "75.0 ± 0.0 % (60-90)", "3.0 GiB", "4 x Tesla V100", "CPU x86_64, 8 cores", "570.1"):
        assert said in text, said
    assert "big: oom, out of memory: 20 GiB asked for" in text
    assert "no room" not in text and "…" not in text
    assert text.count("again, base") == text.count("\nrun "), "every table begins with the runs"


def test_a_file_gets_one_table_of_whole_lines(several: Comparison, monkeypatch: pytest.MonkeyPatch):
    text = shown(several, monkeypatch, width=None)
    assert sum(line.startswith("run ") for line in text.splitlines()) == 1
    assert max(map(cell_len, text.splitlines())) > 250


def test_of_many_lines_what_matters_most_is_shown_and_the_rest_is_named(monkeypatch: pytest.MonkeyPatch):
    made("one")
    text = shown(compare([Path("one")], beside=FACTS), monkeypatch, width=80)
    assert sum(line.startswith("run ") for line in text.splitlines()) == 1
    assert "reported, oom" in text and "p3.8xlarge mxnet-0.11: failed, cuda error" in text
    assert "cuDNN" in text.split("no room ")[1]


def test_text_of_a_run_is_never_markup(monkeypatch: pytest.MonkeyPatch):
    made("one", model="[red]x[/]", status="failed", why="[bold]no[/nothing]")
    text = shown(compare([Path("one")]), monkeypatch, width=120)
    assert "[red]x[/]" in text and "one: failed, [bold]no[/nothing]" in text


def test_runs_without_repeats_have_no_column_for_their_number(monkeypatch: pytest.MonkeyPatch):
    made("one")
    made("two", lr=0.2)
    text = shown(compare([Path("runs")]), monkeypatch, width=120)
    assert " n " not in text and "±" not in text
