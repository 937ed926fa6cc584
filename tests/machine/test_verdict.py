"""What the evidence says, in words and figures."""

import dataclasses
import json
from typing import Any

import pytest

from stoker.machine import verdict
from stoker.machine.evidence import Evidence
from stoker.machine.verdict import MEANING, Verdict
from stoker.records import BUCKETS, GaugeRow
from tests.machine.made_up import EIGHT_CORES, evidence, ledger, over_a_slow_link, starved, with_a_slow_one

BUSY = {"data_wait": 0.0, "transfer": 0.01, "compute": 0.4, "optimizer": 0.02, "host": 0.0}
H200 = {"fp32": 5e13, "tf32": 4e14, "fp16": 8e14, "bf16": 8e14}


def gpu(step: dict[str, float | None], *, flops: float | None = None, **values: Any) -> Evidence:
    """A run on one GPU whose ceilings were measured."""
    profile = {**EIGHT_CORES, "measured": {"gpus": [{"matmul_flops": H200}]}}
    return evidence(ledger(step, decode=0.04), profile=profile, plan={"flops_per_sample": flops}, **values)


def test_every_bucket_has_a_meaning() -> None:
    assert set(MEANING) == set(BUCKETS)


def test_a_gpu_that_waits_for_decode_threads_is_bound_by_cpu_decode() -> None:
    found = verdict.judge(evidence(starved()))
    assert found.limit == "CPU decode"
    # Without decoding, a step has its 0.17 s of GPU work and the 0.01 s between the parts.
    assert found.step_gain == pytest.approx(0.48 / 0.18, rel=0.01)
    # The second of its setup is left out.
    assert found.gain == pytest.approx(28.8 / (28.8 - 60 * 0.3), rel=0.01)
    assert found.sentence == "Bound by CPU decode: 62% of the time. Without it the run would be 2.7 times as fast."
    assert found.useful_share == pytest.approx(60 * 0.16 / 29.8)
    assert [share.bucket for share in found.shares][:3] == ["data_wait", "compute", "setup"]
    assert found.remedies[0].command.endswith("--threads 7")


def test_threads_that_mostly_read_make_it_the_disk() -> None:
    assert verdict.judge(evidence(starved(read=1.7, decode=0.18))).limit == "disk"


def test_a_slow_link_is_the_network_with_its_gain() -> None:
    found = verdict.judge(evidence(*over_a_slow_link()))
    assert (found.limit, found.straggler) == ("network", None)
    assert found.step_gain == pytest.approx(9.4 / 0.3, rel=0.01)


def test_a_slow_process_is_named_with_its_host_and_what_it_does() -> None:
    found = verdict.judge(evidence(*with_a_slow_one()))
    assert found.limit == "stragglers"
    assert found.step_gain == pytest.approx(1.07 / 0.57)
    slow = found.straggler
    assert slow is not None
    assert (slow.rank, slow.host, slow.bucket, slow.times) == (2, "h3", "compute", 2.0)
    assert slow.extra_seconds == pytest.approx(0.5)


def test_processes_that_wait_for_each_other_in_turn_have_no_straggler() -> None:
    step = {"compute": 0.5, "comm": 0.05, "peer_wait": 0.3, "host": 0.0}
    found = verdict.judge(evidence(*(ledger(step, rank=r, world=2, host=f"h{r}", sent_bytes=8) for r in range(2))))
    assert (found.limit, found.straggler) == ("stragglers", None)


def test_a_gpu_whose_work_comes_late_is_bound_by_launches() -> None:
    found = verdict.judge(gpu({**BUSY, "compute": 0.2, "host": 0.2}))
    assert found.limit == "launch overhead"
    assert found.step_gain == pytest.approx(0.43 / 0.23)


@pytest.mark.parametrize(
    ("share", "limit"), [(0.9, "arithmetic"), (0.45, "arithmetic"), (0.3, "arithmetic"), (0.1, "memory bandwidth")]
)
def test_arithmetic_and_memory_are_told_apart_by_the_share_of_the_ceiling(share: float, limit: str) -> None:
    flops = share * H200["bf16"] * 0.4 / 64
    found = verdict.judge(gpu(BUSY, flops=flops, amp="bf16"))
    assert found.limit == limit
    assert found.mfu == pytest.approx(share * 0.4 / 0.43)
    assert any("not told apart" in what for what in found.missing) == (share == 0.3)


def test_without_a_profile_arithmetic_and_memory_are_not_told_apart() -> None:
    found = verdict.judge(evidence(ledger(BUSY, decode=0.4)))
    assert (found.limit, found.mfu) == ("arithmetic", None)
    assert any("not told apart because the GPU's ceiling (run: stoker doctor)" in what for what in found.missing)
    assert any("FLOPs" in what for what in found.missing) and any("gauges" in what for what in found.missing)


def test_a_large_network_on_a_cpu_is_bound_by_arithmetic() -> None:
    step = {"data_wait": 0.01, "compute": 0.9, "optimizer": 0.05, "host": None}
    found = verdict.judge(
        evidence(ledger(step, device="cpu", decode=0.02, threads=1), profile={"cores": {"allotted": 2}})
    )
    assert found.limit == "arithmetic"
    assert found.not_measured == ("host",)
    assert found.mfu is None


