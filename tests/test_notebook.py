import html.parser
import importlib
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stoker
from stoker import api, doctor, notebook, runs
from stoker.api import Trained
from stoker.config import DataConfig
from stoker.data import sources
from stoker.notebook import displays, live, shell
from stoker.notebook.card import Card, Part, Table
from stoker.report import account, comparison, writing
from stoker.tasks.classify import Classify
from tests.watch import made_up

MARKUP = "<img src=x onerror=alert(1)>'\"&"


class Page(html.parser.HTMLParser):
    """The elements and the text of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def trained(quick: dict[str, Any], dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run that is done."""
    folder = tmp_path_factory.mktemp("notebook") / "a run"
    return api.train(**quick, data=str(dial_folder), name=folder, show=False, plan=False)


@pytest.fixture
def formatter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What makes displays of values in a notebook, after `register`."""
    from IPython.core.formatters import DisplayFormatter

    found = DisplayFormatter()
    monkeypatch.setattr(shell, "shell", lambda: SimpleNamespace(kernel=object(), display_formatter=found))
    notebook.register()
    return found


def shown(formatter: Any, value: Any) -> Page:
    """A value's display, which is there as HTML and as short plain text."""
    data, _ = formatter.format(value)
    assert len(data["text/plain"]) < 3000 and "(" + type(value).__name__ not in data["text/plain"]
    page = Page(data["text/html"])
    assert page.tags[0] == ("div", page.tags[0][1]) and page.tags[0][1]["class"] == "stoker"
    return page


def test_outside_of_a_notebook_nothing_is_changed(trained: Trained):
    from IPython.core.formatters import DisplayFormatter

    assert not notebook.is_notebook()
    notebook.register()
    data, _ = DisplayFormatter().format(trained)
    assert data.keys() == {"text/plain"} and data["text/plain"].startswith("Trained(")


def test_a_shell_without_a_kernel_is_no_notebook(monkeypatch: pytest.MonkeyPatch):
    for kernel, expected in ((None, False), (object(), True)):
        found = SimpleNamespace(get_ipython=lambda kernel=kernel: SimpleNamespace(kernel=kernel))
        monkeypatch.setitem(sys.modules, "IPython", found)
        assert notebook.is_notebook() is expected
    monkeypatch.delitem(sys.modules, "IPython")
    assert not notebook.is_notebook()


def test_every_display_is_of_a_type_that_is_there():
    for module, name in displays.FORMS:
        assert getattr(importlib.import_module(module), name).__module__ == module


def test_a_run_shows_its_result_and_where_its_time_went(formatter: Any, trained: Trained):
    page = shown(formatter, trained)
    assert "a run" in page.text and "done" in page.text and trained.verdict.sentence in page.text
    assert f"{trained.record.result['best']['top1']:.2f} %" in page.text
    widths = [a["style"] for tag, a in page.tags if a.get("title", "").startswith("compute:")]
    share = next(share.share for share in trained.verdict.shares if share.bucket == "compute")
    assert len(widths) == 1 and f"flex:{share:.4f}" in str(widths[0])


def test_a_run_that_failed_says_why(formatter: Any, trained: Trained):
    record = replace(trained.record, status="failed", why=f"the disk {MARKUP}", result={})
    page = shown(formatter, replace(trained, record=record))
    assert "failed" in page.text and f"the disk {MARKUP}" in page.text
    assert not [tag for tag, _ in page.tags if tag in ("img", "script")]


def test_values_show_what_they_hold(formatter: Any, trained: Trained, quick: dict[str, Any], dial_folder: Path):
    verdict = shown(formatter, api.why(trained.folder))
    assert trained.verdict.sentence in verdict.text and "GPU busy not measured" in verdict.text
    inspected = shown(formatter, api.inspect(str(dial_folder), show=False, sheet="sheet.png"))
    assert "bar-3" in inspected.text and "all readable" in inspected.text
    assert [a["src"][:22] for tag, a in inspected.tags if tag == "img"] == ["data:image/png;base64,"]
    found = sources.open_source(DataConfig(data=str(dial_folder)), seed=0, show=False)
    assert "120" in shown(formatter, found).text and "120" in shown(formatter, found.train).text
    profile = doctor.examine(Path())
    assert profile.platform in shown(formatter, profile).text
    plan = api.plan(**quick, data=str(dial_folder), show=False)
    assert "fastest: this" in shown(formatter, plan).text


def test_what_reports_are_made_of_shows_itself(formatter: Any, trained: Trained):
    run = runs.open_run(trained.folder)
    page = shown(formatter, account.gather(run))
    assert "a run" in page.text and len([tag for tag, _ in page.tags if tag == "img"]) == 2, "loss and scores"
    assert "report.html" in shown(formatter, writing.write(run)).text
    compared = shown(formatter, comparison.compare([trained.folder], target=1.0))
    assert "a run" in compared.text and "top-1" in compared.text


