import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stoker.records import Exhibit, LedgerRow, MetricRow
from stoker.report import charts, drawing, look
from stoker.report.heat_map import labels
from stoker.report.look import Chart
from stoker.report.questions.traffic import Pair
from tests.report import specs
from tests.report.specs import evaluated, ledger, rows_of, told, trained

UNITS = (
    "(%)", "(% of samples)", "(updates)", "(nats a sample)", "(of a step)", "(count)", "(class)", "(samples/s)",
    "seconds)", "(minutes)", "(hours)", "(days)", "B)", "B/s)",
)  # fmt: skip


def every() -> Iterator[tuple[str, Chart]]:
    """Each chart of each kind of run, with a name."""
    return ((f"{case}: {name}", spec) for case, found in specs.drawn().items() for name, spec in found.items())


def there(chart: Chart | None) -> Chart:
    assert chart is not None
    return chart


def test_there_is_a_chart_of_everything_that_an_ordinary_run_tells():
    assert list(specs.drawn()["ordinary"]) == [
        "losses", "scores", "rates", "ledger", "throughput", "step_times", "traffic", "planned",
        "GPU busy", "GPU memory", "CPU", "memory", "disk", "network", "matrix",
    ]  # fmt: skip
    assert set(specs.drawn()["single"]) == set(specs.drawn()["ordinary"]) - {"matrix"}


def test_every_chart_is_drawn_without_a_warning(capfd):
    import vl_convert

    for name, spec in every():
        vl_convert.vegalite_to_vega(look.themed({**spec, "width": 358}, dark=True), show_warnings=True)
        said = capfd.readouterr()
        assert said.out + said.err == "", name


@pytest.mark.parametrize("case", ["ordinary", "single", "hostile"])
def test_every_chart_becomes_a_picture(case: str):
    for name, spec in specs.drawn()[case].items():
        drawn = look.svg(spec, dark=case == "hostile", width=358)
        assert "NaN" not in drawn and "undefined" not in drawn, name
        assert "<script" not in drawn, name


def test_every_chart_is_as_wide_as_its_place_and_has_a_title_and_no_look_of_its_own():
    for name, spec in every():
        assert spec["width"] == "container", name
        assert spec["title"]["text"], name
        assert spec["$schema"].endswith("/v6.json"), name
        assert "config" not in spec and "background" not in spec, name
        assert json.loads(json.dumps(spec, allow_nan=False)) == spec, name


def test_every_axis_says_its_unit():
    for name, spec in every():
        axes = [(channel, value) for channel, value in specs.encodings(spec) if channel in ("x", "y")]
        assert axes, name
        for channel, value in axes:
            if "field" in value and value.get("type") in ("quantitative", "temporal"):
                assert str(value["title"]).endswith(UNITS), f"{name}: {channel} is {value['title']!r}"


def test_every_chart_has_tooltips():
    for name, spec in every():
        assert any(channel == "tooltip" for channel, _ in specs.encodings(spec)), name


def test_no_title_and_no_line_below_it_is_wider_than_a_phone():
    for name, spec in every():
        assert len(spec["title"]["text"]) <= drawing.TITLE_CHARS, name
        assert all(len(line) <= drawing.SUBTITLE_CHARS for line in spec["title"].get("subtitle", ())), name


def test_twelve_charts_of_a_long_run_stay_small():
    assert sum(len(json.dumps(spec)) for spec in specs.drawn()["long"].values()) < 1_500_000


def test_where_there_is_nothing_to_draw_there_is_no_chart():
    assert charts.losses([], []) is charts.scores([], []) is charts.rates([]) is None
    assert charts.ledger([]) is charts.throughput([]) is charts.step_times([]) is None
    assert charts.traffic([]) is None
    assert charts.matrix(Exhibit(name="m", title="", caption="", kind="matrix")) is None
    assert charts.matrix(replace(specs.confusion("a"), rows=(("x",),))) is None


def test_scores_that_were_not_measured_are_left_out():
    training = trained(4, loss=None)
    training[1] = replace(training[1], scores={"loss": math.nan})
    training[2] = replace(training[2], scores={"loss": 1.5})
    assert [row["mean"] for row in rows_of(there(charts.losses(training, [])), "mean")] == [1.5]
    assert charts.losses(trained(4, loss=None), evaluated(2, loss=None)) is None
    assert charts.rates([replace(row, lr=None) for row in training]) is None


