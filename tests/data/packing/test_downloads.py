import random
import socket

import pytest

from stoker.data.decode import Unreadable
from stoker.data.packing import downloads
from stoker.data.packing.downloads import Download, Mark
from stoker.errors import Problem

from .servers import Site, served

BODY = random.Random(0).randbytes(300_000)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "WAIT_SECONDS", (0.01,) * 4)
    monkeypatch.setattr(downloads, "SHORT_WAIT_SECONDS", (0.01,) * 3)


def read_all(download: Download) -> bytes:
    pieces = []
    try:
        while piece := download.read(10_000):
            pieces.append(piece)
    finally:
        download.close()
    return b"".join(pieces)


def test_a_dropped_connection_is_taken_up_where_it_broke() -> None:
    with served(Site(files={"x": BODY}, drops=[100_000, 0, 123, 50_000])) as site:
        assert read_all(Download(f"{site.url}/x")) == BODY
    assert site.asked == ["", "bytes=100000-", "bytes=100000-", "bytes=100123-", "bytes=150123-"]


def test_a_server_without_ranges_is_read_anew_and_what_is_there_passed_over() -> None:
    with served(Site(files={"x": BODY}, ranges=False, drops=[100_000, 50_000])) as site:
        assert read_all(Download(f"{site.url}/x")) == BODY
    assert site.asked == ["", "bytes=100000-", "bytes=100000-"]


def test_a_passing_error_is_waited_out_and_a_lasting_one_is_a_problem() -> None:
    with served(Site(files={"x": BODY}, states=[503, 429, 0])) as site:
        assert read_all(Download(f"{site.url}/x")) == BODY
        with pytest.raises(Problem, match="404"):
            read_all(Download(f"{site.url}/y"))
        site.drops = [0] * 5
        with pytest.raises(Problem, match="from byte 0 on, 5 times in a row: it ended early"):
            read_all(Download(f"{site.url}/x"))
    with pytest.raises(Problem, match="5 times in a row"):
        read_all(Download(f"{site.url}/x"))


def test_each_wait_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with served(Site(files={"x": BODY}, drops=[1000, 0])) as site:
        assert read_all(Download(f"{site.url}/x", show=True)) == BODY
    told = capsys.readouterr().err.splitlines()
    assert told == [f"wait     0.01 s, then {site.url}/x again from byte 1,000 on: it ended early"] * 2


def test_a_server_that_nobody_knows_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unknown(host: str, *_: object, **__: object) -> None:
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(Problem, match="not known by that name here"):
        Download("http://nowhere.invalid/x").read(10)
    assert len(asked) == 1
    with pytest.raises(Problem, match="5 times in a row"):
        Download("http://nowhere.invalid/x", at=10).read(10)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changes_on_the_way_is_a_problem(ranges: bool) -> None:
    with served(Site(files={"x": BODY}, drops=[100_000], ranges=ranges)) as site:
        download = Download(f"{site.url}/x")
        assert download.read(10) == BODY[:10]
        site.tag = '"two"'
        with pytest.raises(Problem, match="has changed"):
            read_all(download)
    with served(Site(files={"x": BODY}, tag=None)) as site, pytest.raises(Problem, match="has changed"):
        read_all(Download(f"{site.url}/x", at=10, mark=Mark(length=len(BODY) + 1)))


def test_reading_may_begin_in_the_middle() -> None:
    with served(Site(files={"x": BODY})) as site:
        assert read_all(Download(f"{site.url}/x", at=1000, mark=Mark(tag='"one"', length=len(BODY)))) == BODY[1000:]
        site.ranges = False
        assert read_all(Download(f"{site.url}/x", at=1000)) == BODY[1000:]


def test_a_weak_tag_is_no_proof_of_equal_bytes() -> None:
    with served(Site(files={"x": BODY}, tag='W/"one"')) as site:
        download = Download(f"{site.url}/x")
        assert read_all(download) == BODY
    assert download.mark == Mark(length=len(BODY))


def test_a_small_file_is_fetched_with_patience_and_not_for_ever() -> None:
    with served(Site(files={"x": BODY, "y": b""}, drops=[10, 20], states=[500, 0, 0])) as site:
        assert downloads.fetched(f"{site.url}/x") == BODY
        with pytest.raises(Unreadable, match="404"):
            downloads.fetched(f"{site.url}/z")
        site.drops = [5] * 4
        with pytest.raises(Unreadable, match=f"5 of {len(BODY)} bytes"):
            downloads.fetched(f"{site.url}/x")
    with pytest.raises(Unreadable, match="refused"):
        downloads.fetched(f"{site.url}/x")
    with pytest.raises(Unreadable):
        downloads.fetched("http://")
