"""The model of a step comes out at the step that was measured."""

import dataclasses
import random

import pytest

from stoker.machine import calibration, predict
from stoker.machine.calibration import Model
from stoker.machine.evidence import Evidence
from tests.machine.made_up import evidence, ledger, over_a_slow_link, starved, with_a_slow_one

TWO_CORES = {"cores": {"allotted": 2}}


def fitted(found: Evidence) -> Model:
    """The model of a run that has one."""
    model = calibration.model(found)
    assert model is not None
    return model


def modelled(model: Model) -> float:
    """A step, as the model has it."""
    return predict.step(model.costs, model.job).seconds


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("seed", range(40))
def test_any_ledger_is_explained_to_the_last_millisecond(device: str, seed: int) -> None:
    draw = random.Random(seed)
    step = {b: draw.choice([0.0, draw.random()]) for b in ("data_wait", "transfer", "optimizer", "other", "logging")}
    step |= {"compute": draw.random(), "host": None if device == "cpu" else draw.random()}
    world = draw.choice([1, 2, 3])
    if world > 1:
        step |= {"comm": draw.random(), "peer_wait": draw.choice([0.0, draw.random()])}
    more = {"read": draw.choice([0.0, draw.random()]), "decode": 3 * draw.random(), "threads": draw.choice([1, 2, 8])}
    rows = [
        ledger(step, rank=rank, world=world, device=device, host="h1", sent_bytes=draw.choice([0, 10**6]), **more)
        for rank in range(world)
    ]
    model = fitted(evidence(*rows, profile=draw.choice([TWO_CORES, {"cores": {"allotted": 8}}, {}])))
    measured = sum(value or 0.0 for bucket, value in step.items() if bucket != "peer_wait")
    assert modelled(model) == pytest.approx(measured, rel=1e-3)
    assert all(value >= 0 for value in dataclasses.astuple(model.costs) if not isinstance(value, str))


def test_no_steps_give_no_model() -> None:
    assert calibration.model(evidence()) is None


def test_a_run_is_taken_apart_into_what_it_costs() -> None:
    model = fitted(evidence(starved(), batch=64))
    assert model.costs.sample_seconds == pytest.approx(0.15 / 64)
    assert model.costs.transfer_sample_seconds == pytest.approx(0.01 / 64)
    assert model.costs.optimizer_seconds == pytest.approx(0.01)
    # The threads were busy for as long as a step lasts, of which 0.01 s are not theirs to explain.
    assert 64 * (model.costs.decode_sample_seconds + model.costs.read_sample_seconds) == pytest.approx(4 * 0.47)
    assert (model.job.batch, model.job.threads, model.job.cores, model.job.world) == (64, 4, 8, 1)


def test_input_that_is_ready_in_time_costs_nothing() -> None:
    model = fitted(evidence(ledger({"compute": 0.5, "data_wait": 0.001}, decode=1.0)))
    assert predict.step(model.costs, model.job).exposed_input_seconds == 0.0
    # Whatever the threads say of themselves, a network that does not wait has its samples in time.
    slow = fitted(evidence(ledger({"compute": 0.5, "data_wait": 0.001}, decode=8.0)))
    assert slow.costs.sample_seconds == pytest.approx(0.5 / 64)


def test_an_exchange_becomes_a_link() -> None:
    model = fitted(evidence(*over_a_slow_link()))
    assert model.job.link is not None
    assert model.job.link.bytes_per_second == pytest.approx(102.5e6 / 9.1)
    assert model.job.sent_bytes == model.costs.gradient_bytes == 102_500_000
    narrow = fitted(evidence(*over_a_slow_link(), compress="bf16"))
    assert narrow.costs.gradient_bytes == 205_000_000


def test_an_exchange_beside_the_backward_pass_lasted_longer_than_what_is_seen_of_it() -> None:
    step = {"compute": 0.3, "comm": 0.1, "peer_wait": 0.0, "host": 0.0}
    rows = [ledger(step, rank=rank, world=2, sent_bytes=10**8) for rank in range(2)]
    model = fitted(evidence(*rows))
    assert model.job.is_overlapped
    assert predict.step(model.costs, model.job).comm_seconds == pytest.approx(0.1 + 0.2)
    assert not fitted(evidence(*rows, exact=True)).job.is_overlapped


def test_processes_of_one_machine_share_its_cores() -> None:
    rows = [ledger({"compute": 0.3}, rank=rank, world=4, host="ab"[rank // 2]) for rank in range(4)]
    assert fitted(evidence(*rows)).job.local_world == 2


def test_the_slow_process_is_left_out_of_the_model_of_the_others() -> None:
    model = fitted(evidence(*with_a_slow_one()))
    assert model.straggler is not None and model.straggler.rank == 2
    assert modelled(model) == pytest.approx(0.57)


def test_a_straggler_whose_ledger_shows_nothing_is_named_without_a_guess() -> None:
    step = {"compute": 0.5, "comm": 0.05, "host": 0.0}
    rows = [ledger({**step, "peer_wait": 0.4 * (rank == 0)}, rank=rank, world=2) for rank in range(2)]
    slow = fitted(evidence(*rows)).straggler
    assert slow is not None
    assert (slow.rank, slow.bucket, slow.times) == (1, None, None)


def test_decoding_that_crowds_the_network_is_told_from_computing() -> None:
    step = {"data_wait": 0.0, "compute": 1.0, "host": None}
    model = fitted(evidence(ledger(step, device="cpu", threads=1, decode=0.3), profile=TWO_CORES))
    free = predict.without(model.costs, model.job)["decode"]
    # Three threads on two cores: decoding took 0.2 s of a core, for which the network waited 1.45 times as long.
    assert free == pytest.approx(1.0 - 1.45 * 0.2)


def test_a_disk_that_is_waited_for_takes_no_cores_from_the_network() -> None:
    step = {"data_wait": 1.5, "compute": 0.5, "host": None}
    rows = ledger(step, device="cpu", threads=1, read=1.95, decode=0.05)
    model = fitted(evidence(rows, profile=TWO_CORES))
    twice = dataclasses.replace(model.job, threads=2)
    assert predict.step(model.costs, twice).seconds == pytest.approx(1.0, rel=0.05), "two read at the same time"


def test_decode_threads_that_never_rest_share_the_cores_with_the_network() -> None:
    # The network alone needs two cores for 1 s, decoding one core for 2 s. One thread beside the network: about 2.6 s.
    step = {"data_wait": 0.9, "compute": 1.67, "host": None}
    rows = ledger(step, device="cpu", threads=1, decode=2.57)
    model = fitted(evidence(rows, profile=TWO_CORES))
    with_two = predict.step(model.costs, dataclasses.replace(model.job, threads=2)).seconds
    # Four seconds of work on two cores can't take less than two seconds.
    assert 1.9 < with_two < 2.3
    assert predict.without(model.costs, model.job)["decode"] == pytest.approx(1.67 / 1.5, rel=0.01)
