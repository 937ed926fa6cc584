from stoker.watch.dials import dials
from tests.watch.made_up import gauged

GPU = {
    "index": 3, "name": "H", "busy_percent": 97.0, "memory_used_bytes": 60 << 30, "memory_bytes": 80 << 30,
    "power_w": 350.0, "power_limit_w": 400.0, "clock_mhz": 1, "clock_max_mhz": 1, "temperature_c": 61,
    "throttle": ["power"],
}  # fmt: skip


def test_a_gpu_shows_busy_and_memory_and_what_holds_it_down():
    (host,) = dials([gauged(1.0, gpus=[GPU]), gauged(2.0, gpus=[{**GPU, "busy_percent": None}])])
    busy, memory = host["dials"][:2]
    assert (busy["name"], busy["text"], busy["series"]) == ("GPU 3 busy", "not measured", [97.0, None])
    assert busy["note"] == "350 of 400 W, 61 °C, power"
    assert (memory["text"], memory["note"], memory["share"]) == ("60.0 GiB", "of 80.0 GiB", 0.75)


def test_what_was_never_measured_is_not_shown():
    (host,) = dials([gauged(1.0, cpu_percent=None, network=None)])
    assert [one["name"] for one in host["dials"]] == ["memory", "disk read"]


def test_every_machine_has_its_own_and_none_is_no_trouble():
    assert [one["host"] for one in dials([gauged(1.0), gauged(1.0, host="other")])] == ["box", "other"]
    assert dials([]) == []
