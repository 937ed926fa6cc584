"""One look for every chart: colours, light and dark, fonts; and how a chart becomes a picture or a part of a page."""

import contextlib
import importlib.metadata
from functools import lru_cache
from typing import Any

from stoker import runs
from stoker.doctor import cache
from stoker.errors import Problem

Chart = dict[str, Any]
"""a chart in Vega-Lite's words, with its data inside"""

# Okabe and Ito's colours, which people with any colour vision tell apart. Blue is a little lighter than theirs and the
# purple darker, so that thin lines can be seen on white and on black.
BLUE, SKY, VERMILION, ORANGE = "#1F7FBF", "#56B4E9", "#D55E00", "#E69F00"
GREEN, YELLOW, PURPLE, GREY = "#009E73", "#F0E442", "#B8578F", "#878E99"
LINES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, YELLOW, GREY)
"""for series that have no colour of their own"""
TRAIN, HELD_OUT = SKY, VERMILION

# In the order in which they are stacked: what trains first, then what it waits for, then what comes now and then, then
# the starts and what went wrong. Neighbours differ in lightness, too.
COLOURS = {
    "compute": BLUE,
    "optimizer": SKY,
    "host": "#7B5EA7",
    "data_wait": ORANGE,
    "transfer": YELLOW,
    "comm": VERMILION,
    "peer_wait": "#E9A8CB",
    "eval": GREEN,
    "checkpoint": "#7FD1B3",
    "logging": "#5E6672",
    "other": "#C3C8D0",
    "setup": "#7A6A4F",
    "compile": "#CDB98A",
    "restore": "#3F7A8C",
    "lost": "#B0352B",
    "rollback": "#F0A9A2",
    "down": "#7D6B8A",
}
"""by bucket of the ledger"""

# What a script that is kept ends with.
END = "/* the end */"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


def _config(*, ink: str, soft: str, line: str, paper: str, right: list[str], wrong: list[str]) -> dict[str, Any]:
    """Vega's settings: `ink` is for text, `soft` for lesser text, `line` for the grid, `paper` for what lies under."""
    return {
        "background": "transparent",
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None},
        "axis": {
            "labelColor": soft, "titleColor": soft, "labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": 500,
            "titlePadding": 8, "gridColor": line, "domainColor": line, "tickColor": line, "labelOverlap": True,
            "labelPadding": 5, "labelSeparation": 6, "tickSize": 4,
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False, "titleAlign": "left", "titleAngle": 0, "titleAnchor": "start",
                  "titleX": 0, "titleY": -9, "titleBaseline": "bottom"},
        "legend": {
            "orient": "top", "title": None, "labelColor": ink, "titleColor": soft, "labelFontSize": 12.5,
            "titleFontSize": 12, "titleFontWeight": 500, "symbolSize": 110, "symbolOpacity": 1,
            "symbolStrokeWidth": 2.5, "offset": 27, "labelLimit": 140, "columnPadding": 16, "rowPadding": 4,
        },
        "title": {
            "color": ink, "subtitleColor": soft, "fontSize": 15, "fontWeight": 600, "subtitleFontSize": 12.5,
            "subtitlePadding": 4, "subtitleLineHeight": 16, "anchor": "start", "frame": "bounds", "offset": 10,
        },
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": soft},
        "line": {"strokeWidth": 2, "strokeJoin": "round", "strokeCap": "round"},
        "style": _styles(ink=ink, soft=soft, paper=paper),
        "range": {"heatmap": right, "ramp": wrong},
    }  # fmt: skip


def _styles(*, ink: str, soft: str, paper: str) -> dict[str, Any]:
    """Marks whose colour depends on the page, by the name that charts give them."""
    return {
        "cut": {"color": soft, "strokeWidth": 1, "strokeDash": [2, 3]},
        "aside": {"color": soft, "fontSize": 11.5},
        "halo": {"color": paper, "stroke": paper, "strokeWidth": 4, "fontSize": 11.5},
        "ring": {"color": ink, "strokeWidth": 2, "filled": False},
        "tile": {"stroke": paper, "strokeWidth": 1},
        "on_strong": {"color": paper},
    }