def test_the_lowest_loss_and_the_best_score_are_marked():
    loss, scores = there(charts.losses([], evaluated(5))), there(charts.scores([], evaluated(5)))
    assert told(loss) == "lowest held-out loss 2 (epoch 3, step 60)"
    assert told(scores) == "best held-out top-1 50 % (epoch 3, step 60)"
    for spec in (loss, scores):
        assert [rows[0]["step"] for rows in spec["datasets"].values() if len(rows) == 1] == [60]


def test_thinning_keeps_the_least_and_the_most_and_says_so():
    training = trained(5000, loss=1.0)
    training[1234] = replace(training[1234], scores={"loss": 9.0})
    training[4321] = replace(training[4321], scores={"loss": 0.25})
    spec = there(charts.losses(training, []))
    points = rows_of(spec, "mean")
    assert len(points) <= drawing.POINTS
    assert max(point["most"] for point in points) == 9.0 and min(point["least"] for point in points) == 0.25
    assert sum(point["lines"] for point in points) == 5000
    assert "each point is the mean of 13 lines; band: least to most" in told(spec)
    assert "mean of" not in told(there(charts.losses(training[:100], [])))


def test_a_rate_is_one_that_a_step_had():
    training = trained(1000)
    rates = {drawing.short(row.lr or 0.0) for row in training}
    points = rows_of(there(charts.rates(training)), "rate")
    assert len(points) <= drawing.POINTS and {point["rate"] for point in points} <= rates


def test_the_same_colour_means_the_same_in_every_chart():
    def colours(spec: Chart) -> dict[str, str]:
        found: dict[str, str] = {}
        for channel, value in specs.encodings(spec):
            if channel == "color" and "scale" in value:
                found |= dict(zip(value["scale"]["domain"], value["scale"]["range"]))
        return found

    loss, scores = (
        colours(there(charts.losses(trained(3), evaluated(3)))),
        colours(there(charts.scores(trained(3), evaluated(3)))),
    )
    assert loss["train"] == scores["train top-1"] and loss["held-out"] == scores["held-out top-1"]
    assert len(set(scores.values())) == 4
    areas = colours(there(charts.ledger(ledger(9))))
    assert areas == {bucket: look.COLOURS[bucket] for bucket in areas}


def test_the_ledger_shows_the_share_of_each_bucket_from_the_start_on():
    spec = there(charts.ledger(ledger(3)))
    first, second, third = rows_of(spec, "from")
    assert (first["from"], first["to"], third["to"]) == (0.0, 11.0, 13.0)
    assert first["setup"] == pytest.approx(100 * 10 / 11, abs=0.01)
    assert (second["compute"], second["eval"], second["setup"]) == (60.0, 20.0, 0.0)
    assert all(
        sum(row[bucket] for bucket in look.COLOURS if bucket in row) == pytest.approx(100) for row in (first, second)
    )
    assert told(spec) == "not measured: host"


def test_time_in_which_the_run_was_down_is_left_out_and_lines_are_broken_there():
    rows = ledger(40, restart_at=20)
    spec = there(charts.throughput(rows))
    points = rows_of(spec, "mean")
    assert max(point["time"] for point in points) < 60
    assert {point["part"] for point in points if point["time"] < 30} == {1}
    assert {point["part"] for point in points if point["time"] > 30} == {2}
    assert rows_of(spec, "place") == [{"place": 30.0, "name": "restart"}]
    assert "dashed: restart; 10 h 00 min of down time left out" in told(spec)
    lines = [value for channel, value in specs.encodings(spec) if channel == "detail"]
    assert lines and all(value["field"] == "part" for value in lines)


def test_throughput_is_of_the_time_in_which_steps_are_taken():
    points = rows_of(there(charts.throughput(ledger(5))), "mean")
    assert {point["mean"] for point in points} == {80.0}
    slow = [replace(row, samples=640, steps=20, seconds={"compute": 8.0}) for row in ledger(1)]
    together = rows_of(there(charts.throughput([*ledger(5), *slow])), "mean")
    assert {point["mean"] for point in together} == {80.0}


def test_only_the_first_process_is_drawn():
    alone, both = charts.ledger(ledger(5)), charts.ledger([*ledger(5), *ledger(5, rank=1)])
    assert alone == both


