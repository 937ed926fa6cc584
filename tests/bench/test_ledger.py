import json

import pytest

from stoker import api, cli
from stoker.bench import ledger
from stoker.errors import Problem

WORDS = ["bench", "ledger", "--model", "timm/test_resnet", "--resolution", "32", "--batch", "4", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "ROUND_SECONDS", 0.05)


def test_steps_with_and_without_are_set_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*WORDS, "--rounds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {
        "model", "device", "amp", "resolution", "batch", "steps", "with_seconds", "without_seconds", "ratio",
    }  # fmt: skip
    assert (found["model"], found["device"], found["resolution"], found["batch"]) == ("timm/test_resnet", "cpu", 32, 4)
    for name in ("with_seconds", "without_seconds", "ratio"):
        assert found[name].keys() == {"middle", "least", "most", "count"} and found[name]["count"] == 2
        assert 0 < found[name]["least"] <= found[name]["middle"] <= found[name]["most"]


def test_people_get_the_cost_in_percent(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*WORDS, "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert "timm/test_resnet on cpu, 4 x 32 pixels in memory, amp off" in out
    assert "with ledger and gauges" in out and "ledger and gauges cost " in out and "% of a step" in out


def test_without_is_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds without must not switch the run's own clock, and those with must."""
    switched: list[bool] = []
    seconds = ledger.Ground.seconds

    def noted(self: ledger.Ground, steps: int) -> float:
        clock = self.site.clock
        before = dict(clock.totals) if isinstance(clock, ledger.Ledger) else None
        taken = seconds(self, steps)
        after = dict(clock.totals) if isinstance(clock, ledger.Ledger) else None
        switched.append(before != after)
        return taken

    monkeypatch.setattr(ledger.Ground, "seconds", noted)
    api.bench_ledger("timm/test_resnet", resolution=32, batch=4, rounds=2, device="cpu", show=False)
    assert switched[-4:] == [False, True, True, False], "another one first each time"


def test_no_rounds_are_refused() -> None:
    with pytest.raises(Problem, match="rounds is 0"):
        api.bench_ledger(rounds=0)
