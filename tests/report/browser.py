"""A headless Chromium for the tests of pages: the fixture `browser` of every test."""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def chromium() -> str | None:
    """Where a Chromium is on this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """One Chromium for the tests of a module: its loop runs for as long as it is open.

    Where there is none they are skipped; with CI_REQUIRES_BROWSER=1 they fail.
    """
    path = chromium()
    if path is None:
        why = f"no Chromium on this machine (looked for {', '.join(NAMES)})"
        if os.environ.get("CI_REQUIRES_BROWSER") == "1":
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield opened
        opened.close()
