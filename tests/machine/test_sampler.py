import dataclasses
import errno
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

from stoker import records, runs
from stoker.machine import sampler
from stoker.machine.counters import Counters, Meter, Traffic
from stoker.machine.sampler import Family, Sampler
from stoker.records import GaugeRow
from tests.machine.test_gauges import H200, driver, error

NEVER = 1000.0
OFTEN = 0.02


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gauges"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert threads() == []


def rows_of(path: Path, *, at_least: int) -> list[GaugeRow]:
    """The rows of a file, as soon as there are so many."""
    for _ in range(3000):
        rows = records.read_lines(path, GaugeRow)
        if len(rows) >= at_least:
            return rows
        time.sleep(0.01)
    raise AssertionError(f"{path} has not got {at_least} rows")


def test_a_row_is_added_every_interval(tmp_path: Path) -> None:
    path, began = tmp_path / "gauges.jsonl", time.monotonic()
    with Sampler(path, rank=3, interval_seconds=OFTEN, gpu_index=None):
        (thread,) = threads()
        assert thread.daemon
        rows = rows_of(path, at_least=4)
    assert sum(row.seconds for row in rows) <= time.monotonic() - began  # no second is told of twice
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    for row in rows:
        assert (row.rank, row.host, row.version) == (3, socket.gethostname(), 1)
        assert row.seconds >= OFTEN
        assert row.cpu_percent is not None and row.cpu_percent >= 0
        assert row.memory_used_bytes is not None and row.memory_used_bytes > 2**20
        assert row.memory_available_bytes is None or row.memory_available_bytes > 0
        assert "lo" not in (row.network or {})


def test_a_busy_process_shows_and_a_sleeping_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "gauges.jsonl"
    with Sampler(path, rank=0, interval_seconds=0.2, gpu_index=None):
        asleep = rows_of(path, at_least=1)[-1]
        while len(records.read_lines(path, GaugeRow)) < 3:
            pass
    awake = records.read_lines(path, GaugeRow)[2]
    assert asleep.process_cpu_percent is not None and awake.process_cpu_percent is not None
    assert awake.process_cpu_percent > asleep.process_cpu_percent


def test_the_first_row_comes_after_an_interval_and_the_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "SHORTEST_SECONDS", NEVER)
    with Sampler(tmp_path / "gauges.jsonl", rank=0, interval_seconds=NEVER, gpu_index=None):
        assert len(threads()) == 1
    assert threads() == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_at_the_end_is_a_last_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "SHORTEST_SECONDS", 0.0)
    path = tmp_path / "gauges.jsonl"
    with Sampler(path, rank=0, interval_seconds=NEVER, gpu_index=None):
        time.sleep(0.05)
    (row,) = records.read_lines(path, GaugeRow)
    assert 0 < row.seconds < NEVER


def test_a_run_that_fails_fails_with_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Sampler(tmp_path / "g", rank=0, interval_seconds=NEVER, gpu_index=None):
        raise ZeroDivisionError


@pytest.mark.parametrize(("name", "interval_seconds"), [(None, OFTEN), ("gauges.jsonl", 0.0)])
def test_switched_off_there_is_no_thread_and_no_file(tmp_path: Path, name: str | None, interval_seconds: float) -> None:
    path = tmp_path / name if name else None
    with Sampler(path, rank=0, interval_seconds=interval_seconds, gpu_index=None):
        assert threads() == []
        time.sleep(2 * OFTEN)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_costs_rows_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, refused, real = tmp_path / "gauges.jsonl", [], runs.append_line
    full = OSError(errno.ENOSPC, "No space left on device")

    def append(path: Path, row: Any) -> None:
        if len(refused) < 3:
            refused.append(row)
            raise runs.full(path, full) if len(refused) < 3 else OSError(errno.EIO, "Input/output error")
        real(path, row)

    monkeypatch.setattr(runs, "append_line", append)
    with Sampler(path, rank=0, interval_seconds=OFTEN, gpu_index=None):
        rows_of(path, at_least=2)
    assert len(refused) == 3


def test_a_lost_folder_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "run" / "gauges.jsonl"
    with Sampler(path, rank=0, interval_seconds=OFTEN, gpu_index=None):
        time.sleep(3 * OFTEN)
        assert len(threads()) == 1
        path.parent.mkdir()
        rows_of(path, at_least=1)


def test_a_disk_that_hangs_does_not_keep_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, hanging = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hanging.set()
        answer.wait()

    monkeypatch.setattr(runs, "append_line", hang)
    monkeypatch.setattr(sampler, "PATIENCE_SECONDS", 0.01)
    with Sampler(tmp_path / "gauges.jsonl", rank=0, interval_seconds=OFTEN, gpu_index=None):
        assert hanging.wait(30)
    (thread,) = threads()
    answer.set()
    thread.join()