@pytest.mark.parametrize(
    ("bucket", "limit"), [("checkpoint", "checkpoints"), ("eval", "evaluation"), ("transfer", "copies")]
)
def test_a_bucket_that_takes_half_of_the_time_is_the_limit(bucket: str, limit: str) -> None:
    found = verdict.judge(gpu({**BUSY, bucket: 0.4}))
    assert found.limit == limit
    assert (found.step_gain is None) == (limit != "copies"), "checkpoints and evaluations are no part of a step"
    assert found.gain == pytest.approx(1.9, rel=0.1)


def test_a_long_setup_does_not_hide_what_limits_the_steps() -> None:
    short, long = (verdict.judge(evidence(ledger(BUSY, setup=seconds), status="done")) for seconds in (1.0, 600.0))
    assert short.limit == long.limit == "arithmetic"
    assert short.sentence == long.sentence


def test_work_that_was_lost_is_the_limit_when_it_is_most() -> None:
    found = verdict.judge(evidence(ledger(BUSY, lost=60.0)))
    assert found.limit == "interruptions"
    assert "--checkpoint-steps" in found.sentence


def test_what_takes_less_than_a_fifth_is_no_limit_beside_arithmetic() -> None:
    assert verdict.judge(gpu({**BUSY, "checkpoint": 0.08})).limit == "arithmetic"
    assert verdict.judge(gpu({**BUSY, "checkpoint": 0.15})).limit == "checkpoints"


def test_nothing_is_called_a_bottleneck_where_everything_is_small() -> None:
    found = verdict.judge(gpu({"compute": 0.01, "logging": 0.5, "host": 0.0}))
    assert found.limit is None
    assert "Nothing takes 5%" in found.sentence


@pytest.mark.parametrize("rows", [(), (ledger(BUSY, lines=1, steps=5),)])
def test_there_is_no_verdict_without_evidence(rows: tuple[Any, ...]) -> None:
    found = verdict.judge(evidence(*rows))
    assert (found.limit, found.gain, found.remedies, found.amp) == (None, None, (), None)
    assert "20 are needed" in found.sentence
    assert found.missing


def test_a_slow_start_does_not_colour_the_verdict() -> None:
    found = verdict.judge(gpu(BUSY))
    warm = verdict.judge(evidence(ledger(BUSY, decode=0.4, warm_up=30.0)))
    assert warm.step_seconds == pytest.approx(found.step_seconds)


def test_a_starved_gpu_is_told_that_mixed_precision_gains_nothing() -> None:
    amp = verdict.judge(evidence(starved())).amp
    assert amp is not None
    assert "even if forward and backward were free, the run would be 1.00 times as fast" in amp


def test_mixed_precision_gains_at_most_what_arithmetic_takes() -> None:
    found = verdict.judge(gpu(BUSY))
    assert found.amp is not None
    # 24 of 26.8 s are forward and backward.
    assert "forward and backward are 90% of 27 s" in found.amp
    assert f"would be {26.8 / 2.8:.2f} times as fast" in found.amp
    # The GPU multiplies bf16 twice as fast as TF32; half of the way is a factor of 1.41.
    assert f"With bf16, likely {26.8 / (26.8 - 24 * (1 - 0.5**0.5)):.2f} times (1.00 times to" in found.amp
    assert "by the GPU's measured ceilings" in found.amp
    tried = dataclasses.replace(gpu(BUSY), plan={"tried": {"amp bf16": 1.9}})
    assert "as tried before the run" in (verdict.judge(tried).amp or "")
    assert "(bf16) is on" in (verdict.judge(gpu(BUSY, amp="bf16")).amp or "")


def test_busy_is_the_mean_of_the_gauges_with_least_and_most() -> None:
    rows = tuple(
        GaugeRow(
            at=at, rank=0, host="h1", seconds=1.0, cpu_percent=None, process_cpu_percent=None, memory_used_bytes=None,
            memory_available_bytes=None, disk_read_bytes_per_second=None, disk_write_bytes_per_second=None,
            process_read_bytes_per_second=None, network=None, iowait_percent=None,
            gpus=[{"busy_percent": busy, "power_w": None, "power_limit_w": None, "clock_mhz": None,
                   "clock_max_mhz": None, "throttle": None}],
        )
        for at, busy in ((1.0, 0), (103.0, 60), (104.0, 100))
    )  # fmt: skip
    busy = verdict.judge(dataclasses.replace(gpu(BUSY), gauges=rows)).busy_percent
    assert busy is not None
    assert (busy.mean, busy.least, busy.most) == (80, 60, 100), "what was before the steps does not count"


def test_a_verdict_is_plain_json() -> None:
    found = verdict.judge(evidence(*with_a_slow_one()))
    values = json.loads(json.dumps(dataclasses.asdict(found)))
    assert values["version"] == 2
    assert values.keys() == {item.name for item in dataclasses.fields(Verdict)}
    assert values["remedies"][0].keys() == {
        "what", "why", "command", "gain", "low", "high", "is_lossy", "needs_new_run",
    }  # fmt: skip
    assert set(values["definitions"]) == {"useful_share", "busy_percent", "mfu"}