def test_text_is_never_markup():
    card = Card(
        title=MARKUP, state=MARKUP, sentence=MARKUP, facts=((MARKUP, MARKUP),), code=(MARKUP,), notes=(MARKUP,),
        bar=(Part(name=MARKUP, text=MARKUP, share=0.5, colour='red"><script>'),), progress=0.5,
        table=Table(columns=(MARKUP,), rows=((MARKUP,),)),
    )  # fmt: skip
    page = Page(card.html)
    assert {tag for tag, _ in page.tags} <= {"div", "span", "b", "pre", "table", "thead", "tbody", "tr", "th", "td"}
    assert {name for _, attributes in page.tags for name in attributes} <= {
        "class", "style", "title", "role", "aria-valuenow",
    }  # fmt: skip
    assert page.text.count(MARKUP) == 11 and card.text.count(MARKUP) == 11


def test_a_long_table_is_cut_and_says_so():
    card = Card(title="many", table=Table(columns=("n",), rows=tuple((str(n),) for n in range(100))))
    assert "... and 76 more" in Page(card.html).text and ">99<" not in card.html


class Cell:
    """The output of a notebook's cell: displays, each with its updates."""

    def __init__(self) -> None:
        self.displays: list[list[dict[str, str]]] = []

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw and display_id
        states = [bundle]
        self.displays.append(states)
        return SimpleNamespace(update=lambda bundle, raw: states.append(bundle))


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    found = Cell()
    monkeypatch.setattr("IPython.display.display", found.display)
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.05)
    return found


def assert_no_thread_is_left() -> None:
    assert [thread for thread in threading.enumerate() if thread.name == "notebook"] == []


def test_a_run_is_shown_while_it_trains_in_one_place(
    cell: Cell, quick: dict[str, Any], dial_folder: Path, capsys: pytest.CaptureFixture[str]
):
    with notebook.Live(Path("runs/seen")) as seen:
        api.train(**quick, data=str(dial_folder), name="seen", show=False, plan=False)
    assert seen.failed is None
    assert_no_thread_is_left()
    (states,) = cell.displays
    texts = [state["text/plain"] for state in states]
    assert texts[0] == "seen: starting" and texts[-1].startswith("seen: done\n100% done")
    assert any(text.startswith("seen: running") for text in texts)
    assert "step: 14 of 14" in texts[-1] and "Epoch [1] held out" in texts[-1]
    assert len([tag for tag, _ in Page(states[-1]["text/html"]).tags if tag == "img"]) == 2, "loss and scores"
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_a_run_that_fails_is_shown_as_it_ended(
    cell: Cell, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def crash(*_: object) -> None:
        raise RuntimeError(f"a crash {MARKUP}")

    monkeypatch.setattr(Classify, "loss", crash)
    with pytest.raises(RuntimeError, match="a crash"), notebook.Live(Path("runs/ended")):
        api.train(**quick, data=str(dial_folder), name="ended", show=False, plan=False)
    assert_no_thread_is_left()
    last = Page(cell.displays[0][-1]["text/html"])
    assert "failed" in last.text and f"a crash {MARKUP}" in last.text


def test_a_long_past_is_shown_from_its_beginning_and_what_is_new_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "RECENT_BYTES", 1000)
    run = made_up.made(tmp_path / "long", status="running", steps=60)
    shown = notebook.Live(run.folder)
    shown._read()
    assert shown._training.rows[0].step == 2 and shown._training.rows[-1].step == 60
    made_up.train(run, 60, 62)
    shown._read()
    shown._read()
    assert [row.step for row in shown._training.rows] == list(range(2, 64, 2))
    assert [row.epoch for row in shown._evaluations] == [1, 2, 3, 4, 5, 6]
    run.metrics.write_text("")
    made_up.train(run, 0, 10)
    shown._read()
    assert [row.step for row in shown._training.rows] == [2, 4, 6, 8, 10] and len(shown._evaluations) == 1


def test_a_folder_that_never_becomes_a_run_is_no_error(cell: Cell):
    with notebook.Live(Path("runs/nothing")) as seen:
        pass
    assert_no_thread_is_left()
    assert seen.failed is None and len(cell.displays) == 1


@pytest.mark.parametrize("broken", ["IPython.display.display", "stoker.notebook.live.Live.card"])
def test_a_display_that_fails_does_not_end_the_run(
    broken: str, cell: Cell, quick: dict[str, Any], dial_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object, **__: object) -> None:
        raise ValueError(MARKUP)

    monkeypatch.setattr(broken, fails)
    with notebook.Live(Path("runs/unseen")) as seen:
        trained = api.train(**quick, data=str(dial_folder), name="unseen", show=False, plan=False)
    assert trained.record.status == "done"
    assert seen.failed == f"ValueError: {MARKUP}"
    assert_no_thread_is_left()
    if cell.displays:
        assert "it can't be shown here" in Page(cell.displays[0][-1]["text/html"]).text


def test_a_name_that_is_not_there_says_where_functions_are():
    with pytest.raises(AttributeError, match=r"import stoker\.api as stoker"):
        stoker.trains  # noqa: B018
    assert not hasattr(stoker, "nothing")
