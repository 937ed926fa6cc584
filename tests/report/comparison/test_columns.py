from pathlib import Path

import pytest

from stoker.report.comparison import compare
from stoker.report.comparison.columns import BY_KEY, COLUMNS, Unit, measured, raw, shared, text, value
from stoker.report.comparison.repeats import Figure
from tests.report.compared import made


@pytest.mark.parametrize(
    ("mean", "spread", "unit", "said"),
    [
        (53.0, None, "percent", "53.00 %"),
        (53.0, 3.6056, "percent", "53.0 ± 3.6 %"),
        (53.0, 0.042, "percent", "53.00 ± 0.04 %"),
        (0.97, 0.013, "share", "97.0 ± 1.3 %"),
        (12.61, 1.28, "seconds", "12.6 ± 1.3 s"),
        (0.0288, 0.00053, "seconds", "28.80 ± 0.53 ms"),
        (7200.0, 65.0, "seconds", "2 h 00 min ± 65.0 s"),
        (335.0, 6.05, "per_second", "335.0 ± 6.0"),
        (3 * 2.0**30, 2.0**29, "bytes", "3.0 ± 0.5 GiB"),
        (0.0035, 0.000357, "dollars", "$0.00350 ± $0.00036"),
        (12.0, 0.0, "dollars", "$12.0 ± $0.0"),
        (12.0, None, "dollars", "$12.00"),
        (0.0, None, "dollars", "$0.00"),
        (12345.6, None, "per_second", "12,346"),
        (5.0, None, "per_second", "5"),
    ],
)
def test_a_figure_has_as_many_digits_as_its_spread_gives_it(mean: float, spread: float | None, unit: Unit, said: str):
    assert measured(Figure(mean=mean, spread=spread, count=3), unit, runs=3) == said


def test_a_gauge_has_its_range_and_a_figure_of_some_runs_says_so():
    figure = Figure(mean=83.0, least=65.0, most=97.0, count=2)
    assert measured(figure, "busy", runs=3) == "83 % (65-97) (2 of 3)"
    assert measured(Figure(mean=83.0, least=83.0, most=83.0), "busy", runs=1) == "83 %"


def test_every_column_says_something_of_a_whole_run_and_has_names_of_its_own():
    made("one", busy=(60.0,), dollars_per_hour=1.0)
    (cell,) = compare([Path("one")], target=30.0).cells
    silent = {column.key for column in COLUMNS if text(cell, column) is None}
    assert silent == {"why", "image", "packages", "settings", "scaling_efficiency", "scaling_kind", "lost_seconds"}
    names = [name for column in COLUMNS for name in raw(None, column)]
    assert len(names) == len(set(names)) and list(raw(cell, BY_KEY["epochs"])) == list(raw(None, BY_KEY["epochs"]))
    assert value(cell, BY_KEY["batch"]) == 32 and value(cell, BY_KEY["torch"]) == "2.10.0"


def test_what_all_lines_share_needs_no_column():
    made("one")
    made("two", lr=0.2)
    cells = compare([Path("runs")]).cells
    same = shared(cells, COLUMNS)
    assert same["model"] == "resnet18" and same["machine"] == "4 x Tesla V100"
    assert not {"run", "state", "settings", "packages"} & same.keys()
    assert shared(cells[:1], COLUMNS) == {}, "of one line nothing is shared"


def test_epochs_that_were_not_trained_are_told():
    made("one", epochs=9, status="stopped", why="asked to")
    (cell,) = compare([Path("one")]).cells
    assert text(cell, BY_KEY["epochs"]) == "2 of 9"
