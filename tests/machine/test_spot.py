"""The notice of a spot instance is heard from a service that speaks IMDSv2, and from nothing else."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from stoker.errors import Problem
from stoker.machine import spot
from stoker.machine.spot import Notice
from tests.machine.metadata import Metadata, served

Waiting = tuple["Future[Notice | None]", threading.Event]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spot, "POLL_SECONDS", 0.02)


OVERS: list[threading.Event] = []


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool
        # A test that fails must not leave a thread that its end waits for.
        for over in OVERS:
            over.set()


def awaited(pool: ThreadPoolExecutor, address: str) -> Waiting:
    OVERS.append(over := threading.Event())
    return pool.submit(spot.awaited, spot.Service(address), over=over), over


def test_a_notice_comes_with_its_action_and_deadline(pool: ThreadPoolExecutor) -> None:
    with served() as server:
        waiting, _ = awaited(pool, server.address)
        server.wait_for("GET", 2)
        assert not waiting.done()
        earliest = time.monotonic() + 120
        server.notice("terminate", seconds=120)
        latest = time.monotonic() + 120
        notice = waiting.result(30)
    assert notice is not None and notice.action == "terminate" and notice.deadline is not None
    # The deadline is the notice's own, however late it was read; the two clocks may differ by a little.
    assert earliest - 0.1 <= notice.deadline <= latest + 0.1


def test_one_token_serves_many_questions_until_it_expires(pool: ThreadPoolExecutor) -> None:
    with served() as server:
        waiting, _ = awaited(pool, server.address)
        server.wait_for("GET", 5)
        assert server.count("PUT") == 1
        server.expire_tokens()
        server.wait_for("PUT", 1)
        server.notice("stop", seconds=60)
        notice = waiting.result(30)
        assert notice is not None and notice.action == "stop"
        assert server.count("PUT") == 2 and any(line.endswith(" 401") for line in server.asked)


@pytest.mark.parametrize("how", [{"has_tokens": False}, {"broken": 403}, {"broken": 500}])
def test_a_machine_without_tokens_is_asked_twice_and_left_alone(how: dict[str, int], pool: ThreadPoolExecutor) -> None:
    with served(**how) as server:
        server.notice("terminate", seconds=120)
        waiting, _ = awaited(pool, server.address)
        assert waiting.result(30) is None
        assert [line.split()[0] for line in server.asked] == ["PUT", "PUT"]


def test_a_machine_without_the_service_is_left_alone(pool: ThreadPoolExecutor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        waiting, _ = awaited(pool, f"127.0.0.1:{taken.getsockname()[1]}")
        assert waiting.result(30) is None


def test_a_service_that_never_answers_is_left_alone(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    monkeypatch.setattr(spot, "TIMEOUT_SECONDS", 0.05)
    with served(delay_seconds=60) as server:
        waiting, _ = awaited(pool, server.address)
        assert waiting.result(30) is None


def test_a_service_that_fails_once_at_first_is_asked_again(pool: ThreadPoolExecutor) -> None:
    with served(states=[503]) as server:
        server.notice("terminate", seconds=120)
        waiting, _ = awaited(pool, server.address)
        notice = waiting.result(30)
        assert notice is not None and notice.action == "terminate"


def test_a_service_that_was_there_is_asked_for_ever(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    monkeypatch.setattr(spot, "TIMEOUT_SECONDS", 0.1)
    with served() as server:
        waiting, _ = awaited(pool, server.address)
        server.wait_for("GET", 1)
        server.broken = 503
        server.wait_for("GET", 5)
        server.expire_tokens()
        server.broken = 0
        # The first may still come with the old token.
        server.wait_for("GET", 2)
        server.has_tokens, server.broken = False, 500
        server.wait_for("GET", 3)
        server.has_tokens, server.broken, server.delay_seconds = True, 0, 0.3
        server.expire_tokens()
        server.wait_for("GET", 3)
        assert not waiting.done()
        server.delay_seconds = 0.0
        server.notice("terminate", seconds=120)
        notice = waiting.result(30)
        assert notice is not None and notice.action == "terminate"


def test_a_token_that_is_never_right_is_asked_for_again_and_again(pool: ThreadPoolExecutor) -> None:
    with served() as server:
        server.tokens = Refused()
        waiting, over = awaited(pool, server.address)
        server.wait_for("GET", 8)
        assert not waiting.done()
        over.set()
        assert waiting.result(30) is None


class Refused(set[str]):
    """No token is ever right."""

    def __contains__(self, _: object) -> bool:
        return False


BODIES = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"time": "2026-11-15T08:22:00Z"}',
    b'{"action": 3}',
    b"\xff\xfe\xfa",
    b"[" * 60_000,
]


@pytest.mark.parametrize("body", BODIES)
def test_an_answer_that_is_no_notice_is_none_and_the_next_one_counts(body: bytes, pool: ThreadPoolExecutor) -> None:
    with served(body=body) as server:
        waiting, _ = awaited(pool, server.address)
        server.wait_for("GET", 3)
        assert not waiting.done()
        server.notice("hibernate", seconds=0)
        notice = waiting.result(30)
        assert notice is not None and notice.action == "hibernate"


@pytest.mark.parametrize("when", ["tomorrow", 3, None, "", "2026-13-45T00:00:00Z"])
def test_a_notice_without_a_time_that_can_be_read_has_no_deadline(when: object) -> None:
    body = json.dumps({"action": "terminate", "time": when}).encode()
    assert spot.parsed(body) == Notice(action="terminate", deadline=None)
    assert spot.parsed(b'{"action": "terminate"}') == Notice(action="terminate", deadline=None)


def test_an_unknown_action_is_a_notice_too() -> None:
    server = Metadata()
    server.notice("evaporate", seconds=30)
    assert server.body is not None
    notice = spot.parsed(server.body)
    assert notice is not None and notice.action == "evaporate"


@pytest.mark.parametrize("zone", ["Z", "", "+00:00"])
def test_a_time_is_utc_unless_it_says_otherwise(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 100)) + zone
        notice = spot.parsed(json.dumps({"action": "stop", "time": at}).encode())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert notice is not None and notice.deadline == pytest.approx(time.monotonic() + 100, abs=60)


def test_waiting_ends_when_it_is_over(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    monkeypatch.setattr(spot, "POLL_SECONDS", 600.0)
    with served() as server:
        waiting, over = awaited(pool, server.address)
        server.wait_for("GET", 1)
        over.set()
        assert waiting.result(30) is None


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with served() as server:
        server.notice("terminate", seconds=120)
        waiting, _ = awaited(pool, server.address)
        assert waiting.result(30) is not None


@pytest.mark.parametrize("address", ["http://", "", "http://host:port", "http://[::1"])
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(Problem, match="is no address of a metadata service"):
        spot.Service(address)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [(spot.ADDRESS, "169.254.169.254", 80), ("[fd00:ec2::254]", "fd00:ec2::254", 80), ("http://a:81/", "a", 81)],
)
def test_an_address_may_have_a_scheme_and_a_port(address: str, host: str, port: int) -> None:
    assert (spot.Service(address).host, spot.Service(address).port) == (host, port)
