import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker import doctor, machine_shown
from stoker.doctor.figures import figures
from stoker.doctor.network import PeerSpeed
from stoker.findings import Finding
from stoker.machine import catalogue
from tests.doctor import speeds

SOME = (Finding(level="good", what="Python [bold]"), Finding(level="warn", what="slow", fix="faster"))


def shown(capsys: pytest.CaptureFixture[str], **parts: Any) -> str:
    measured = speeds.measured(at=time.time() - 7200, missing={"GPU 0 copies to GPU 2": "out of [memory]"})
    profile = replace(
        doctor.examine(Path()), measured=measured, figures=figures(measured, catalogue.read()), findings=SOME
    )
    machine_shown.profile(replace(profile, **parts))
    return capsys.readouterr().out


def test_figures_stand_beside_what_was_expected(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split() for line in shown(capsys).splitlines()]
    assert ["GPU", "0", "bf16", "matmul", "790", "TFLOP/s", "794", "TFLOP/s", "99%", "best", "measured"] in lines
    assert ["GPU", "0", "to", "GPU", "2", "not", "measured", "450", "GB/s", "NVLink"] in lines
    assert ["CPU", "decode,", "16", "threads", "5,770/s", "6,400/s", "90%", "16", "x", "one"] in lines
    assert ["disk", "sequential", "read", "3.5", "GB/s"] in lines


def test_what_is_missing_how_old_it_is_and_what_was_found_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    assert "not measured: GPU 0 copies to GPU 2: out of [memory]" in text
    assert "2 h 00 min ago" in text and "--again" in text
    assert "past the page cache (O_DIRECT)" in text and "24 drawn pictures" in text
    assert "ok   Python [bold]" in text and "warn slow" in text and "     fix: faster" in text


def test_no_line_of_the_table_is_broken_on_a_narrow_screen(capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys).split("\npictures ")[0].splitlines()
    parts = ("part", "GPU 0", "CPU", "disk", "link")
    assert len(table) > 10 and all(line.startswith(parts) for line in table)


def test_reads_that_may_come_from_memory_are_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    warm = speeds.measured(disk=speeds.disk(is_cold=False, bypassed_by=None, file_system=None))
    text = shown(capsys, measured=warm)
    assert "an unknown file system, read perhaps from memory" in text


def test_a_machine_that_was_never_measured_has_its_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, measured=None, figures=()).startswith("ok   Python")


def test_another_host_is_shown_with_its_rates(capsys: pytest.CaptureFixture[str]) -> None:
    peer = PeerSpeed(
        host="b", port=29333, round_trip_seconds=1e-3, to_bytes_per_second=11.8e6, from_bytes_per_second=11.7e6,
        four_flows_to_bytes_per_second=12e6, four_flows_from_bytes_per_second=12e6, interface="eth0",
        interface_bytes_per_second=None,
    )  # fmt: skip
    assert "to b:29333: 11.8 MB/s on one connection, 12 MB/s on four" in shown(capsys, peer=peer)
