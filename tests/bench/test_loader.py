import contextlib
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from stoker import api, cli
from stoker.bench import contest, loader, peers
from stoker.bench.contest import Failed
from stoker.bench.job import Job, Photos
from stoker.bench.loader import Entrant, Field, Rival
from stoker.config import ImageConfig
from stoker.errors import Problem

WORDS = ["bench", "loader", "--resolution", "32", "--workers", "1", "--rounds", "2", "--repeat", "1"]


def test_rates_are_set_side_by_side_and_a_missing_peer_is_said_to_be_missing(
    dial_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "webdataset" else real(name))
    words = [*WORDS, "--data", str(dial_folder), "--peers", "loop,webdataset"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {
        "data", "files", "samples", "resolution", "workers", "cores", "difference", "fastest", "rivals",
    }  # fmt: skip
    assert found["files"] == 144 and found["samples"] == 384 and len(found["cores"]) == 1
    one, missing = found["rivals"]
    assert one.keys() == {
        "peer", "name", "note", "difference", "is_equal_quality", "rounds", "ours_per_second", "peer_per_second",
        "ratio", "ratio_least", "ratio_most",
    }  # fmt: skip
    assert one["rounds"] == 2 and one["is_equal_quality"] and one["difference"] == 0
    assert 0 < one["ratio_least"] <= one["ratio"] <= one["ratio_most"]
    assert missing["note"] == "not installed (webdataset): pip install webdataset"
    assert missing["peer_per_second"] is None and missing["ratio"] is None and missing["rounds"] == 0
    assert found["fastest"] == "loop"


def test_a_source_without_colour_jpegs_and_impossible_numbers_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGB", (20, 20)).save(tmp_path / "data" / name / "1.png")
        Image.new("L", (20, 20)).save(tmp_path / "data" / name / "2.jpg")
    with pytest.raises(Problem, match="no three-colour JPEGs"):
        api.bench_loader(str(tmp_path / "data"), workers=1, show=False)
    with pytest.raises(Problem, match="100000 workers were asked for"):
        api.bench_loader(workers=100_000)
    with pytest.raises(Problem, match="rounds is 0"):
        api.bench_loader(rounds=0)


class Planned:
    """A contestant whose measurements are known beforehand: a rate for each number of processes."""

    def __init__(self, rates: dict[int, float], difference: float = 0.1) -> None:
        self.peer, self.rates, self.off = peers.found("pillow"), rates, difference

    def rate(self, job: Job) -> float:
        if job.processes not in self.rates:
            raise Failed("OSError: no more")
        return self.rates[job.processes]

    def difference(self, job: Job) -> float:
        return self.off

    def close(self) -> None: ...


def entered(monkeypatch: pytest.MonkeyPatch, folder: Path, contestant: Planned, *, workers: int) -> Entrant | Rival:
    monkeypatch.setattr(loader, "Contestant", lambda peer: contestant)
    with contextlib.ExitStack() as held:
        return loader.entered(held, ground_of(folder, workers), contestant.peer, show=False)


def ground_of(folder: Path, workers: int) -> Field:
    photos = Photos(files=("a.jpg",), sizes=((60, 40),))
    return Field(photos=photos, image=ImageConfig(resolution=32), workers=workers, count=512, folder=folder)


def test_on_one_core_a_peer_takes_a_worker_process_or_none_as_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for rates, best in (({0: 90.0, 1: 80.0}, 0), ({0: 70.0, 1: 80.0}, 1)):
        found = entered(monkeypatch, tmp_path, Planned(rates), workers=1)
        assert isinstance(found, Entrant) and found.processes == best and found.note == f"num_workers={best}"
    found = entered(monkeypatch, tmp_path, Planned({2: 90.0}), workers=2)
    assert isinstance(found, Entrant) and found.processes == 2


def test_a_peer_that_fails_is_listed_with_its_reason_and_no_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = entered(monkeypatch, tmp_path, Planned({}), workers=1)
    assert isinstance(found, Rival) and found.note == "failed: OSError: no more" and found.ratio is None
    late: Any = Planned({0: 50.0})
    good = Entrant(contestant=late, processes=0, difference=0.1, note="")
    bad = Entrant(contestant=late, processes=7, difference=0.1, note="")
    assert list(loader.measured(ground_of(tmp_path, 1), good, [good, bad], rounds=2)) == [1, 2, 3, 4]
    assert loader.rival(good).ratio == 1.0 and loader.rival(good).rounds == 2
    assert loader.rival(bad).note == "failed: OSError: no more" and loader.rival(bad).ratio is None


def test_ratios_are_of_neighbouring_measurements_and_another_quality_is_noted() -> None:
    planned: Any = Planned({})
    pairs = [(100.0, 50.0), (90.0, 30.0), (80.0, 80.0)]
    row = loader.rival(Entrant(contestant=planned, processes=1, difference=0.6, note="num_workers=1", pairs=pairs))
    assert (row.ratio, row.ratio_least, row.ratio_most, row.rounds) == (2.0, 1.0, 3.0, 3)
    assert (row.ours_per_second, row.peer_per_second) == (90.0, 50.0)
    assert row.note == "num_workers=1, not of equal quality" and row.is_equal_quality is False


def rival(peer: str, *, ratio: float | None, is_equal: bool | None = True) -> Rival:
    return Rival(peer=peer, name=peer, note="", ratio=ratio, is_equal_quality=is_equal)


def test_the_fastest_peer_is_of_equal_quality_and_not_stoker_itself() -> None:
    aliased, ours = rival("opencv", ratio=0.5, is_equal=False), rival("ours", ratio=0.6)
    absent = rival("spdl", ratio=None, is_equal=None)
    assert loader.fastest((aliased, ours, absent, rival("dali", ratio=1.2), rival("loop", ratio=1.5))) == "dali"
    assert loader.fastest((aliased, ours, absent)) is None


def test_a_peer_that_hangs_is_ended_and_said_to_have_failed(monkeypatch: pytest.MonkeyPatch):
    contestant = contest.Contestant(peers.STOKER)
    pid = contestant._process.pid
    monkeypatch.setattr(contest, "MOST_SECONDS", 0.2)
    with pytest.raises(contest.Failed, match="longer than"):
        contestant._asked(hang, None)
    contestant.close()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def hang(*_: object) -> None:
    time.sleep(1000)


@pytest.mark.parametrize(("workers", "keys"), [(1, {"loop"}), (2, {"ours"})])
def test_one_loop_is_compared_on_one_core_and_one_thread_on_many(workers: int, keys: set[str]):
    assert {peer.key for peer in peers.PEERS if peer.key in ("loop", "ours") and peer.fits(workers)} == keys
