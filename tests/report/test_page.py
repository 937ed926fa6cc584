"""The page of a report, opened in a browser: it draws itself, asks for nothing, and nothing in it is more than text."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from stoker import api, locks, runs
from stoker.records import Event, Exhibit, Picture
from stoker.report import account, composition, cost, page, questions, writing
from stoker.runs import Run

HOSTILE = '<img src=x onerror="window.hurt=1">'
ENDS = "</script><script>window.hurt=1</script>"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, quick: dict[str, Any], dial_folder: Path) -> Path:
    """A run that is done. Copy it before changing anything in it."""
    folder = tmp_path_factory.mktemp("runs") / "a run"
    values = {**quick, "epochs": 3, "gauge_seconds": 0.1}
    api.train(name=str(folder), data=str(dial_folder), show=False, **values)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    """A copy of the run."""
    shutil.copytree(trained, tmp_path / "run")
    return Run(tmp_path / "run")


class Visit:
    """A page that is open, and all that it did beside showing itself."""

    def __init__(self, browser: Browser, path: Path, *, width: int = 1280, dark: bool = False, **more: Any) -> None:
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": 800}
        self.context = browser.new_context(viewport=size, color_scheme=scheme, **more)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(120_000)  # a busy machine is no fault of the page
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.resolve().as_uri())

    def drawn(self) -> int:
        """Scroll through the page until every chart is drawn. Returns how many there are."""
        for place in self.page.locator(".plot").all():
            place.scroll_into_view_if_needed()
        self.page.wait_for_function("() => document.querySelectorAll('.plot:not(.done)').length === 0")
        return self.page.locator(".plot > svg, .plot > canvas, .plot svg.marks, .plot canvas.marks").count()

    def is_hurt(self) -> bool:
        """Whether some text became a script."""
        return bool(self.page.evaluate("window.hurt !== undefined"))


@pytest.fixture
def visited(browser: Browser) -> Iterator[Any]:
    """Opens pages, and closes them when the test is over."""
    opened: list[Visit] = []

    def visit(path: Path, **how: Any) -> Visit:
        opened.append(Visit(browser, path, **how))
        return opened[-1]

    yield visit
    for each in opened:
        each.context.close()


def exhibit(run: Run, **values: Any) -> None:
    """Put an exhibit into a run."""
    one = Exhibit(**{"name": "one", "title": "One", "caption": "what is seen", "kind": "text", **values})
    text = {field: getattr(one, field) for field in one.__dataclass_fields__} | {
        "pictures": [{"file": p.file, "caption": p.caption} for p in one.pictures]
    }
    runs.write_whole(run.exhibits / f"{one.name}.json", json.dumps(text))


def composed(run: Run, **how: Any) -> Path:
    """The page of a run alone: the pictures of its twin take longest."""
    found = account.gather(run)
    found = replace(found, cost=cost.priced(found.cost, how.get("dollars_per_hour")))
    text = page.page(composition.report(found, questions.asked(found)))
    run.report.write_bytes(writing.encoded(text))
    return run.report


def test_a_page_draws_all_charts_and_asks_for_nothing(run: Run, visited: Any) -> None:
    exhibit(run, name="matrix", kind="matrix", columns=("a", "b"), rows=((3, 1), (0, 4)))
    written = writing.write(run)
    visit = visited(written.html)
    count = visit.page.locator(".plot").count()
    assert count >= 7, "loss, scores, rate, ledger, throughput, step times, the matrix"
    assert visit.drawn() == count
    assert visit.errors == []
    assert [url for url in visit.requests if not url.startswith("data:")] == [written.html.resolve().as_uri()]
    assert written.html_bytes == written.html.stat().st_size < 5_000_000


def test_the_first_screen_says_what_where_result_time_cost_and_verdict(run: Run, visited: Any) -> None:
    path = composed(run, dollars_per_hour=3600.0)
    visit = visited(path)
    seen = visit.page.locator("main > :not(.part)").all_inner_texts()
    text = " ".join(" ".join(seen).split())
    best = json.loads(run.record.read_text())["result"]["best"]
    for said in ("timm/test_resnet", "120 training samples", "10 classes", f"{best['top1']:.2f} %", "done", "$", "CPU"):
        assert said in text, said
    assert visit.page.title() == "run: report"
    assert visit.page.locator("html").get_attribute("lang") == "en"
    levels = [int(level) for level in re.findall(r"<h([1-6])", path.read_text())]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), "no level is left out"


def test_a_page_follows_the_light_and_redraws(run: Run, visited: Any) -> None:
    visit = visited(composed(run))
    visit.drawn()

    def colours() -> list[str]:
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [paper, visit.page.evaluate("document.querySelector('.plot text').getAttribute('fill')")]

    before = colours()
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_function(
        "fill => document.querySelector('.plot text')?.getAttribute('fill') !== fill", arg=before[1]
    )
    after = colours()
    assert before[0] != after[0] and before[1] != after[1]
    assert visit.errors == []


def test_a_page_is_no_wider_than_a_phone(run: Run, visited: Any) -> None:
    exhibit(run, kind="table", columns=("a" * 40, "b" * 40, "c" * 40), rows=(("x" * 80, "y" * 80, "z" * 80),))
    visit = visited(composed(run), width=390)
    visit.drawn()
    visit.page.evaluate("document.querySelectorAll('details').forEach(each => (each.open = true))")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.page.evaluate("document.body.scrollWidth") <= 390


def test_without_scripts_all_words_are_there(run: Run, visited: Any) -> None:
    visit = visited(composed(run), java_script_enabled=False)
    text = visit.page.locator("body").inner_text()
    for said in ("Questions and answers", "the network went forward and backward", "Settings other than the defaults"):
        assert said in text


def test_names_and_texts_of_a_run_never_become_markup(run: Run, tmp_path: Path, visited: Any) -> None:
    named = tmp_path / "a'\"><script>window.hurt=1<" / "script>"
    named.parent.mkdir()
    shutil.copytree(run.folder, named)
    hostile = Run(named)
    runs.append_line(hostile.events, Event(at=0.0, kind=HOSTILE, what=ENDS))
    exhibit(
        hostile, kind="matrix", name="m", title=HOSTILE, caption=ENDS, columns=(HOSTILE, ENDS), rows=((3, 1), (0, 4))
    )
    exhibit(hostile, kind="table", name="t", columns=(HOSTILE, ENDS), rows=((HOSTILE, ENDS),))
    exhibit(hostile, kind="text", name="x", text=ENDS)
    Image.new("RGB", (8, 8)).save(hostile.exhibits / "p.png")
    exhibit(hostile, kind="pictures", name="p", pictures=(Picture(file="p.png", caption='" onload="window.hurt=1'),))
    record = json.loads(hostile.record.read_text())
    record["attempts"][0]["host"] = record["why"] = HOSTILE
    hostile.record.write_text(json.dumps({**record, "status": "failed"}))
    for path in (hostile.code, hostile.machine):
        values = json.loads(path.read_text())
        values |= {"version": ENDS} if path == hostile.code else {"torch": HOSTILE, "gpus": [{"name": HOSTILE}]}
        path.write_text(json.dumps(values))
    written = writing.write(hostile)
    visit = visited(written.html)
    assert visit.drawn() == visit.page.locator(".plot").count()
    assert not visit.is_hurt() and visit.errors == []
    assert visit.page.locator("img:not(.pictures img)").count() == 0
    assert HOSTILE in visit.page.locator("#exhibits").inner_text()
    assert "<script>window.hurt" not in written.html.read_text()
    markdown = re.sub(r"```.*?```", "", written.markdown.read_text(), flags=re.DOTALL)
    assert "<img" not in markdown and "<script" not in markdown


def test_the_policy_of_a_page_lets_only_its_own_scripts_run(run: Run, visited: Any) -> None:
    path = composed(run)
    text = path.read_text()
    text = text.replace("</footer>", "</footer><script>window.hurt=1</script><img src=x onerror='window.hurt=1'>")
    path.write_text(text)
    visit = visited(path)
    visit.drawn()
    assert not visit.is_hurt()
    assert "unsafe-eval" not in text


def test_pictures_are_inside_of_the_page_as_far_as_they_fit(
    run: Run, visited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(run.exhibits, ignore_errors=True)
    run.exhibits.mkdir()
    for name in ("a", "b", "c"):
        Image.new("RGB", (16, 16), color=(200, 30, 30)).save(run.exhibits / f"{name}.png")
    (run.exhibits / "no.png").write_text("no picture")
    (run.folder / "secret.png").write_bytes((run.exhibits / "a.png").read_bytes())
    files = ("no.png", "a.png", "b.png", "gone.png", "c.png")
    pictures = tuple(Picture(file=name, caption=f"caption of {name}") for name in files)
    exhibit(run, name="seen", kind="pictures", pictures=pictures)
    exhibit(run, name="reaches", kind="pictures", pictures=(Picture(file="../secret.png", caption="secret"),))
    size = (run.exhibits / "a.png").stat().st_size
    monkeypatch.setattr("stoker.report.showcase.MOST_BYTES", 2 * size)
    visit = visited(composed(run))
    shown = visit.page.locator(".pictures img")
    assert [each.get_attribute("alt") for each in shown.all()] == ["caption of a.png", "caption of b.png"]
    shown.first.scroll_into_view_if_needed()
    visit.page.wait_for_function("() => document.querySelector('.pictures img').naturalWidth === 16")
    text = visit.page.locator("#exhibits").inner_text()
    assert "1 more picture" in text and "2 pictures can't be read" in text


def test_a_killed_run_says_what_goes_on_with_it(run: Run) -> None:
    record = json.loads(run.record.read_text())
    record |= {"status": "running", "result": {}}
    record["attempts"][0] |= {"status": "running", "ended_at": None}
    run.record.write_text(json.dumps(record))
    text = composed(run).read_text()
    assert '<span class="chip bad">killed</span>' in text
    assert f"stoker train --config {run.config} --name {run.folder}</code>" in text
    assert "Best top-1" in text, "as its evaluations tell"


def test_a_run_that_is_being_trained_has_a_page(run: Run) -> None:
    record = json.loads(run.record.read_text())
    record["attempts"][0] |= {"status": "running", "ended_at": None}
    run.record.write_text(json.dumps({**record, "status": "running", "result": {}}))
    run.code.write_text("{}")  # what has changed of the code could hold any words
    with locks.held(run.lock):
        text = composed(run).read_text()
    assert '<span class="chip busy">running</span>' in text
    assert "goes on from the last checkpoint" not in text


def test_a_long_table_is_folded_after_its_first_rows(run: Run) -> None:
    shutil.rmtree(run.exhibits, ignore_errors=True)
    exhibit(run, kind="table", name="long", columns=("n",), rows=tuple((n + 7000,) for n in range(230)))
    text = composed(run).read_text()
    seen, behind = text[text.index("7,000") :].split("<details>", 1)
    assert "7,011<" in seen and "7,012<" not in seen
    assert "7,012<" in behind and "7,199<" in behind and "7,200<" not in behind
    assert "30 more rows in exhibits/long.json" in behind


def test_a_run_that_has_only_begun_has_a_page(run: Run, tmp_path: Path, visited: Any) -> None:
    bare = Run(tmp_path / "bare")
    bare.folder.mkdir()
    shutil.copy(run.config, bare.config)
    bare.record.write_text(json.dumps({"status": "stopped", "version": 1}))
    visit = visited(composed(bare))
    assert visit.errors == []
    assert "No verdict yet" in visit.page.locator("main").inner_text()


@pytest.mark.parametrize("name", ["record.json", "config.json", "machine.json", "code.json", "plan.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 99}', '{"gpus": 3, "cores": [], "packages": "x"}'])
def test_a_file_that_can_not_be_read_costs_its_part_of_the_page_only(run: Run, name: str, content: str) -> None:
    (run.folder / name).write_text(content)
    text = composed(run).read_text()
    assert "Questions and answers" in text and "<h1>run</h1>" in text


def test_torn_lines_are_passed_over(run: Run) -> None:
    for path in (run.ledger, run.metrics, run.gauges_of(0)):
        with open(path, "a") as file:
            file.write('{"at": 17')
    assert "Questions and answers" in composed(run).read_text()
