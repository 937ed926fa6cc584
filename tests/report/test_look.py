import base64
import hashlib
import itertools
import json
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from stoker.errors import Problem
from stoker.records import BUCKETS
from stoker.report import charts, look
from tests.report import specs

OPTIONS = '{ast: true, actions: false, renderer: "svg", config: CONFIG, tooltip: {theme: "dark"}}'


def lightness(colour: str) -> float:
    """The relative luminance of a colour, as WCAG 2.2 has it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """How far two colours are apart in lightness: 1 is not at all, 21 is black on white."""
    low, high = sorted((lightness(one), lightness(other)))
    return (high + 0.05) / (low + 0.05)


def paper(config: dict) -> str:
    return config["style"]["on_strong"]["color"]


def test_every_bucket_has_a_colour_of_its_own():
    assert set(look.COLOURS) == set(BUCKETS)
    assert len(set(look.COLOURS.values())) == len(BUCKETS)


def test_buckets_that_lie_on_each_other_differ_in_lightness():
    near = {pair: contrast(*map(look.COLOURS.get, pair)) for pair in itertools.pairwise(look.COLOURS)}
    assert {pair: value for pair, value in near.items() if value < 1.25} == {}


def test_every_bucket_is_seen_on_light_and_on_dark_pages():
    papers = [paper(config) for config in (look.LIGHT, look.DARK)]
    assert {
        name for name, colour in look.COLOURS.items() if min(contrast(colour, one) for one in papers) < 1.3
    } == set()


def test_text_is_read_and_lines_are_seen_on_light_and_on_dark_pages():
    for config in (look.LIGHT, look.DARK):
        words = (config["text"]["color"], config["axis"]["labelColor"], config["title"]["subtitleColor"])
        assert min(contrast(word, paper(config)) for word in words) >= 4.5
        assert min(contrast(line, paper(config)) for line in (look.BLUE, look.VERMILION, look.GREEN)) >= 3


def test_both_looks_are_json_and_set_the_same_things():
    def shape(value):
        return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else None

    assert json.loads(json.dumps(look.LIGHT)) == look.LIGHT and look.LIGHT != look.DARK
    assert shape(look.LIGHT) == shape(look.DARK)


def test_every_style_that_a_chart_names_is_in_both_looks():
    def named(value):
        if isinstance(value, dict):
            own = [value["style"]] if isinstance(value.get("style"), str) else []
            return own + [name for item in value.values() for name in named(item)]
        return [name for item in value for name in named(item)] if isinstance(value, list) else []

    found = {name for case in specs.drawn().values() for spec in case.values() for name in named(spec)}
    assert {"cut", "halo", "aside", "ring", "tile", "on_strong"} <= found
    # Numbers on pale cells have the colour of all text.
    assert found - set(look.LIGHT["style"]) == {"on_weak"}


def test_a_chart_gets_its_look_and_is_left_as_it_was():
    spec = {"mark": "bar"}
    assert look.themed(spec, dark=True) == {"mark": "bar", "config": look.DARK}
    assert look.themed(spec, dark=False)["config"] == look.LIGHT
    assert spec == {"mark": "bar"}


def test_a_picture_has_its_width_and_its_paper():
    from PIL import Image

    spec = charts.rates(specs.trained(5))
    assert spec is not None
    for dark, config in ((False, look.LIGHT), (True, look.DARK)):
        Path("chart.png").write_bytes(look.png(spec, dark=dark, scale=2.0, width=300))
        with Image.open("chart.png") as picture:
            assert picture.width == pytest.approx(600, abs=4)
            assert "#{:02X}{:02X}{:02X}".format(*picture.convert("RGB").getpixel((1, 1))) == paper(config)
    assert look.svg(spec, width=300).startswith("<svg")


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(Problem, match="charts can't be drawn") as caught:
        look.png({"mark": "bar"})
    assert caught.value.fix is not None and "pip install" in caught.value.fix


def test_the_script_fits_into_a_page_and_is_made_once():
    text = look.script()
    assert 100_000 < len(text.encode()) < 1_500_000
    assert "</script" not in text.lower() and "<!--" not in text
    assert look.script() is text


def test_a_page_that_forbids_eval_and_every_request_draws_with_the_script(browser: Browser):
    """The page loads nothing, allows these two scripts only, and gets one name from the first of them."""
    spec = specs.drawn()["hostile"]["small matrix"]
    own = f"vegaEmbed('#place', {json.dumps(spec)}, {OPTIONS.replace('CONFIG', json.dumps(look.DARK))})"
    own = own.replace("<", "\\u003c") + ".then(() => { document.title = 'drawn' });"
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (look.script(), own)]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'"
    Path("page.html").write_text(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<div id="place" style="width: 100%"></div><script>{look.script()}</script><script>{own}</script>'
    )
    page = browser.new_page(viewport={"width": 390, "height": 800})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(Path("page.html").absolute().as_uri())
    page.wait_for_function("document.title == 'drawn'")
    assert page.locator("#place svg").count() == 1
    assert page.evaluate("Object.keys(window).filter((name) => name.toLowerCase().includes('vega'))") == ["vegaEmbed"]
    # On the screen of a phone nothing is cut off, and names leave room for the cells.
    assert page.locator("#place svg .mark-rect path").first.bounding_box()["width"] > 30
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#place svg .role-mark.mark-text text").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert page.locator("#place script, #vg-tooltip-element script").count() == 0
    assert said == []
    page.close()
