"""Whoever asks first is remembered, with the time that is left; the same signal twice ends the process."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from stoker.machine import spot
from stoker.machine.interrupts import SIGNALS, StopRequest
from tests.machine.metadata import served

CHILD = """
import os, signal, sys, time
from stoker.machine.interrupts import StopRequest
with StopRequest(show=True) as stop:
    print("ready", flush=True)
    for line in sys.stdin:
        os.kill(os.getpid(), getattr(signal, line.strip()))
        time.sleep(0.01)  # a handler runs at the next bytecode
        print(stop.by, flush=True)
print("left", flush=True)
"""


def until(holds: object) -> None:
    """Wait until something holds, which it does in a moment or never."""
    ends = time.monotonic() + 30
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < ends
        time.sleep(0.005)


def child(*signals: str) -> subprocess.CompletedProcess[str]:
    told = "".join(f"{name}\n" for name in signals)
    return subprocess.run([sys.executable, "-c", CHILD], input=told, capture_output=True, text=True, check=False)


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "spot notice"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_the_handlers_before_come_back(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with StopRequest() as stop:
        assert stop.by is None and stop.deadline is None and stop.seconds_left() is None
        os.kill(os.getpid(), number)
        until(lambda: stop.by is not None)
        assert stop.by == number.name and stop.seconds_left() is None
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_slurms_and_the_users_signals_are_among_them() -> None:
    assert {"SIGTERM", "SIGINT", "SIGUSR1"} <= {number.name for number in SIGNALS}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGUSR2"])
def test_the_same_signal_twice_ends_the_process(name: str) -> None:
    done = child(name, name)
    assert done.returncode == -getattr(signal, name)
    assert done.stdout.split() == ["ready", name]


def test_ctrl_c_twice_is_a_keyboard_interrupt() -> None:
    done = child("SIGINT", "SIGINT")
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr


def test_sigterm_after_slurms_signal_keeps_the_first_and_ends_nothing() -> None:
    done = child("SIGUSR1", "SIGTERM", "SIGINT")
    assert done.returncode == 0
    assert done.stdout.split() == ["ready", "SIGUSR1", "SIGUSR1", "SIGUSR1", "left"]


def test_what_happens_is_said_on_stderr_where_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with StopRequest(show=True) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: stop.by)
        stop.request("spot notice (terminate)", deadline=time.monotonic() + 100)
    told = capfd.readouterr().err.splitlines()
    assert "SIGTERM: stopping after this step, then saving; the same signal again leaves at once" in told
    assert any(line.startswith("spot notice (terminate): stopping") and "s are left" in line for line in told)
    with StopRequest() as stop:
        stop.request("someone")
    assert capfd.readouterr().err == ""


def test_the_first_who_asks_and_the_earliest_deadline_count() -> None:
    with StopRequest() as stop:
        now = time.monotonic()
        stop.request("first")
        assert (stop.by, stop.deadline) == ("first", None)
        stop.request("second", deadline=now + 200)
        stop.request("third", deadline=now + 100)
        assert (stop.by, stop.deadline) == ("first", now + 100)
        left = stop.seconds_left()
        assert left is not None and 0 < left <= 100
        stop.request("fourth", deadline=now - 5)
        assert stop.seconds_left() == 0


def test_many_threads_may_ask_at_once() -> None:
    with StopRequest() as stop:
        barrier = threading.Barrier(8)

        def ask(number: int) -> None:
            barrier.wait()
            stop.request(f"thread {number}", deadline=float(number))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stop.by is not None and stop.by.startswith("thread") and stop.deadline == 0.0


def test_asking_does_not_wait_for_a_pipe_that_nobody_reads() -> None:
    full = """
import os
from stoker.machine.interrupts import StopRequest
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(2, True)
with StopRequest(show=True) as stop:
    stop.request("someone")
print(stop.by)
"""
    reader, writer = os.pipe()
    try:
        command = [sys.executable, "-c", full]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, text=True, timeout=60, check=True)
    finally:
        os.close(reader)
        os.close(writer)
    assert done.stdout == "someone\n"


def test_off_the_main_thread_it_goes_without_signals() -> None:
    asked: list[str | None] = []

    def work() -> None:
        with StopRequest() as stop:
            stop.request("a friend")
            asked.append(stop.by)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert asked == ["a friend"]


class TestSpot:
    @pytest.fixture(autouse=True)
    def _hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spot, "POLL_SECONDS", 0.02)

    def test_a_notice_is_a_request_with_a_deadline(self) -> None:
        with served() as server, StopRequest(spot_address=server.address) as stop:
            server.wait_for("GET", 2)
            assert stop.by is None
            server.notice("terminate", seconds=120)
            until(lambda: stop.by is not None)
            assert stop.by == "spot notice (terminate)"
            left = stop.seconds_left()
            assert left is not None and 60 < left <= 120

    def test_the_thread_ends_with_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spot, "POLL_SECONDS", 600.0)
        with served() as server:
            with StopRequest(spot_address=server.address):
                server.wait_for("GET", 1)
                assert len(watchers()) == 1 and watchers()[0].daemon
            until(lambda: not watchers())

    def test_a_notice_that_comes_after_the_end_is_nobodys(self) -> None:
        with served(delay_seconds=0.2) as server:
            server.notice("terminate", seconds=120)
            with StopRequest(spot_address=server.address) as stop:
                pass
            until(lambda: not watchers())
            assert stop.by is None

    def test_there_is_no_thread_without_an_address(self) -> None:
        with StopRequest():
            assert watchers() == []

    def test_a_machine_that_is_not_on_aws_goes_on_without_the_thread(self) -> None:
        with served(has_tokens=False) as server, StopRequest(spot_address=server.address) as stop:
            until(lambda: not watchers())
            assert stop.by is None
