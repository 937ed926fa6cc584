import json
from pathlib import Path
from typing import Any

import pytest

from stoker.report import look
from stoker.report.comparison import charts as comparison_charts
from stoker.report.comparison import compare
from stoker.report.comparison.repeats import Cell
from tests.report.compared import made

FACTS = Path(__file__).parents[2] / "facts" / "caltech256_finetune.csv"


def cells(**values: Any) -> tuple[Cell, ...]:
    return compare([Path("runs")], **values).cells


def rows_of(chart: look.Chart | None, field: str) -> list[dict[str, Any]]:
    """The data of the layers that have a field, each row once."""
    assert chart is not None
    held = [part["data"] for part in (chart, *chart["layer"]) if "data" in part]
    sets = [data["values"] if "values" in data else chart["datasets"][data["name"]] for data in held]
    found = [row for rows in sets for row in rows if field in row]
    return [json.loads(text) for text in dict.fromkeys(json.dumps(row) for row in found)]


def axes(chart: look.Chart | None) -> set[str]:
    assert chart is not None
    titles = [part.get("title") for layer in chart["layer"] for part in layer["encoding"].values() if "title" in part]
    return {title for title in titles if isinstance(title, str)}


def test_accuracy_is_drawn_against_time_with_the_spread_of_repeats():
    made("one", seed=1)
    made("two", seed=2, top1=(20.0, 60.0))
    made("other", lr=0.2, step_seconds=1.0)
    made("bad", status="failed", why="no", top1=(), batch=64)
    chart = comparison_charts.accuracy(cells())
    points = {row["_run"]: row for row in rows_of(chart, "y_low")}
    assert points.keys() == {"one, two", "other"}
    assert points["one, two"]["y"] == 55.0
    assert points["one, two"]["y_high"] - 55.0 == pytest.approx(50**0.5, rel=1e-4)
    assert points["other"]["y_low"] == points["other"]["y_high"] == 50.0
    assert axes(chart) >= {"time (seconds)", "top-1 (%)"}


def test_accuracy_is_drawn_against_cost_where_all_have_a_price():
    made("one", dollars_per_hour=1.0)
    made("two", lr=0.2, dollars_per_hour=1.0)
    assert "cost (dollars)" in axes(comparison_charts.accuracy(cells()))
    made("three", lr=0.3)
    assert "time (seconds)" in axes(comparison_charts.accuracy(cells()))


def test_scaling_is_drawn_beside_what_it_would_be_without_loss():
    made("one", batch=32)
    made("four", batch=128, world=4, step_seconds=0.125)
    chart = comparison_charts.scaling(cells())
    measured = {row["processes"]: row["y"] for row in rows_of(chart, "y_low")}
    ideal = {row["processes"]: row["y"] for row in rows_of(chart, "y") if "y_low" not in row}
    assert measured == {1: pytest.approx(320), 4: pytest.approx(1024)}
    assert ideal == {1: pytest.approx(320), 4: pytest.approx(1280)}
    assert axes(chart) >= {"processes", "training (samples/s)"}


def test_scaling_of_the_same_batch_has_a_line_of_its_own_that_begins_where_it_is_measured_from():
    made("one", batch=32)
    made("two", batch=64, world=2)
    made("shared", batch=32, world=2, step_seconds=0.0625)
    chart = comparison_charts.scaling(cells())
    points = rows_of(chart, "y_low")
    series = {name: [row for row in points if row["series"] == name] for name in ("32 each", "32 in all")}
    assert {name: {row["_run"] for row in rows} for name, rows in series.items()} == {
        "32 each": {"one", "two"}, "32 in all": {"one", "shared"},
    }  # fmt: skip
    ideal = [row for row in rows_of(chart, "y") if "y_low" not in row and row["series"] == "32 in all"]
    assert {row["processes"]: row["y"] for row in ideal} == {1: pytest.approx(320), 2: pytest.approx(640)}
    assert series["32 in all"][1]["_scaling_kind"] == "same batch in all"


def test_kinds_of_one_name_are_lines_apart():
    for number, flags in enumerate(({}, {"mixup": 0.2})):
        made(f"one-{number}", **flags)
        made(f"two-{number}", world=2, batch=64, **flags)
    points = rows_of(comparison_charts.scaling(cells()), "y_low")
    assert {row["series"] for row in points} == {"measured", "measured (2)"}


def test_scaling_of_kinds_that_share_a_colour_is_drawn_as_lines_apart():
    for number in range(10):
        made(f"one-{number}", model=f"net{number}")
        made(f"two-{number}", model=f"net{number}", world=2, batch=64)
    chart = comparison_charts.scaling(cells())
    assert len({row["group"] for row in rows_of(chart, "y_low") if row["series"] == comparison_charts.OTHERS}) == 3
    assert chart is not None
    lines = [layer for layer in chart["layer"] if layer["mark"]["type"] == "line"]
    assert [layer["encoding"]["detail"]["field"] for layer in lines] == ["group", "group"]


def test_speeds_are_bars_of_which_each_has_a_name_of_its_own():
    made("one")
    found = rows_of(comparison_charts.speeds(cells(beside=FACTS)), "source")
    names = [row["name"] for row in found]
    assert len(names) == len(set(names)) == comparison_charts.MOST_BARS
    assert [row["x"] for row in found] == sorted((row["x"] for row in found), reverse=True)
    assert {row["source"] for row in found} == {"measured", "reported"}


def test_where_there_is_nothing_to_set_side_by_side_nothing_is_drawn():
    made("one")
    made("bad", status="oom", why="much", top1=(), batch=64)
    found = cells()
    drawn = [comparison_charts.accuracy(found), comparison_charts.speeds(found), comparison_charts.scaling(found)]
    assert drawn == [None, None, None]


def test_more_series_than_there_are_colours_share_one():
    for number in range(10):
        made(f"r{number}", model=f"net{number}")
    points = rows_of(comparison_charts.accuracy(cells()), "y_low")
    assert len({row["model"] for row in points}) == len(look.LINES)
    assert sum(row["model"] == comparison_charts.OTHERS for row in points) == 3


def test_the_charts_can_be_drawn():
    made("one", batch=32)
    made("two", batch=64, world=2, step_seconds=0.125)
    found = cells()
    for chart in (comparison_charts.accuracy, comparison_charts.speeds, comparison_charts.scaling):
        spec = chart(found)
        assert spec is not None and look.svg(spec).startswith("<svg")
