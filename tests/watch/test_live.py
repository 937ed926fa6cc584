"""The live page in a real browser, beside a real training."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from stoker import runs, settings
from stoker.config import Config
from tests.watch import made_up
from tests.watch.made_up import made
from tests.watch.servers import PATIENCE_SECONDS, free_port, served, started

HOSTILE = "<img src=x onerror=window.hit=1>"
PATIENCE_MS = PATIENCE_SECONDS * 1000
STEP = "Number(document.getElementById('progress').textContent.match(/step ([0-9,]+)/)?.[1].replaceAll(',', '') ?? 0)"
POINTS = (
    "[...document.querySelectorAll('[id=\"chart.losses\"] path')].reduce((n, p) => n + p.getAttribute('d').length, 0)"
)


@contextlib.contextmanager
def opened(browser: Browser, address: str, **context: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what its console complained about."""
    errors: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(message.text)

    with browser.new_context(viewport={"width": 1300, "height": 900}, **context) as looking:
        page = looking.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", heard)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        yield page, errors


def until(page: Page, expression: str) -> None:
    """Wait until something holds. (The page's policy keeps Playwright's own way of waiting from working.)"""
    end = time.monotonic() + PATIENCE_SECONDS
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"not in time: {expression}"
        page.wait_for_timeout(100)


@pytest.fixture
def trained(tmp_path: Path, dial_folder: Path, quick: dict[str, Any]) -> Iterator[Path]:
    """The folder of a run that goes on for as long as it is looked at."""
    asked = {**quick, "data": str(dial_folder), "epochs": 2000, "eval_epochs": 5, "gauge_seconds": 0.5, "plan": False}
    config = tmp_path / "asked.json"
    config.write_text(settings.as_json(settings.with_values(Config(), asked)))
    command = [sys.executable, "-m", "stoker", "train", "--config", str(config), "--name", str(tmp_path / "live")]
    said = tmp_path / "said.txt"
    with open(said, "wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )  # fmt: skip
    yield tmp_path
    assert process.poll() is None, said.read_text()[-2000:]
    process.kill()
    process.wait()


def test_the_page_follows_a_training_and_outlives_its_server(browser: Browser, trained: Path):
    port = free_port()
    server = started(trained, port)
    try:
        with opened(browser, f"http://127.0.0.1:{port}/") as (page, errors):
            page.evaluate("window.kept = true")
            until(page, f"{STEP} > 4")
            expect(page.locator("#name")).to_have_text("live")
            expect(page.locator("#state")).to_have_text("running")
            until(page, f"{POINTS} > 0")
            step, points = page.evaluate(STEP), page.evaluate(POINTS)
            loss = page.locator("#figures .figure dd").first.text_content()
            until(page, f"{STEP} > {step} + 10")
            until(page, f"{POINTS} > {points}")
            expect(page.locator("#figures .figure dd").first).not_to_have_text(loss or "")
            lines = [line for line in (page.locator("#lines").text_content() or "").splitlines() if "Time" in line]
            assert lines and set(lines) <= set((trained / "said.txt").read_text().splitlines())
            expect(page.locator(".row.chosen .name")).to_have_text("live")
            assert errors == []
            server.kill()
            server.wait()
            expect(page.locator("#link")).to_have_text("reconnecting …", timeout=PATIENCE_MS)
            step = page.evaluate(STEP)
            server = started(trained, port)
            expect(page.locator("#link")).to_have_text("live", timeout=PATIENCE_MS)
            until(page, f"{STEP} > {step}")
            assert page.evaluate("window.kept") is True
            assert [error for error in errors if "net::ERR" not in error] == []
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def test_the_token_lets_in_and_leaves_the_address(browser: Browser, tmp_path: Path):
    made(tmp_path / "secret-run", steps=40)
    with served(tmp_path, token="a-long-enough-token") as address:
        with opened(browser, address) as (page, _):
            expect(page.locator("body")).to_contain_text("asks for a token")
            assert "secret-run" not in page.content()
        with opened(browser, f"{address}/?token=a-long-enough-token") as (page, errors):
            expect(page.locator(".row .name")).to_have_text("secret-run", timeout=PATIENCE_MS)
            assert page.url == f"{address}/" and errors == []


def hostile_run(folder: Path) -> None:
    """A run all of whose texts are markup."""
    record = {"why": HOSTILE, "data": {"train_samples": 100, "held_out_samples": 20, "classes": 2, "train_bytes": 9}}
    run = made(folder / HOSTILE.replace("/", ""), status="failed", steps=40, **record)
    made_up.told(run, HOSTILE, f"{HOSTILE}</script><script>window.hit=1</script>")
    runs.append_line(run.gauges_of(0), made_up.gauged(made_up.NOW, host=HOSTILE))
    (run.folder / "logs").mkdir()
    (run.folder / "logs" / "<b>log").write_text(f"{HOSTILE}\n")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder of odd runs, and the address of its page."""
    folder = tmp_path_factory.mktemp("many")
    hostile_run(folder)
    for name, status in (("apple" * 30, "done"), ("pear", "oom"), ("plum", "done")):
        made(folder / name, status=status, steps=40)
    with served(folder) as address:
        yield folder, address


def test_text_of_a_run_is_text_and_a_phone_need_not_scroll_sideways(browser: Browser, many: tuple[Path, str]):
    with opened(browser, many[1]) as (page, errors):
        page.set_viewport_size({"width": 390, "height": 844})
        expect(page.locator(".row")).to_have_count(4, timeout=PATIENCE_MS)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator(".row", has_text=HOSTILE).click()
        expect(page.locator("#name")).to_have_text(HOSTILE)
        expect(page.locator("#events")).to_contain_text("</script><script>window.hit=1</script>")
        expect(page.locator("#logs")).to_contain_text(HOSTILE)
        expect(page.locator("#gauges")).to_contain_text(HOSTILE)
        until(page, f"{POINTS} > 0")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("[window.hit, document.querySelectorAll('img').length]") == [None, 0]
        page.locator(".back").click()
        expect(page.locator(".row").first).to_be_visible()
        assert errors == []


def test_runs_are_found_by_name_and_by_state_and_one_that_goes_is_taken_away(
    browser: Browser, many: tuple[Path, str], tmp_path: Path
):
    with opened(browser, many[1], color_scheme="dark") as (page, errors):
        expect(page.locator(".row")).to_have_count(4, timeout=PATIENCE_MS)
        page.locator(".chip", has_text="failed 2").click()
        expect(page.locator(".row")).to_have_count(2)
        page.locator("#search").fill("pear")
        expect(page.locator(".row .name")).to_have_text("pear")
        page.locator(".chip", has_text="all 4").click()
        page.locator("#search").fill("pl")
        expect(page.locator(".row")).to_have_count(2)
        page.locator("#search").fill("")
        (many[0] / "plum").rename(tmp_path / "plum")
        expect(page.locator(".row")).to_have_count(3, timeout=PATIENCE_MS)
        expect(page.locator("#runs")).not_to_contain_text("plum")
        assert errors == []
