import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.doctor import cache, readings
from stoker.doctor.cache import Kept
from stoker.machine import gauges
from stoker.machine.gauges import Cores, Gpu, GpuReport, Memory
from tests.doctor import speeds


def test_what_is_kept_comes_back_and_nothing_is_kept_at_first() -> None:
    assert cache.load() == Kept()
    assert cache.save(speeds.measured()) is None
    assert cache.load() == Kept(measured=speeds.measured())


@pytest.mark.parametrize(
    ("spoil", "trouble"),
    [
        (lambda text: text[: len(text) // 2], "can't be read"),
        (lambda text: "", "can't be read"),
        (lambda text: "[" * 100_000, "can't be read"),
        (lambda text: text.replace('"version": 1', '"version": 0'), "another version"),
        (lambda text: "[1]", "another version"),
        (lambda text: text.replace('"clock_mhz"', '"clock"'), "damaged"),
    ],
)
def test_a_spoiled_file_is_said_to_be_so(spoil: Callable[[str], str], trouble: str) -> None:
    cache.save(speeds.measured())
    cache.path().write_text(spoil(cache.path().read_text()))
    kept = cache.load()
    assert kept.measured is None and trouble in (kept.trouble or "")
    assert cache.save(speeds.measured()) is None and cache.load().measured == speeds.measured(), "it is written anew"


def test_bytes_that_are_no_text_are_said_to_be_so() -> None:
    cache.save(speeds.measured())
    cache.path().write_bytes(b"\xff\xfe\x00")
    assert "can't be read" in (cache.load().trouble or "")


def test_a_place_that_can_not_be_written_is_said_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "file")
    assert "can't be kept" in (cache.save(speeds.measured()) or "")
    assert cache.load().measured is None


def test_a_user_without_a_home_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "folder", homeless)
    assert "home" in (cache.save(speeds.measured()) or "") and "home" in (cache.load().trouble or "")


def test_figures_are_kept_below_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(Path, "home", lambda: Path("/home-of-one"))
    assert cache.folder() == Path("/home-of-one/.cache/stoker")


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "cores": lambda m: m.setattr(gauges, "cores_allotted", lambda: Cores(allotted=3, present=8, limited_by=None)),
    "memory": lambda m: m.setattr(
        gauges, "memory_allotted", lambda: Memory(total_bytes=5, available_bytes=4, limited_by=None)
    ),
    "gpu": lambda m: m.setattr(gauges, "gpus", lambda: GpuReport(gpus=(Gpu(index=0, name="Some GPU"),))),
    "uuid": lambda m: m.setattr(readings, "uuids", lambda: ("GPU-1234",)),
    "machine": lambda m: m.setattr(cache, "identity", lambda: "another"),
    "processor": lambda m: m.setattr(cache, "cpu_model", lambda: "another"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_other_hardware_is_another_machine(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.fingerprint()
    assert before == cache.fingerprint()
    CHANGES[what](monkeypatch)
    assert cache.fingerprint() != before
    cache.save(speeds.measured())
    monkeypatch.undo()


def test_figures_of_another_machine_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.save(speeds.measured())
    monkeypatch.setattr(cache, "identity", lambda: "another")
    assert cache.load() == Kept()


def test_a_machine_without_an_id_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MACHINE_ID", tmp_path / "nothing")
    monkeypatch.setattr(cache.socket, "gethostname", lambda: "node-7")
    assert cache.identity() == "node-7"
    (tmp_path / "nothing").write_text("abc\n")
    assert cache.identity() == "abc"


def test_the_processor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\n")
    monkeypatch.setattr(cache, "CPU_INFO", tmp_path / "cpuinfo")
    assert cache.cpu_model() == "Intel(R) Xeon(R)"


def test_the_file_is_json_that_others_may_read() -> None:
    cache.save(speeds.measured())
    values = json.loads(cache.path().read_text())
    assert values["measured"]["gpus"][0]["matmul_flops"]["bf16"] == 673e12
