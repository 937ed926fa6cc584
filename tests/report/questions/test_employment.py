from stoker.records import LedgerRow
from tests.machine.made_up import ledger, over_a_slow_link, with_a_slow_one
from tests.report.accounts import (
    CONVERGED,
    NOW,
    STEP,
    account,
    answers,
    busy_gpu,
    gauge,
    in_time,
    plain,
    settings_of,
    told,
)


def test_a_gpu_that_computes_all_the_time_is_fully_used():
    gauges = tuple(gauge(NOW + 5 * n, 0.0, gpus=[busy_gpu(90.0 + n)]) for n in range(1, 9))
    given = answers(plain(CONVERGED, gauges=gauges))["gpus"]
    assert given.answer.startswith("Yes: 93.7 % of all its time went into the network and its update")
    assert "Busy: 94.5 % (91 % to 98 %)." in given.answer
    assert told(given, "some kernel ran on the GPU, however small (NVML): a sign of life only")
    assert told(given, "MFU: not measured")


def test_a_gpu_that_waits_is_not_fully_used_and_what_for_is_said():
    rows = in_time(ledger({**STEP, "data_wait": 0.5}, lines=20, steps=50))
    given = answers(account(rows, config=settings_of()))["gpus"]
    assert given.answer.startswith("No: 46.")
    assert told(given, "data_wait: 51.5 %") and told(given, "busy: not measured")


def test_a_clock_that_was_held_down_is_told():
    held = busy_gpu(99.0, throttle=["power"], clock_mhz=700, clock_max_mhz=1000)
    given = answers(plain(CONVERGED, gauges=tuple(gauge(NOW + 5 * n, 0.0, gpus=[held]) for n in range(1, 9))))["gpus"]
    assert told(given, "held down by power: 100.0 % of the time") and told(given, "clock: 70.0 % of its highest")


def on_cpu() -> tuple[LedgerRow, ...]:
    return in_time(ledger({**STEP, "host": None}, lines=20, steps=50, device="cpu"))


def test_a_run_without_a_gpu_tells_of_its_cores():
    given = answers(account(on_cpu(), config=settings_of(), gauges=(gauge(NOW + 50, 0.0),)))["gpus"]
    assert given.answer.startswith("There was no GPU in it: the network was computed on the CPU, and its cores were")
    assert "80.0 % (80 % to 80 %)" in given.answer
    assert told(given, "of which others: 20.0 %") and not told(given, "host")
    bare = answers(account(on_cpu(), config=settings_of()))["gpus"]
    assert "no gauge tells how busy it was" in bare.answer and told(bare, "CPU busy: not measured")


def test_one_process_has_no_network_in_it():
    assert answers(plain(CONVERGED))["network"].answer == "No: there was no network in it: one process."


def test_a_slow_link_is_the_bottleneck():
    given = answers(account(*over_a_slow_link(), config=settings_of()))["network"]
    assert given.answer.startswith("Yes: 96.6 % of all time went into exchanging gradients among 2 processes")
    assert told(given, "each process sends 97.8 MiB of gradients a step") and told(given, "2 processes on 2 machines")
    assert told(given, "process 1 on h2: of a step of 9.4 s, comm 9.1 s")


def test_a_slow_process_is_not_called_a_slow_network():
    given = answers(account(*with_a_slow_one(), config=settings_of()))["network"]
    assert given.answer.startswith("No, but slow processes were: ")
    assert told(given, "process 2 is the slow one: the others wait 500 ms in a step")


def test_an_exchange_that_was_not_measured_can_t_be_told():
    rows = [in_time(ledger({**STEP, "comm": None}, lines=20, world=2, rank=rank)) for rank in range(2)]
    given = answers(account(*rows, config=settings_of()))["network"]
    assert not given.is_known and "how long gradients travelled is not measured" in given.answer
