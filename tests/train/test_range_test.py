"""The learning-rate range test: what it tries, what it suggests, and what it leaves behind."""

import dataclasses
import importlib.metadata
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker import api, cli, records
from stoker.config import Config, ImageConfig, TuneConfig
from stoker.errors import Problem
from stoker.records import MetricRow
from stoker.train import curve, range_test, step
from stoker.train.range_test import STEPS, Log, RangeTest
from tests.flags import flags

RATES = range_test.rising(1e-5, 1e-1)
# A loss that stays, falls around step 120, and explodes in the end.
FALL = [2.3 - 1.5 / (1 + math.exp(-(n - 120) / 8)) + math.exp((n - 195) / 2) for n in range(STEPS)]


@pytest.fixture(scope="module")
def data(dial_folder: Path, quick: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run with everything that chance decides."""
    return {**quick, "data": str(dial_folder), "mixup": 0.2, "label_smoothing": 0.1, "erase": 0.2, "seed": 3}


@pytest.fixture(scope="module")
def found(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RangeTest:
    """A whole test, of fewer steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_test, "STEPS", 40)
        return api.lr_find(picture=tmp_path_factory.mktemp("found") / "curve.png", show=False, **data)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps, where it does not matter what they say."""
    monkeypatch.setattr(range_test, "STEPS", 4)


def noisy(losses: list[float], *, size: float) -> list[float]:
    return (np.asarray(losses) + np.random.default_rng(0).normal(0, size, len(losses))).tolist()


def test_rates_rise_by_the_same_factor_from_the_lowest_to_the_highest() -> None:
    assert len(RATES) == STEPS
    assert RATES[0] == 1e-5 and RATES[-1] == pytest.approx(1e-1)
    assert np.ptp(np.diff(np.log(RATES))) < 1e-12


def test_smoothing_does_not_move_a_fall_to_higher_rates() -> None:
    means = range_test.smoothed(noisy(FALL, size=0.05))
    middle = next(n for n, mean in enumerate(means) if n > 50 and mean < 2.3 - 0.75)
    assert abs(middle - 120) <= 4


def test_the_last_mean_is_the_exponential_mean_of_the_losses_so_far() -> None:
    losses, beta, mean = noisy(FALL, size=0.1), range_test.BETA, 0.0
    for loss in losses:
        mean = beta * mean + (1 - beta) * loss
    assert range_test.smoothed(losses)[-1] == pytest.approx(mean / (1 - beta**STEPS))


def test_the_steepest_fall_and_the_valley_are_found() -> None:
    means = range_test.smoothed(noisy(FALL, size=0.02))
    assert RATES[110] < (range_test.steepest(RATES, means) or 0) < RATES[130]
    # Without noise the loss falls from the first step on; the valley is the middle of that, as in fastai's code.
    fall = FALL[: 150 + range_test.LAST]
    end = min(range(range_test.FIRST, 150), key=lambda n: fall[n])
    third = (end + 1 - range_test.FIRST) / 3
    assert range_test.valley(RATES, fall) == RATES[range_test.FIRST + int(third) + int(third / 2)]


def test_a_bump_does_not_end_a_valley() -> None:
    losses = [3 - n / 100 for n in range(STEPS)]
    losses[100] += 0.5
    assert RATES[95] < (range_test.valley(RATES, losses) or 0) < RATES[120]


def test_a_loss_that_never_falls_suggests_nothing() -> None:
    rising = [1 + n / 100 for n in range(STEPS)]
    assert range_test.steepest(RATES, rising) is None and range_test.valley(RATES, rising) is None
    for losses in (rising, noisy([2.3] * STEPS, size=0.1), [2.3] * STEPS, [], [2.3], FALL[:12]):
        assert not range_test.has_fallen(losses, range_test.smoothed(losses))
    assert range_test.has_fallen(FALL, range_test.smoothed(FALL))
    assert range_test.has_fallen(noisy(FALL, size=0.2), range_test.smoothed(noisy(FALL, size=0.2)))


def test_rates_are_suggested_only_where_there_is_a_fall_to_go_by() -> None:
    config = Config(image=ImageConfig(resolution=32))
    for losses, suggests in ((noisy(FALL, size=0.1), True), (noisy([2.3] * STEPS, size=0.1), False)):
        test = range_test.judged(config, Log(rates=RATES, losses=losses), rule=0.1, picture=Path("none.png"))
        assert (test.steepest is not None) == (test.valley is not None) == suggests
        assert test.caution == (None if suggests else range_test.NO_FALL)


def test_a_loss_that_is_not_finite_or_has_risen_far_ends_the_test() -> None:
    log = Log()
    assert range_test.noted(log, rate=0.1, loss=1.0) and range_test.noted(log, rate=0.2, loss=3.0)
    assert not range_test.noted(log, rate=0.3, loss=40.0) and "risen to 4 x its lowest at a rate of 0.3" in log.ended
    assert not range_test.noted(log, rate=0.4, loss=math.nan) and "not finite at a rate of 0.4" in log.ended
    assert log.losses == [1.0, 3.0, 40.0]


def test_the_first_step_is_that_of_the_run_and_rates_follow_the_rule(found: RangeTest, data: dict[str, Any]) -> None:
    run = api.train(name="run", show=False, **{**data, "log_steps": 1, "epochs": 1}).folder
    first = records.read_lines(run / "metrics.jsonl", MetricRow)[0]
    assert first.step == 1 and found.losses[0] == pytest.approx(first.scores["loss"])
    assert found.setting == found.rule == pytest.approx(0.1 * 16 / 256) and found.scale == 16 / 256
    assert found.rates[0] == pytest.approx(found.rule / 100)
    assert found.rates[-1] == pytest.approx(found.rule * 100) and found.ended == "all 40 steps are done"
    assert len(found.rates) == len(found.losses) == len(found.smoothed) == 40


def test_a_test_gives_the_same_losses_again_and_leaves_only_its_picture(
    found: RangeTest, data: dict[str, Any], short: None
) -> None:
    again = api.lr_find(show=False, **data)
    assert [path.name for path in Path().iterdir()] == ["lr-find.png"]
    assert again.losses[0] == found.losses[0] and len(again.losses) == 4


def test_the_picture_is_large_enough_to_read(found: RangeTest) -> None:
    with Image.open(found.picture) as picture:
        assert picture.format == "PNG" and picture.width >= 1500 and len(picture.convert("RGB").getcolors(10**6)) > 20


def test_marks_of_the_same_rate_share_a_name(found: RangeTest) -> None:
    chosen = dataclasses.replace(found, steepest=1.0, valley=0.1, setting=0.1, rule=0.001)
    assert [mark.name for mark in curve.marks(chosen)] == ["rule", "valley = setting", "steepest fall"]
    assert len(curve.marks(dataclasses.replace(chosen, steepest=None, valley=None))) == 2


def test_a_loss_that_explodes_does_not_flatten_the_curve(found: RangeTest) -> None:
    chosen = dataclasses.replace(found, losses=(2.0, 1.0, 900.0), smoothed=(2.0, 1.0, 300.0), rates=(0.1, 0.2, 0.3))
    low, high = curve.span(chosen, rows=2)
    assert 0 < low < 1 and 2 < high < 4


def test_the_command_prints_rates_for_256_samples(
    data: dict[str, Any], found: RangeTest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = dataclasses.replace(found, steepest=0.02, valley=0.01, caution=None)
    monkeypatch.setattr(api, "lr_find", lambda **_: value)
    assert cli.main(["train", "--lr-find", *flags(data)]) == 0
    told = capsys.readouterr().out
    assert "to try   --lr from 0.16 to 0.32, or for this batch alone --peak-lr from 0.01 to 0.02" in told
    lines = [line.split()[:5] for line in told.splitlines()]
    assert ["steepest", "0.02", "0.32", "3.20", "x"] in lines and ["rule", "0.00625", "0.1", "1.00", "x"] in lines
    assert "nothing was trained" in told


def test_a_curve_that_says_nothing_is_said_to(
    data: dict[str, Any], short: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "--lr-find", *flags(data)]) == 0
    told = capsys.readouterr().out
    assert range_test.NO_FALL in told and "steepest" not in told and "to try" not in told
    assert cli.main(["train", "--lr-find", *flags(data), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value.keys() == {
        "rates", "losses", "smoothed", "steepest", "valley", "setting", "rule", "batch", "optimizer", "scale", "ended",
        "is_interrupted", "caution", "picture",
    }  # fmt: skip
    assert value["steepest"] is None and len(value["losses"]) == 4 and value["picture"] == "lr-find.png"


def test_adamw_and_a_fixed_rate_are_scaled_by_their_own_rule(data: dict[str, Any], short: None) -> None:
    value = api.lr_find(show=False, **data, optimizer="adamw", peak_lr=0.5)
    assert value.setting == 0.5 and value.rule == pytest.approx(0.002 / 4) and value.scale == 0.25


def test_ctrl_c_ends_a_test_with_what_it_has(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls, update = [], step.update

    def interrupted(*words: Any, **named: Any) -> None:
        update(*words, **named)
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(step, "update", interrupted)
    assert cli.main(["train", "--lr-find", *flags(data)]) == 75
    assert len(calls) == 3 and Path("lr-find.png").stat().st_size > 1000


def test_what_speaks_against_a_test_is_said() -> None:
    frozen = Config(tune=TuneConfig(weights="pretrained", freeze_epochs=1))
    assert range_test.caution(Config(), Log(), is_clear=True) is None
    assert range_test.caution(frozen, Log(), is_clear=True) == range_test.FROZEN
    assert range_test.caution(frozen, Log(is_interrupted=True), is_clear=True) == range_test.CUT_SHORT
    assert range_test.caution(frozen, Log(is_interrupted=True), is_clear=False) == range_test.NO_FALL


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"batch": 121}, "a batch of 121 is larger than the 120 training samples"),
        ({"batch": 3, "atoms": 2}, "leaves one sample an atom"),
        ({"data": "nowhere"}, "nowhere"),
        ({"resume": "runs/a/checkpoints/1"}, "--lr-find tries rates on a run that begins"),
    ],
)
def test_what_train_refuses_is_refused(
    values: dict[str, Any], what: str, data: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "--lr-find", *flags({**data, **values})]) == 2
    assert what in capsys.readouterr().err and list(Path().iterdir()) == []


def test_many_processes_are_refused(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Problem, match="one process, and here are 2"):
        api.lr_find(show=False, **data)


def test_a_picture_that_could_not_be_drawn_is_refused_before_the_first_step(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_test, "prepared", None)
    for place in (Path(), Path("nowhere/curve.png")):
        with pytest.raises(Problem, match="can't be written"):
            api.lr_find(picture=place, show=False, **data)
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(Problem, match="can't be drawn"):
        api.lr_find(show=False, **data)


def test_the_command_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"stoker {importlib.metadata.version('stoker')}\n"