LIGHT = _config(
    ink="#1E2228", soft="#59616D", line="#E3E6EA", paper="#FFFFFF",
    right=["#F4F7FA", "#9CCBEA", "#1F7FBF", "#0B4A78"], wrong=["#F8F6F4", "#F4B98A", "#D55E00", "#7F3400"],
)  # fmt: skip
"""Vega's settings for light pages, as JSON"""
DARK = _config(
    ink="#E8EAED", soft="#A3ABB6", line="#333A43", paper="#15181D",
    right=["#1D2229", "#1C4B70", "#3E98D6", "#C5E4F8"], wrong=["#231F1D", "#6E3009", "#E2762A", "#FBD9BC"],
)  # fmt: skip
"""Vega's settings for dark pages, as JSON"""


def themed(spec: Chart, *, dark: bool) -> Chart:
    """A chart with the settings for light or for dark pages. Its background is the page's."""
    return {**spec, "config": DARK if dark else LIGHT}


def png(spec: Chart, *, dark: bool = False, scale: float = 2.0, width: int = 640) -> bytes:
    """A chart as a PNG, so many points wide, each of so many pixels, on paper of its own."""
    return bytes(_convert().vegalite_to_png(_sheet(spec, dark=dark, width=width), scale=scale))


def svg(spec: Chart, *, dark: bool = False, width: int = 640) -> str:
    """A chart as an SVG, so many points wide, without a background."""
    return str(_convert().vegalite_to_svg({**themed(spec, dark=dark), "width": width}))


def _sheet(spec: Chart, *, dark: bool, width: int) -> Chart:
    config = DARK if dark else LIGHT
    return {**spec, "width": width, "background": config["style"]["on_strong"]["color"], "config": config}


@lru_cache(maxsize=1)
def script() -> str:
    """Vega, Vega-Lite and vega-embed as one text for a page that loads nothing: 0.9 MB, made in some seconds, once.

    It holds nothing that ends a script element, and adds one name to the page: `vegaEmbed`. A page whose
    Content-Security-Policy has no 'unsafe-eval' draws with it, since `ast: true` takes Vega's interpreter:

        vegaEmbed(element, spec, {ast: true, actions: false, renderer: "svg", config: dark ? DARK : LIGHT,
                                  tooltip: {theme: dark ? "dark" : "light"}})

    LIGHT and DARK are this module's. The promise holds `view` and `finalize()`: finalize before drawing anew. The
    policy needs style-src 'unsafe-inline', for vega-embed's own style and the tooltip's; nothing else. Charts are as
    wide as their element, which needs `width: 100%` of its own, and follow it when the window changes. Tooltips escape
    what they show.
    """
    # Putting it together takes seconds, every time the same: once is enough for a machine.
    kept = cache.folder() / f"vega-{importlib.metadata.version('vl-convert-python')}.js"
    try:
        return whole_script(kept.read_text("utf-8"))
    except (OSError, ValueError):
        text = str(_convert().javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    with contextlib.suppress(OSError, Problem):  # a disk that takes nothing costs seconds, no more
        runs.write_whole(kept, f"{text}\n{END}")
    return whole_script(f"{text}\n{END}")


def whole_script(text: str) -> str:
    """A bundle as a page can hold it. What was cut off is a ValueError."""
    if not text.endswith(END):
        raise ValueError("the end is not there")
    assert "</script" not in text.lower() and "<!--" not in text, "the text would end its own element"
    # Its thousands of short names would collide with those of other scripts of the page.
    return f"(() => {{{text}}})();"


def _convert() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise Problem(f"charts can't be drawn: {error}", fix="pip install altair vl-convert-python") from None
    return vl_convert
