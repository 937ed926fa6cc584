from typing import Any

import pytest

from stoker.machine import usage
from stoker.machine.usage import Spread, Usage
from stoker.records import GaugeRow


def row(seconds: float, *gpus: dict[str, Any], **values: Any) -> GaugeRow:
    """A row of a machine that shows nothing but this."""
    unknown = {name: None for name in GaugeRow.__dataclass_fields__ if name not in ("version", "seconds")}
    return GaugeRow(**unknown | {"seconds": seconds, "gpus": list(gpus) or None} | values)


def gpu(**values: Any) -> dict[str, Any]:
    names = ("busy_percent", "power_w", "power_limit_w", "clock_mhz", "clock_max_mhz", "throttle")
    return dict.fromkeys(names) | values


def test_a_longer_sample_weighs_more() -> None:
    found = usage.means([row(9.0, gpu(busy_percent=100)), row(1.0, gpu(busy_percent=0))])
    assert found.gpu_busy_percent == Spread(mean=90.0, least=0, most=100)
    assert found.seconds == 10.0


def test_every_gpu_counts() -> None:
    found = usage.means([row(2.0, gpu(busy_percent=90), gpu(busy_percent=30)), row(2.0, gpu(busy_percent=60))])
    assert found.gpu_busy_percent == Spread(mean=60.0, least=30, most=90)


def test_power_and_clock_are_shares_of_what_they_could_be() -> None:
    half = gpu(power_w=350.0, power_limit_w=700.0, clock_mhz=1500, clock_max_mhz=2000)
    whole = gpu(power_w=300.0, power_limit_w=300.0, clock_mhz=500, clock_max_mhz=2000)
    found = usage.means([row(1.0, half, whole)])
    assert found.power_share == Spread(mean=0.75, least=0.5, most=1.0)
    assert found.clock_share == Spread(mean=0.5, least=0.25, most=0.75)


def test_bytes_are_summed_over_interfaces_and_both_ways() -> None:
    card = {"sent_bytes_per_second": 10.0, "received_bytes_per_second": 5.0}
    rows = [
        row(1.0, network={"eth0": card, "eth1": card}, disk_read_bytes_per_second=7.0, disk_write_bytes_per_second=1.0),
        row(1.0, network={"eth0": card}, disk_read_bytes_per_second=0.0, disk_write_bytes_per_second=0.0),
    ]
    found = usage.means(rows)
    assert found.network_bytes_per_second == Spread(mean=22.5, least=15.0, most=30.0)
    assert found.disk_bytes_per_second == Spread(mean=4.0, least=0.0, most=8.0)


def test_processor_and_waiting_for_disks_are_means_of_their_rows() -> None:
    found = usage.means([row(1.0, cpu_percent=50.0, iowait_percent=0.0), row(3.0, cpu_percent=90.0)])
    assert found.cpu_percent == Spread(mean=80.0, least=50.0, most=90.0)
    assert found.iowait_percent == Spread(mean=0.0, least=0.0, most=0.0)


def test_what_holds_a_clock_down_is_a_share_of_the_time() -> None:
    rows = [
        row(3.0, gpu(throttle=["power cap"])),
        row(1.0, gpu(throttle=["power cap", "thermal slowdown"])),
        row(4.0, gpu(throttle=[])),
        row(9.0, gpu(throttle=None)),
    ]
    assert usage.means(rows).throttled == {"power cap": 0.5, "thermal slowdown": 0.125}
    assert usage.means([row(4.0, gpu(throttle=[]))]).throttled == {}
    assert usage.means([row(0.0, gpu(throttle=["power cap"]))]).throttled is None


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(0.0)],
        [row(0.0, gpu())],
        [row(0.0, gpu(power_w=300.0, clock_mhz=1000))],
        [row(0.0, gpu(power_w=300.0, power_limit_w=0.0))],
        [row(0.0, network={}, disk_read_bytes_per_second=1.0)],
        [row(0.0, network={"eth0": {"sent_bytes_per_second": None, "received_bytes_per_second": 1.0}})],
    ],
)
@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_what_no_row_tells_is_unknown(rows: list[GaugeRow], seconds: float) -> None:
    timed = [row(seconds, *(each.gpus or ()), **_values(each)) for each in rows]
    assert usage.means(timed) == Usage(seconds=seconds * len(rows))


def _values(found: GaugeRow) -> dict[str, Any]:
    return {"network": found.network, "disk_read_bytes_per_second": found.disk_read_bytes_per_second}
