import dataclasses

import pytest

from stoker.machine import predict
from stoker.machine.links import Link
from stoker.machine.predict import BACKWARD_SHARE, CROWDING, Interval
from tests.machine.costs import costs, job

LINK = Link(latency_seconds=0.01, bytes_per_second=1e9)


def seconds(changed: dict, **how: object) -> float:
    return predict.step(costs(**changed), job(**how)).seconds


def test_a_step_on_a_gpu_is_its_parts_one_after_the_other():
    parts = {"atom_seconds": 0.02, "transfer_sample_seconds": 1e-4, "optimizer_seconds": 0.03, "host_seconds": 0.005}
    assert seconds(parts) == pytest.approx(0.02 + 0.1 + 0.01 + 0.03 + 0.005)


def test_a_gpu_is_never_done_before_its_work_has_come():
    assert seconds({"launch_seconds": 0.09}) == pytest.approx(0.1)
    late = predict.step(costs(launch_seconds=0.16, optimizer_seconds=0.02, host_seconds=0.01), job())
    assert (late.seconds, late.host_seconds) == (pytest.approx(0.17), pytest.approx(0.05))
    assert late.compute_seconds == pytest.approx(0.1)
    assert seconds({"launch_seconds": 0.16}, atoms=2) == pytest.approx(0.32), "each atom has work of its own"
    assert predict.without(costs(launch_seconds=0.16), job())["launches"] == pytest.approx(0.1)


def test_a_gpu_that_waited_for_its_work_takes_less_for_each_sample_and_no_less_for_a_smaller_batch():
    parts = {"atom_seconds": 0.02, "sample_seconds": 0.0008, "transfer_sample_seconds": 1e-4, "optimizer_seconds": 0.01}
    found = predict.told_apart(costs(**parts), 100, pure_seconds=0.06, launch_seconds=0.11)
    assert predict.step(found, job()).seconds == pytest.approx(0.12), "as it was measured"
    assert predict.step(found, job(batch=50)).seconds == pytest.approx(0.12)
    assert found.sample_seconds == pytest.approx(0.0004) and found.atom_seconds == pytest.approx(0.01)
    busy = predict.told_apart(costs(**parts), 100, pure_seconds=0.12, launch_seconds=0.08)
    assert busy == costs(**parts, launch_seconds=0.08)
    assert predict.step(busy, job(batch=50)).seconds == pytest.approx(0.08)
    both = predict.told_apart(costs(**parts), 100, pure_seconds=0.119, launch_seconds=0.1)
    assert both.launch_seconds == pytest.approx(0.1), "its work came in time"


def test_what_a_step_takes_longer_is_put_where_it_belongs():
    """Of a step that takes 0.11 s longer than its parts say."""
    for given, name, seconds_there in (
        ({"decode_sample_seconds": 0.008}, "decode_sample_seconds", 0.008 * 0.31 / 0.2),
        ({"launch_seconds": 0.02}, "host_seconds", 0.11),
        ({"launch_seconds": 0.09}, "launch_seconds", 0.21),
        ({"launch_seconds": 0.15}, "launch_seconds", 0.26),
        ({"device": "cpu"}, "atom_seconds", 0.11),
    ):
        before = costs(**given)
        took = predict.step(before, job()).seconds + 0.11
        found = predict.calibrated(before, job(), seconds=took)
        assert predict.step(found, job()).seconds == pytest.approx(took)
        assert getattr(found, name) == pytest.approx(seconds_there)
        assert dataclasses.replace(found, **{name: getattr(before, name)}) == before


def test_decoding_beside_a_gpu_costs_nothing_until_it_takes_longer():
    assert seconds({"decode_sample_seconds": 0.004}) == pytest.approx(0.1)
    assert seconds({"decode_sample_seconds": 0.008}) == pytest.approx(0.2)
    assert seconds({"decode_sample_seconds": 0.008}, threads=8) == pytest.approx(0.1)


def test_threads_without_cores_do_not_decode():
    assert seconds({"decode_sample_seconds": 0.008}, threads=8, cores=2) == pytest.approx(0.4)
    shared = {"world": 4, "local_world": 4, "atoms": 4, "batch": 400}
    assert seconds({"decode_sample_seconds": 0.008}, **shared) == pytest.approx(0.4)


