import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stoker import api, cli
from stoker.bench import parts, step
from stoker.bench.ground import Ground, Load, Over, refused_memory
from stoker.bench.spread import Spread, spread
from stoker.errors import Problem
from stoker.records import MetricRow, read_lines
from stoker.train.setbacks import Setback

LOAD = Load(model="timm/test_resnet", resolution=32, batch=4, device="cpu")
WORDS = ["bench", "step", "--model", "timm/test_resnet", "--resolution", "32", "--batch", "4", "--device", "cpu"]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with Ground(LOAD, tmp_path / "run", most_steps=120).opened() as opened:
        yield opened


def test_both_loops_are_timed_in_turn_and_the_answer_has_this_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*WORDS, "--rounds", "2", "--steps", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {
        "model", "device", "amp", "resolution", "batch", "steps", "ours_seconds", "peer_seconds", "ratio",
        "overhead_seconds", "shares", "parts",
    }  # fmt: skip
    assert (found["model"], found["device"], found["steps"]) == ("timm/test_resnet", "cpu", 3)
    assert found["ratio"].keys() == {"middle", "least", "most", "count"} and found["ratio"]["count"] == 2
    assert 0 < found["ratio"]["least"] <= found["ratio"]["middle"] <= found["ratio"]["most"]
    assert found["shares"].keys() == {"logging", "other", "checkpoint"}
    assert found["shares"]["checkpoint"] == 0 and 0 < sum(found["shares"].values()) < 1
    assert {part["name"] for part in found["parts"]} > {"ledger", "scores", "screen", "a line"}


def test_people_get_a_table_with_the_overhead_in_percent_and_microseconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*WORDS, "--rounds", "1", "--steps", "1"]) == 0
    out = capsys.readouterr().out
    assert "timm/test_resnet on cpu, 4 x 32 pixels in memory, amp off; 1 step a round" in out
    assert "more a step" in out and " us" in out and "batch-norm statistics kept" in out
    assert "% of a step by hand" in out


def test_the_loop_takes_the_steps_of_a_round_and_nothing_else_happens_in_it(ground: Ground) -> None:
    ground.seconds(3)
    ground.seconds(50)
    assert ground.state.at.step == 53
    run = ground.site.run
    # A line every fifty steps, as in any run; no evaluation, no checkpoint, no end of an epoch.
    assert [(row.kind, row.step) for row in read_lines(run.metrics, MetricRow)] == [("train", 50)]
    assert not list(run.checkpoints.iterdir()) and ground.saves.saved_step is None
    assert ground.ledger["compute"] and ground.ledger["optimizer"] and not ground.ledger.get("eval")


def test_the_loop_by_hand_does_the_same_to_the_weights(ground: Ground) -> None:
    plain = step.Plain(ground)
    before = [p.detach().clone() for p in plain.network.parameters()]
    plain.seconds(6)
    ground.seconds(6)
    theirs, ours = plain.network.state_dict(), ground.state.network.state_dict()
    assert any(not torch.equal(a, b) for a, b in zip(before, plain.network.parameters(), strict=True))
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, msg=lambda text, name=name: f"{name}: {text}")


class Clocked:
    """A loop whose steps take as long as was said beforehand."""

    def __init__(self, name: str, times: list[float], log: list[str]) -> None:
        self.name, self.times, self.log = name, times, log

    def seconds(self, steps: int) -> float:
        self.log.append(f"{self.name} {steps}")
        return self.times.pop(0)


def test_each_is_first_in_every_other_round() -> None:
    log: list[str] = []
    ours, peer = Clocked("ours", [2.0, 4.0, 6.0], log), Clocked("peer", [1.0, 2.0, 3.0], log)
    pairs = step.taken(ours, peer, rounds=3, steps=7, show=False)  # type: ignore[arg-type]
    assert pairs == [(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]
    assert log == ["ours 7", "peer 7", "peer 7", "ours 7", "ours 7", "peer 7"]


def test_a_spread_is_the_median_with_its_ends() -> None:
    assert spread([5.0, 1.0, 2.0]) == Spread(middle=2.0, least=1.0, most=5.0, count=3)


def test_parts_are_sorted_by_what_they_cost_a_step(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CALLS", 2)
    ground.seconds(1)
    found = parts.measured(ground)
    costs = [part.calls * part.seconds.middle for part in found]
    assert costs == sorted(costs, reverse=True) and all(part.seconds.count == parts.ROUNDS for part in found)
    assert {part.name: part.calls for part in found}["a line"] == 1 / 50


def test_what_does_not_fit_into_memory_and_impossible_numbers_are_refused(ground: Ground) -> None:
    for error in (torch.OutOfMemoryError("no"), Setback(memory=torch.OutOfMemoryError("no"))):
        with pytest.raises(Problem, match="out of memory with 4 samples of 32 pixels"), refused_memory(ground.config):
            raise error
    with pytest.raises(Over), refused_memory(ground.config):
        raise Over
    with pytest.raises(Problem, match="rounds is 0"):
        api.bench_step(rounds=0)
    with pytest.raises(Problem, match="steps is -1"):
        api.bench_step(steps=-1)


def test_a_flag_of_another_benchmark_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "step", "--workers", "2"]) == 2
    said = capsys.readouterr().err
    assert "bench step has no use for --workers" in said
    assert "--rounds, --resolution, --model, --batch, --steps, --device, --amp" in said
    assert cli.main(["bench", "loader", "--amp", "bf16"]) == 2
    assert "bench loader has no use for --amp" in capsys.readouterr().err
