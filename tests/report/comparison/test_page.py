"""The page of a comparison, opened in a browser: it sorts, filters, asks for nothing, and text in it stays text."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stoker.report.comparison import compare
from stoker.report.comparison import page as comparison_page
from tests.report.compared import CPU, made

FACTS = Path(__file__).parents[2] / "facts" / "caltech256_finetune.csv"
HOSTILE = '"><img src=x onerror="window.hurt=1"></script><script>window.hurt=1</script>'


@pytest.fixture
def opened(browser: Browser) -> Iterator[Any]:
    """Writes the page of all runs, and opens it. Nothing that goes wrong on it may stay unseen."""
    contexts, wrong, requests = [], [], []

    def visit(*, width: int = 1280, **values: Any) -> Page:
        path = Path("compare.html")
        path.write_text(comparison_page.html(compare([Path("runs")], **values)), encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.resolve().as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in requests if not url.startswith("data:")] == [Path("compare.html").resolve().as_uri()]


def several() -> None:
    """Four lines, of which the first has no figures."""
    made("b-slow", step_seconds=0.4, profile=CPU, top1=(20.0, 9.0))
    made("a-good", top1=(20.0, 80.0), amp="bf16")
    made("c-quick", step_seconds=0.01, lr=0.2)
    made("a-big", status="oom", why="out of memory: 20 GiB asked for", top1=(), batch=4096)


def names(page: Page) -> list[str]:
    """The runs of the lines that are seen, from top to bottom."""
    return [text.split("\n")[0] for text in page.locator(".sheet tbody tr:visible th").all_inner_texts()]


def choice(page: Page, key: str) -> Any:
    return page.locator(f"select[data-key={key}]")


def head(page: Page, title: str) -> Any:
    return page.locator("thead th", has=page.get_by_role("button", name=title, exact=True))


def test_a_click_sorts_the_most_first_then_the_least_then_as_before(opened: Any):
    several()
    page = opened()
    before = names(page)
    assert before == ["a-big", "a-good", "b-slow", "c-quick"]
    for order, said in (
        (["a-good", "c-quick", "b-slow", "a-big"], "descending"),
        (["b-slow", "c-quick", "a-good", "a-big"], "ascending"),
        (before, "none"),
    ):
        page.get_by_role("button", name="top-1", exact=True).click()
        assert names(page) == order, "what was not measured comes last"
        expect(head(page, "top-1")).to_have_attribute("aria-sort", said)


def test_the_keyboard_sorts_and_one_column_at_a_time_is_sorted(opened: Any):
    several()
    page = opened()
    page.get_by_role("button", name="samples/s", exact=True).press("Enter")
    assert names(page) == ["c-quick", "a-good", "b-slow", "a-big"]
    page.get_by_role("button", name="run", exact=True).press("Space")
    page.get_by_role("button", name="run", exact=True).press("Space")
    assert names(page) == ["c-quick", "b-slow", "a-good", "a-big"]
    assert page.locator("th[aria-sort=ascending], th[aria-sort=descending]").count() == 1
    expect(page.get_by_role("status")).to_have_text("4 of 4 lines, by run, descending")


def test_numbers_are_sorted_as_numbers(opened: Any):
    for top1 in (9.5, 9.25, 80.0):
        made(f"t{top1}", top1=(1.0, top1), lr=top1)
    page = opened()
    page.get_by_role("button", name="top-1", exact=True).click()
    assert names(page) == ["t80.0", "t9.5", "t9.25"]


def test_words_and_choices_filter_together(opened: Any):
    several()
    page = opened(beside=FACTS)
    expect(page.get_by_role("status")).to_have_text("46 of 46 lines")
    page.get_by_role("searchbox").fill("RESNET18")
    assert names(page) == ["a-big", "a-good", "b-slow", "c-quick"]
    choice(page, "machine").select_option("4 x Tesla V100")
    assert names(page) == ["a-big", "a-good", "c-quick"]
    choice(page, "dtype").select_option("fp32")
    assert names(page) == ["a-big", "c-quick"]
    page.get_by_role("searchbox").fill("resnet18 asked for")
    assert names(page) == ["a-big"]
    page.get_by_role("searchbox").fill("nothing")
    expect(page.get_by_text("No line has all of that.")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("0 of 46 lines")
    page.get_by_role("searchbox").press("Enter")
    assert page.url.endswith("compare.html"), "nothing is sent"


def test_what_was_sorted_stays_so_when_it_is_filtered(opened: Any):
    several()
    page = opened()
    page.get_by_role("button", name="top-1", exact=True).click()
    choice(page, "dtype").select_option("fp32")
    assert names(page) == ["c-quick", "b-slow", "a-big"]


def test_runs_that_failed_are_seen_with_their_reason_and_shared_settings_above(opened: Any):
    several()
    page = opened(target=40.0)
    line = page.locator(".sheet tbody tr", has_text="a-big")
    expect(line).to_contain_text("oom, out of memory: 20 GiB asked for")
    expect(line.locator(".chip")).to_have_class(re.compile("bad"))
    expect(page.locator("header")).to_contain_text("model resnet18")
    expect(page.locator("header")).to_contain_text("Target: 40 % top-1")
    assert head(page, "model").count() == 0


def test_the_charts_are_drawn(opened: Any):
    several()
    made("e-two", world=2, batch=64)
    page = opened()
    places = page.locator(".plot")
    for place in places.all():
        place.scroll_into_view_if_needed()
    expect(page.locator(".plot.done svg.marks")).to_have_count(3)
    assert places.count() == 3


def test_a_phone_shows_the_table_in_a_box_that_scrolls(opened: Any):
    several()
    page = opened(width=390, beside=FACTS)
    for place in page.locator(".plot").all():
        place.scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.locator(".sheet")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    box.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.sheet').scrollLeft > 0")


def test_text_of_runs_never_becomes_markup(opened: Any):
    made("one", model=HOSTILE)
    made("two", status="failed", why=HOSTILE, model=f"{HOSTILE} b", top1=())
    made("three", model=f"{HOSTILE} c", code={"version": HOSTILE, "commit": None, "packages": {HOSTILE: HOSTILE}})
    page = opened()
    for place in page.locator(".plot").all():
        place.scroll_into_view_if_needed()
    expect(page.locator(".plot.done svg.marks")).to_have_count(2)
    page.locator(".plot svg.marks path, .plot svg.marks text").first.hover(force=True)
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
    expect(page.locator(".sheet tbody")).to_contain_text("<img src=x")


def test_without_runs_that_have_figures_there_is_a_page_all_the_same(opened: Any):
    made("one", status="failed", why="no data", top1=()).ledger.unlink()
    page = opened()
    assert names(page) == ["one"] and page.locator(".plot").count() == 0
    assert page.title() == "1 run side by side"


def test_only_the_scripts_of_the_page_may_run():
    several()
    text = comparison_page.html(compare([Path("runs")]))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1] and policy.count("'sha256-") == 3
    assert "http://" not in text.split("<script")[0] and "https://" not in text.split("<script")[0]