def test_reading_and_decoding_are_done_by_the_same_threads():
    found = predict.step(costs(decode_sample_seconds=0.008, read_sample_seconds=0.004), job())
    assert found.input_seconds == pytest.approx(0.3)
    assert found.exposed_input_seconds == pytest.approx(0.2)


def test_on_a_cpu_that_is_all_taken_decoding_slows_the_network():
    cpu = {"device": "cpu", "decode_sample_seconds": 0.0005, "compute_threads": 2}
    assert seconds(cpu, compute_threads=2, threads=1, cores=2) == pytest.approx(0.1 + CROWDING * 0.05)
    assert seconds(cpu, compute_threads=2, threads=1, cores=3) == pytest.approx(0.1)


def test_fewer_compute_threads_take_longer_on_a_cpu_only():
    one = {"compute_threads": 1, "threads": 1}
    assert 0.18 < seconds({"device": "cpu", "compute_threads": 2}, **one) < 0.2
    assert seconds({"compute_threads": 2}, **one) == pytest.approx(0.1)


def test_several_processes_exchange_gradients():
    many = {"world": 4, "local_world": 4, "atoms": 4, "batch": 400, "link": LINK}
    found = predict.step(costs(gradient_bytes=100_000_000), job(**many))
    assert found.comm_seconds == found.exposed_comm_seconds == pytest.approx(0.01 + 1.5 * 0.1)
    assert found.seconds == pytest.approx(0.1 + found.comm_seconds)
    fewer = predict.step(costs(gradient_bytes=100_000_000), job(**many, sent_bytes=50_000_000))
    assert fewer.comm_seconds == pytest.approx(0.01 + 1.5 * 0.05)


def test_an_exchange_hides_behind_the_last_backward_pass():
    many = {"world": 2, "local_world": 1, "batch": 200, "link": LINK, "is_overlapped": True}
    found = predict.step(costs(gradient_bytes=50_000_000), job(**many, atoms=2))
    assert found.exposed_comm_seconds == 0.0 and found.seconds == pytest.approx(0.1)
    found = predict.step(costs(gradient_bytes=500_000_000), job(**many, atoms=2))
    assert found.exposed_comm_seconds == pytest.approx(0.51 - BACKWARD_SHARE * 0.1)
    twice = predict.step(costs(gradient_bytes=500_000_000), job(**many, atoms=4))
    assert twice.exposed_comm_seconds == pytest.approx(0.51 - BACKWARD_SHARE * 0.05)


def test_fewer_processes_than_atoms_take_them_in_turn():
    assert seconds({"atom_seconds": 0.01}, atoms=4) == pytest.approx(0.14)
    assert seconds({"transfer_sample_seconds": 0.001}, atoms=4) == pytest.approx(0.2)
    assert seconds({"atom_seconds": 0.01}, atoms=4, world=3, local_world=3) == pytest.approx(0.07)


def test_each_resource_can_be_free():
    parts = {
        "decode_sample_seconds": 0.02, "read_sample_seconds": 0.01, "host_seconds": 0.005, "gradient_bytes": 10_000_000,
        "transfer_sample_seconds": 1e-4,
    }  # fmt: skip
    found = predict.without(costs(**parts), job(world=2, local_world=2, atoms=2, link=LINK))
    whole = seconds(parts, world=2, local_world=2, atoms=2, link=LINK)
    assert whole == pytest.approx(0.38)
    assert set(found) == {"decode", "disk", "compute", "copies", "launches", "network"}
    assert found["decode"] == pytest.approx(0.13) and found["disk"] == pytest.approx(0.255)
    assert found["launches"] == pytest.approx(0.375) and found["compute"] == found["network"] == whole
    assert "network" not in predict.without(costs(**parts), job())


def test_what_differs_from_the_probe_makes_a_prediction_less_sure():
    assert predict.unsure(costs()) == predict.SURE
    assert predict.unsure(costs(spread=0.2)) == 0.2
    assert predict.unsure(costs(), "batch", "link") == pytest.approx(
        predict.SURE + predict.UNSURE["batch"] + predict.UNSURE["link"]
    )


def test_an_interval_is_a_figure_with_its_bounds():
    found = predict.around(10.0, 0.25)
    assert (found.low, found.likely, found.high) == (8.0, 10.0, 12.5)
    assert found.holds(8.0) and found.holds(12.5) and not found.holds(12.6) and not found.holds(7.9)
    assert found.times(2) == Interval(low=16.0, likely=20.0, high=25.0)
    assert found.plus(found) == found.times(2)