def test_the_driver_is_opened_once_and_let_go_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    asked = driver(monkeypatch, **H200 | {"nvmlDeviceGetPowerUsage": error(pynvml.NVML_ERROR_NO_PERMISSION)})
    path = tmp_path / "gauges.jsonl"
    with Sampler(path, rank=0, interval_seconds=OFTEN, gpu_index=0):
        rows = rows_of(path, at_least=3)
    (gpu,) = rows[-1].gpus or ()
    assert (gpu["name"], gpu["busy_percent"], gpu["power_w"], gpu["power_limit_w"]) == ("NVIDIA H200", 97, None, 700.0)
    assert (asked[0], asked[-1]) == ("nvmlInit", "nvmlShutdown")
    assert (asked.count("nvmlInit"), asked.count("nvmlShutdown")) == (1, 1)
    assert not [name for name in asked if "Processes" in name]  # it takes milliseconds


def test_without_a_driver_the_other_gauges_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    path = tmp_path / "gauges.jsonl"
    with Sampler(path, rank=0, interval_seconds=OFTEN, gpu_index=0):
        row = rows_of(path, at_least=1)[0]
    assert row.gpus is None
    assert row.cpu_percent is not None


def test_rates_are_what_two_readings_differ_by() -> None:
    before = Counters(
        at_seconds=100.0, cpu_seconds=10.0, process_cpu_seconds=1.0, iowait_seconds=5.0, disk_read_bytes=1000,
        disk_write_bytes=2000, process_read_bytes=0, traffic={"eth0": Traffic(sent_bytes=0, received_bytes=100)},
    )  # fmt: skip
    after = dataclasses.replace(
        before, at_seconds=104.0, cpu_seconds=16.0, process_cpu_seconds=4.0, iowait_seconds=6.0, disk_read_bytes=1400,
        disk_write_bytes=1999, process_read_bytes=None, traffic={"eth0": Traffic(sent_bytes=40, received_bytes=180)},
    )  # fmt: skip
    meter = Meter()
    meter.cores, meter.machine_cores = 2, 5
    row = sampler.sampled(before, after, meter, Family(), (), rank=1, host="a")
    assert (row.rank, row.host, row.seconds, row.gpus) == (1, "a", 4.0, [])
    assert (row.cpu_percent, row.process_cpu_percent, row.iowait_percent) == (75.0, 37.5, 5.0)
    assert (row.disk_read_bytes_per_second, row.disk_write_bytes_per_second) == (100.0, None)
    assert row.process_read_bytes_per_second is None
    assert row.network == {"eth0": {"sent_bytes_per_second": 10.0, "received_bytes_per_second": 20.0}}


def test_an_interface_that_came_or_began_anew_in_between_is_unknown() -> None:
    sent = Traffic(sent_bytes=100, received_bytes=100)
    before = Counters(at_seconds=0.0, traffic={"eth0": sent, "gone": sent})
    again = Traffic(sent_bytes=0, received_bytes=300)
    after = Counters(at_seconds=2.0, traffic={"eth0": again, "new": sent})
    assert sampler.network(before, after) == {
        "eth0": {"sent_bytes_per_second": None, "received_bytes_per_second": 100.0}
    }
    assert sampler.network(before, Counters(at_seconds=2.0)) is None


def test_the_memory_of_children_counts_as_long_as_they_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "SEARCH_SHARE", float("inf"))  # look for them every time
    script = "x = bytearray(64 * 2**20); print('ready', flush=True); input()"
    family = Family()
    alone = family.memory_bytes()
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None and child.stdout.readline()
        together = family.memory_bytes()
        child.communicate(b"\n")
    after = family.memory_bytes()
    assert alone is not None and together is not None and after is not None
    assert together - alone > 64 * 2**20
    assert together - after > 64 * 2**20


def test_children_are_looked_for_only_as_often_as_that_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []

    def children(_: object, *, recursive: bool) -> list[psutil.Process]:
        searches.append(recursive)
        time.sleep(0.01)
        return []

    monkeypatch.setattr(psutil.Process, "children", children)
    monkeypatch.setattr(sampler, "SEARCH_SHARE", 1e-6)
    family = Family()
    assert len({family.memory_bytes() is None for _ in range(5)}) == 1
    assert searches == [True]


def test_a_row_reads_back_as_it_was_written(tmp_path: Path) -> None:
    meter = Meter()
    before = meter.read()
    row = sampler.sampled(before, meter.read(), meter, Family(), None, rank=0, host="a")
    path = runs.Run(tmp_path).gauges_of(0)
    runs.append_line(path, row)
    assert records.read_lines(path, GaugeRow) == [row]
    assert json.loads(path.read_text())["gpus"] is None


def test_each_process_has_its_own_file_and_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    run = runs.Run(tmp_path)
    assert [run.gauges_of(rank).name for rank in (0, 1, 12)] == ["gauges.jsonl", "gauges.1.jsonl", "gauges.12.jsonl"]
    for rank in (0, 1):
        run.gauges_of(rank).write_text('{"whole": 1}\n{"to')
    runs.tidy(run)
    assert [run.gauges_of(rank).read_text() for rank in (0, 1)] == ['{"whole": 1}\n'] * 2
