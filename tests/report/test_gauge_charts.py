from dataclasses import replace

from stoker.report import drawing, look
from stoker.report.gauge_charts import course, gauges
from tests.report import specs
from tests.report.specs import blind_row, gauge_rows, rows_of, told


def test_only_what_was_measured_is_drawn():
    assert gauges([]) == gauges([blind_row()]) == {}
    assert list(gauges(gauge_rows(3, gpus=None))) == ["CPU", "memory", "disk", "network"]
    some = [replace(blind_row(), cpu_percent=50.0), replace(blind_row(), at=specs.BEGAN + 5)]
    found = gauges(some)
    assert list(found) == ["CPU"]
    assert [row["mean"] for row in rows_of(found["CPU"], "mean")] == [50.0]


def test_every_gpu_has_a_line_and_its_memory_an_end():
    found = gauges(gauge_rows(3, gpus=3))
    assert {row["series"] for row in rows_of(found["GPU busy"], "series")} == {"GPU 0", "GPU 1", "GPU 2"}
    scales = [
        value["scale"] for channel, value in specs.encodings(found["GPU memory"]) if channel == "y" and "scale" in value
    ]
    assert scales and all(scale["domain"] == [0, 80] for scale in scales)
    assert {row["mean"] for row in rows_of(found["GPU memory"], "mean")} == {10.0}


def test_gpus_of_several_machines_are_told_apart():
    found = gauges(gauge_rows(3, gpus=1, hosts=("a", "b")))
    assert {row["series"] for row in rows_of(found["GPU busy"], "series")} == {"GPU 0 of a", "GPU 0 of b"}


def test_more_gpus_than_colours_are_one_line_with_a_band():
    spec = gauges(gauge_rows(30, gpus=len(look.LINES) + 1))["GPU busy"]
    points = rows_of(spec, "mean")
    assert {point["series"] for point in points} == {"9 GPUs"}
    assert {(point["least"], point["mean"], point["most"]) for point in points} == {(82.0, 86.0, 90.0)}
    assert "mean of 9, with a band from the least to the most" in told(spec)


def test_several_machines_are_drawn_as_their_mean():
    rows = [replace(row, cpu_percent=20.0 if row.host == "a" else 60.0) for row in gauge_rows(5, hosts=("a", "b"))]
    points = [row for row in rows_of(gauges(rows)["CPU"], "mean") if row["series"] == "all processes"]
    assert {(point["least"], point["mean"], point["most"]) for point in points} == {(20.0, 40.0, 60.0)}


def test_an_interface_that_was_not_measured_makes_no_sum():
    network = {"eth0": {"sent_bytes_per_second": 4e6, "received_bytes_per_second": 1e6},
               "eth1": {"sent_bytes_per_second": None, "received_bytes_per_second": 1e6}}  # fmt: skip
    spec = gauges([replace(row, network=network) for row in gauge_rows(3)])["network"]
    assert {row["series"] for row in rows_of(spec, "series")} == {"received"}
    assert {row["mean"] for row in rows_of(spec, "mean")} == {drawing.short(2e6 / 1024)}


def test_a_long_gap_is_left_out_and_breaks_the_lines():
    spec = gauges(gauge_rows(20, gap_at=10))["CPU"]
    points = rows_of(spec, "mean")
    assert max(point["time"] for point in points) == 100.0
    assert {point["part"] for point in points if point["time"] <= 50} == {0}
    assert {point["part"] for point in points if point["time"] > 50} == {1}
    assert rows_of(spec, "place") == [{"place": 50.0, "name": "gap"}]
    assert "dashed: gap; 10 h 00 min of down time left out" in told(spec)


def test_a_short_gap_breaks_the_lines_and_stays():
    rows = [replace(row, at=row.at + (30.0 if n >= 10 else 0.0)) for n, row in enumerate(gauge_rows(20))]
    whole = course(rows)
    assert whole.cuts == [] and {sample.part for sample in whole.samples} == {0, 1}
    assert whole.samples[-1].up_seconds == 130.0


def test_samples_that_are_some_of_many_are_no_gaps():
    whole = course(gauge_rows(2000)[::20])
    assert whole.cuts == [] and {sample.part for sample in whole.samples} == {0}


def test_thinning_keeps_the_least_and_the_most_and_says_so():
    rows = gauge_rows(3000)
    rows[1500] = replace(rows[1500], cpu_percent=100.0)
    rows[2500] = replace(rows[2500], cpu_percent=0.0)
    spec = gauges(rows)["CPU"]
    points = [row for row in rows_of(spec, "mean") if row["series"] == "all processes"]
    assert len(points) <= drawing.POINTS
    assert max(point["most"] for point in points) == 100.0 and min(point["least"] for point in points) == 0.0
    assert "each point is the mean of 23 samples; band: least to most" in told(spec)


def test_a_process_may_use_more_than_all_cores_without_leaving_the_chart():
    rows = [replace(row, process_cpu_percent=140.0) for row in gauge_rows(3)]
    spec = gauges(rows)["CPU"]
    assert {tuple(v["scale"]["domain"]) for c, v in specs.encodings(spec) if c == "y" and "scale" in v} == {(0, 140.0)}
