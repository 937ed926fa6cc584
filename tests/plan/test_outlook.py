"""A probe of this machine says what a run takes here and elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from stoker import api, plans, settings
from stoker.data.order import Route
from stoker.errors import Problem
from stoker.machine.links import Link
from stoker.machine.predict import Costs
from stoker.plan import outlook
from stoker.plan.probe import Probe
from stoker.plan.prospect import Ask, Here, Prospect

COSTS = Costs(
    device="cuda", atom_seconds=0.01, sample_seconds=0.001, compute_threads=1, optimizer_seconds=0.002,
    transfer_sample_seconds=1e-6, decode_sample_seconds=0.002, read_sample_seconds=0.0, host_seconds=0.0,
    gradient_bytes=100_000_000,
)  # fmt: skip
PROBE = Probe(
    costs=(COSTS,), atom=(64,), threads=15, world=1, nodes=1, steps=30, seconds=3.0, eval_sample_seconds=0.0003,
    save_seconds=0.02, memory_bytes=4 * 10**9, flops_per_sample=1.2e10, layers=100, sent_bytes=100_000_000, link=None,
)  # fmt: skip
HERE = Here(device="cuda", gpu="NVIDIA H200", cores=16, gpu_memory_bytes=140 * 10**9, setup_seconds=10.0)


def prospect(**values: object) -> Prospect:
    config = api.configured(**{"model": "resnet50", "batch": 64, "epochs": 5, "resolution": 224, **values})
    config = settings.with_values(config, {"atoms": 1, "compute_threads": 1})
    route = Route(count=64 * 100, stages=config.stages, atoms=1, last_step="drop")
    return Prospect(config=config, route=route, held_out=1000, data="photos", probe=PROBE, here=HERE)


def test_this_machine_is_planned_from_its_own_probe() -> None:
    plan = outlook.planned(prospect(), Ask())
    one = plan.forecasts[0]
    assert (plan.steps, one.steps, one.processes) == (500, 500, 1)
    assert one.step.likely == pytest.approx(0.01 + 64 * 0.001001 + 0.002, rel=0.01)
    evaluation = 5 * 1000 * 0.0003
    assert one.total.likely == pytest.approx(500 * one.step.likely + evaluation + 5 * 0.02 + 10, rel=0.02)
    assert one.limit == "compute"
    assert one.fits is True
    assert one.on_demand_dollars is None, "nobody knows what this machine costs"


def test_two_nodes_over_a_slow_link_are_limited_by_the_network() -> None:
    ask = Ask(gpus=1, nodes=2, link_bytes_per_second=plans.rate("100mbit"))
    one = outlook.planned(prospect(), ask).forecasts[0]
    assert one.limit == "network"
    assert one.parts.comm_seconds == pytest.approx(100e6 / (12.5e6 * 0.95), rel=0.02)
    assert one.slowdown > 50
    fast = outlook.planned(prospect(), replace(ask, link_bytes_per_second=plans.rate("100gbit"))).forecasts[0]
    assert fast.total.likely < one.total.likely / 50


def test_an_unknown_link_between_nodes_is_said_to_be_unknown() -> None:
    one = outlook.planned(prospect(), Ask(gpus=1, nodes=2)).forecasts[0]
    assert one.parts.comm_seconds == 0.0
    assert any("is not known" in note for note in one.notes)


def test_what_a_probe_of_many_processes_measured_is_used() -> None:
    link = Link(latency_seconds=0.001, bytes_per_second=1e9)
    run = prospect()
    run = replace(run, probe=replace(run.probe, world=2, nodes=2, link=link))
    one = outlook.planned(run, Ask(gpus=1, nodes=2)).forecasts[0]
    assert one.parts.comm_seconds == pytest.approx(0.101)


def test_other_machines_have_dollars_and_wider_bounds() -> None:
    plan = outlook.planned(prospect(), Ask(machines=("this", "p4d.24xlarge"), gpus=1))
    here, there = plan.forecasts
    assert there.on_demand_dollars is not None and there.spot_dollars is not None
    assert there.total.high / there.total.low > here.total.high / here.total.low
    assert (plan.fastest, plan.cheapest) == ("this", "p4d.24xlarge")


def test_unknown_stays_unknown() -> None:
    plan = outlook.planned(prospect(), Ask(machines=("g5.xlarge",)))
    assert "A10G" in plan.unknown["g5.xlarge"]
    assert plan.forecasts == () and plan.fastest is None


def test_a_catalogue_of_ones_own_can_say_what_is_not_known(tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("gpu,tf32_tflops,date,source\nA10G,35,2026-01-01,measured by me\n")
    plan = outlook.planned(prospect(), Ask(machines=("g5.xlarge",), catalogue=own))
    assert [one.machine for one in plan.forecasts] == ["g5.xlarge"]


def test_a_machine_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(Problem) as caught:
        outlook.planned(prospect(), Ask(machines=("p4d.25xlarge",)))
    assert "p4d.24xlarge" in caught.value.fix


def test_a_target_is_answered_for_each_machine() -> None:
    plan = outlook.planned(prospect(), Ask(target_seconds=1.0))
    assert plan.meets == {"this": "no"}
    assert outlook.planned(prospect(), Ask(target_seconds=3600.0)).meets == {"this": "surely"}


def test_without_a_gpu_here_a_layer_takes_its_launch_elsewhere() -> None:
    run = prospect()
    costs = replace(COSTS, device="cpu", decode_sample_seconds=0.0001)
    tiny = replace(run.probe, costs=(costs,), memory_bytes=None, flops_per_sample=1e6)
    run = replace(run, probe=tiny, here=replace(HERE, device="cpu", gpu=None, gpu_memory_bytes=None))
    one = outlook.planned(run, Ask(machines=("p5.4xlarge",))).forecasts[0]
    assert one.parts.seconds == pytest.approx(100 * 90e-6, rel=0.01)
    assert one.limit == "launches"


@pytest.mark.parametrize(("text", "rate"), [("100mbit", 12.5e6), ("1 gbit/s", 125e6), ("10Gbit", 1.25e9), ("", None)])
def test_a_link_is_understood(text: str, rate: float | None) -> None:
    assert plans.rate(text) == rate


@pytest.mark.parametrize(
    ("text", "found"),
    [("8h", (28800.0, None)), ("90min", (5400.0, None)), ("$20", (None, 20.0)), ("5usd", (None, 5.0))],
)
def test_a_target_is_understood(text: str, found: tuple[float | None, float | None]) -> None:
    assert plans.target(text) == found


@pytest.mark.parametrize("text", ["fast", "100", "-1h"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(Problem):
        plans.target(text)
    with pytest.raises(Problem):
        plans.rate(text)