def test_a_bucket_of_another_stoker_is_counted_as_other():
    rows = [replace(row, seconds={**row.seconds, "prayer": 1.0}) for row in ledger(2)]
    assert rows_of(there(charts.ledger(rows)), "from")[1]["other"] == 50.0


def test_steps_are_counted_by_the_time_that_they_took():
    rows = stepped([0.05] * 50 + [0.1] * 50)
    spec = there(charts.step_times(rows))
    bars = rows_of(spec, "steps")
    assert sum(bar["steps"] for bar in bars) == 200
    assert told(spec).startswith("median 50 ms; 95 % of steps take up to 100 ms")
    assert all(bar["to"] > bar["from"] for bar in bars) and len(bars) <= 50


def test_a_step_that_took_far_longer_does_not_squeeze_the_others_and_is_told_of():
    spec = there(charts.step_times(stepped([0.05] * 500 + [0.06] * 500 + [30.0])))
    assert max(bar["to"] for bar in rows_of(spec, "steps")) < 200
    assert "not drawn: 2 that took longer, up to 30.0 s" in told(spec)


def stepped(times: list[float]) -> list[LedgerRow]:
    """Lines of two steps that took so long each."""
    return [replace(row, seconds={"compute": 2 * time, "eval": 3.0}) for row, time in zip(ledger(len(times)), times)]


def test_traffic_keeps_points_of_every_process():
    pairs = [Pair(rank=n % 4, step=n, steps=1, step_seconds=0.1, bytes_per_second=5e6) for n in range(8000)]
    spec = there(charts.traffic(pairs))
    points = rows_of(spec, "rate")
    assert len(points) <= 2 * drawing.POINTS and {point["process"] for point in points} == {
        f"process {n}" for n in range(4)
    }
    assert f"{len(points):,} of 8,000 points are drawn" in told(spec)


@pytest.mark.parametrize(("held", "colour"), [(True, look.GREEN), (False, look.VERMILION)])
def test_a_plan_that_held_looks_different_from_one_that_did_not(held: bool, colour: str):
    spec = there(charts.planned(replace(specs.PAST, held=held)))
    assert colour in json.dumps(spec)
    assert "took 1 h 08 min, 13.9 % longer than planned" in told(spec)


def test_right_answers_and_mistakes_have_colours_of_their_own_and_one_scale():
    spec = there(charts.matrix(specs.confusion("a", "b", "c")))
    scales = [value["scale"] for channel, value in specs.encodings(spec) if channel == "color"]
    assert [(scale["range"], scale["domain"]) for scale in scales] == [("heatmap", [0, 50]), ("ramp", [0, 50])]
    right, wrong = list(spec["datasets"].values())[:2]
    assert all(cell["true"] == cell["predicted"] for cell in right) and len(right) == 3
    assert all(cell["true"] != cell["predicted"] for cell in wrong) and len(wrong) == 6
    assert {"true": "b", "predicted": "c", "count": 2} in wrong


def test_numbers_stand_in_cells_while_there_is_room():
    def has_numbers(count: int) -> bool:
        spec = there(charts.matrix(specs.confusion(*(str(n) for n in range(count)))))
        return any(channel == "text" for channel, _ in specs.encodings(spec))

    assert has_numbers(12) and not has_numbers(13)


def test_names_of_classes_are_short_and_stay_different():
    found = labels(specs.HOSTILE)
    assert len(set(found)) == len(specs.HOSTILE) and all(0 < len(name) <= 22 for name in found)
    assert labels(["same", "same", "same (2)"]) == ["same", "same (2)", "same (2) (2)"]
    assert labels(["a" * 30, "a" * 30 + "b"])[1].endswith("ab")


def test_rows_are_left_as_they_were():
    training, held, rows = trained(900), evaluated(3), ledger(900)
    copies: list[Any] = [list(training), list(held), list(rows)]
    for _ in range(2):
        first = [charts.losses(training, held), charts.ledger(rows)]
        assert first == [charts.losses(training, held), charts.ledger(rows)]
    assert [training, held, rows] == copies


def test_scores_of_another_task_are_passed_over():
    rows = [MetricRow(kind="eval", epoch=1, step=1, samples=1, lr=None, scores={"loss": 1.0, "bleu": 20.0})]
    assert charts.scores([], rows) is None and charts.losses([], rows) is not None
