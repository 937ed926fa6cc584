"""A run that diverges is noticed by its lines; one that is only noisy never is."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pytest

from stoker.train import divergence
from stoker.train.divergence import Found, Trend, seen

LINES = 300


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A healthy run: how its loss and accuracy go, and how noisy its lines are."""

    classes: int
    samples: int
    last_loss: float
    last_top1: float
    lines: int = LINES
    fall: float = 0.25
    """share of the run in which most is learned"""
    sample_spread: float = 1.0
    """standard deviation of a sample's loss, as a multiple of the mean loss"""
    warm: int = 0
    """lines at the beginning in which nothing is learned"""
    jumps: tuple[tuple[float, float], ...] = ()
    """shares of the run from which the loss is so many times higher (another resolution, more regularisation)"""
    ramp: float = 1.0
    """what the loss has risen by at the end of the run, slowly"""

    def drawn(self, seed: int) -> Iterator[dict[str, float]]:
        """The lines of one run."""
        chance, nothing, draw = 100 / self.classes, math.log(self.classes), random.Random(seed)
        for line in range(self.lines):
            share = max(0, line - self.warm) / self.lines
            learned = 1 - math.exp(-share / self.fall * 3)
            times = math.prod(times for begin, times in self.jumps if share >= begin) * (1 + (self.ramp - 1) * share)
            mean = (nothing + learned * (self.last_loss - nothing)) * times
            top1 = chance + learned * (self.last_top1 - chance) / times
            # The higher the loss, the more alike are the samples: at the beginning all are near ln(classes).
            loss = skewed(draw, mean, min(self.sample_spread * mean, 1 + 0.6 * mean), self.samples)
            yield {"loss": loss, "top1": 100 * hits(draw, top1 / 100, self.samples) / self.samples}


def skewed(draw: random.Random, mean: float, spread: float, samples: int) -> float:
    """The mean of so many samples of a skewed distribution: losses have long tails upwards."""
    shape = (mean / spread) ** 2 * samples
    return draw.gammavariate(shape, mean / shape)


def hits(draw: random.Random, share: float, samples: int) -> int:
    """How many of so many samples are right."""
    if samples > 500:
        around = draw.gauss(samples * share, math.sqrt(samples * share * (1 - share)))
        return min(samples, max(0, round(around)))
    return sum(draw.random() < share for _ in range(samples))


HEALTHY = {
    "imagenet": Curve(classes=1000, samples=12_800, last_loss=1.2, last_top1=70),
    "imagenet, slow to begin": Curve(classes=1000, samples=1024, last_loss=3.0, last_top1=35, warm=100),
    "imagenet, small lines": Curve(classes=1000, samples=20, last_loss=1.5, last_top1=65, warm=60),
    "imagenet that hardly learns": Curve(classes=1000, samples=2560, last_loss=6.6, last_top1=1),
    "mixup and smoothing": Curve(classes=1000, samples=12_800, last_loss=3.2, last_top1=40),
    "mixup, small lines": Curve(classes=100, samples=64, last_loss=3.4, last_top1=20, sample_spread=0.5),
    "ten classes": Curve(classes=10, samples=6400, last_loss=0.02, last_top1=99.5),
    "ten classes, small lines": Curve(classes=10, samples=20, last_loss=0.3, last_top1=92, sample_spread=2.5),
    "ten classes, hard, small lines": Curve(classes=10, samples=20, last_loss=1.7, last_top1=40),
    "ten classes, hardly better than chance": Curve(classes=10, samples=200, last_loss=2.2, last_top1=16),
    "fine-tuning": Curve(classes=10, samples=160, last_loss=0.05, last_top1=98, fall=0.03, sample_spread=3.0),
    "two classes at chance": Curve(classes=2, samples=640, last_loss=0.69, last_top1=50),
    "two classes at chance, small lines": Curve(classes=2, samples=20, last_loss=0.69, last_top1=50),
    "two classes, hard": Curve(classes=2, samples=128, last_loss=0.64, last_top1=63, sample_spread=0.5),
    "a stage of another resolution": Curve(
        classes=1000, samples=12_800, last_loss=1.5, last_top1=65, jumps=((0.33, 1.3), (0.66, 1.3))
    ),
    "more regularisation, small lines": Curve(
        classes=10, samples=20, last_loss=0.5, last_top1=85, sample_spread=2.0, ramp=2.0, jumps=((0.5, 1.3), (0.8, 1.3))
    ),
    "a loss that rises slowly": Curve(classes=100, samples=3200, last_loss=0.8, last_top1=75, ramp=3.0),
    "one class": Curve(classes=1, samples=64, last_loss=0.001, last_top1=100),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in HEALTHY if name != "one class"])
def test_a_healthy_run_is_never_called_diverged(name: str) -> None:
    curve, alarms = HEALTHY[name], []
    for seed in range(40):
        trend = Trend()
        for line, scores in enumerate(curve.drawn(seed)):
            found = seen(trend, scores, samples=curve.samples, classes=curve.classes)
            if found is not None:
                alarms.append((seed, line, scores, found.what))
    assert alarms == []


def after(curve: Curve, *, lines: int, seed: int = 0) -> Trend:
    """The trend of a healthy run after some lines."""
    trend = Trend()
    for scores, _ in zip(curve.drawn(seed), range(lines)):
        assert seen(trend, scores, samples=curve.samples, classes=curve.classes) is None
    return trend


@pytest.mark.parametrize("samples", [256, 1024, 12_800])
def test_the_loss_at_chance_and_the_accuracy_too_is_a_divergence(samples: int) -> None:
    trend = Trend()
    for loss, top1 in [(6.9, 0.1), (6.7, 0.8), (6.4, 2.0), (6.2, 3.5), (5.98, 5.0), (5.98, 5.0)]:
        assert seen(trend, {"loss": loss, "top1": top1}, samples=samples, classes=1000) is None
    finds = [seen(trend, {"loss": 6.90, "top1": 0.1}, samples=samples, classes=1000) for _ in range(4)]
    # Small lines are more than one until it can't be bad luck.
    first = next(found for found in finds if found is not None)
    assert first.kind == "chance" and "to 0.1 % (chance is 0.1 %), with a loss of 6.9" in first.what
    if samples >= 1024:
        assert finds[0] is first


def test_ten_classes_that_fall_back_to_chance_are_found_in_small_lines_too() -> None:
    trend = after(HEALTHY["ten classes, small lines"], lines=200)
    draw = random.Random(1)
    lines = ({"loss": skewed(draw, 2.31, 0.3, 20), "top1": 100 * hits(draw, 0.1, 20) / 20} for _ in range(30))
    kinds = {found.kind for scores in lines if (found := seen(trend, scores, samples=20, classes=10)) is not None}
    assert "chance" in kinds


def test_a_lucky_hit_in_a_small_line_of_many_classes_is_no_accuracy_to_fall_from() -> None:
    assert not divergence.is_well_above_chance(5.0, samples=20, classes=1000)
    assert divergence.is_well_above_chance(5.0, samples=1000, classes=1000)
    trend = Trend()
    for top1 in (5.0, *[0.0] * 200):
        assert seen(trend, {"loss": 6.9, "top1": top1}, samples=20, classes=1000) is None


def test_an_accuracy_at_chance_with_a_good_loss_is_something_else() -> None:
    trend = after(HEALTHY["ten classes"], lines=200)
    assert seen(trend, {"loss": 0.5, "top1": 10.0}, samples=6400, classes=10) is None


def test_lines_at_chance_do_not_add_up_across_a_good_one() -> None:
    trend = after(Curve(classes=10, samples=100, last_loss=2.0, last_top1=30), lines=250)
    trend.best_top1 = 40.0
    bad, good = {"loss": 2.25, "top1": 15.0}, {"loss": 2.0, "top1": 30.0}
    for _ in range(50):
        assert seen(trend, bad, samples=100, classes=10) is None
        assert seen(trend, good, samples=100, classes=10) is None
    assert any(seen(trend, bad, samples=100, classes=10) for _ in range(10))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_found_in_the_first_line(loss: float) -> None:
    trend = Trend()
    found = seen(trend, {"loss": loss, "top1": 0.0}, samples=8, classes=10)
    assert found == Found(kind="not finite", what=f"the loss is {loss}")
    assert trend == Trend()


@pytest.mark.parametrize("name", [name for name in HEALTHY if name != "one class"])
def test_a_loss_that_explodes_is_found_in_every_kind_of_run(name: str) -> None:
    curve = HEALTHY[name]
    trend = after(curve, lines=250)
    before = asdict(trend)
    assert trend.loss is not None
    found = seen(
        trend, {"loss": 5 * trend.loss + 10, "top1": curve.last_top1}, samples=curve.samples, classes=curve.classes
    )
    assert found is not None and found.kind == "loss" and "after" in found.what
    # What was bad is not learned from: a checkpoint of this moment would be a good one.
    assert asdict(trend) == before


@pytest.mark.parametrize(("samples", "kind"), [(20, None), (2000, "loss")])
def test_the_fewer_samples_a_line_has_the_more_it_may_jump(samples: int, kind: str | None) -> None:
    trend = Trend(loss=0.4, lines=50)
    found = seen(trend, {"loss": 2.1}, samples=samples, classes=10)
    assert (found and found.kind) == kind


def test_a_loss_that_explodes_over_many_lines_is_found_too() -> None:
    trend, loss, found = after(HEALTHY["ten classes"], lines=100), 0.5, None
    while found is None:
        loss *= 1.25
        found = seen(trend, {"loss": loss, "top1": 50.0}, samples=6400, classes=10)
    assert found.kind == "loss" and loss < 20


def test_a_run_that_explodes_in_its_first_lines_is_found_after_them() -> None:
    trend = Trend()
    losses = [900.0, 90_000.0, 40_000.0, 20_000.0]
    finds = [seen(trend, {"loss": loss, "top1": 10.0}, samples=640, classes=10) for loss in losses]
    assert finds[:3] == [None] * 3
    assert finds[3] is not None and "knowing nothing would give 2.30" in finds[3].what


def test_a_bad_start_that_gets_better_is_none() -> None:
    trend = Trend()
    for loss in (60.0, 50.0, 40.0, 35.0, 30.0, 22.0, 12.0, 5.0, 2.3, 2.2):
        assert seen(trend, {"loss": loss, "top1": 10.0}, samples=640, classes=10) is None


def test_a_bad_start_that_does_not_get_better_is_found_after_some_lines() -> None:
    trend = Trend()
    finds = [seen(trend, {"loss": 60.0 - n, "top1": 10.0}, samples=640, classes=10) for n in range(12)]
    assert finds[:10] == [None] * 10 and finds[10] is not None


@pytest.mark.parametrize("lines", [[7.0, 2.0, 30.0], [0.1, 2.0, 9.0]])
def test_the_first_lines_of_a_run_are_only_learned_from(lines: list[float]) -> None:
    trend = Trend()
    assert [seen(trend, {"loss": loss}, samples=640, classes=1000) for loss in lines] == [None] * 3
    assert trend.lines == 3


def test_one_class_a_task_without_accuracy_and_a_line_without_samples_are_no_trouble() -> None:
    trend = Trend()
    for _ in range(10):
        assert seen(trend, {"loss": 0.0, "top1": 100.0}, samples=8, classes=1) is None
        assert seen(trend, {"loss": 0.1}, samples=8, classes=1) is None
    assert seen(trend, {"loss": math.nan}, samples=0, classes=10) is None
    assert trend.lines == 20


def test_a_trend_that_went_through_json_sees_the_same() -> None:
    curve = HEALTHY["ten classes, small lines"]
    straight, through = Trend(), Trend()
    for scores in curve.drawn(3):
        seen(straight, scores, samples=curve.samples, classes=curve.classes)
        through = Trend(**json.loads(json.dumps(asdict(through))))
        seen(through, scores, samples=curve.samples, classes=curve.classes)
    assert straight == through and straight.lines > 200


NAN, HIGH = Found(kind="not finite", what="the loss is nan"), Found(kind="loss", what="the loss is 80, after 2 before")
CHANCE = Found(kind="chance", what="the accuracy fell")


def causes(found: Found = NAN, **changed: object) -> list[str]:
    calm = {
        "peak_rate": 0.1, "rule_rate": 0.1, "warmup_epochs": 5.0, "epoch": 20.0, "amp": "bf16", "clip": 1.0,
        "bad_share": 0.0,
    }  # fmt: skip
    return divergence.causes(found=found, **(calm | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "said", "tried"),
    [
        ({"peak_rate": 0.5}, "5 x that of the rule", "--peak-lr 0.1"),
        ({"peak_rate": 3.2, "rule_rate": 3.2}, "above 1", "--peak-lr 0.8"),
        ({"warmup_epochs": 0.0, "epoch": 0.3}, "at its peak from the first step", "--warmup-epochs 5"),
        ({"amp": "fp16"}, "65,504", "--amp bf16"),
        ({"clip": 0.0}, "not clipped", "--clip 1"),
        ({"bad_share": 0.004}, "0.4 % of the samples can't be read", "stoker inspect"),
        ({}, "may be too high", "--peak-lr 0.05"),
    ],
)
def test_each_cause_comes_with_what_to_try(changed: dict[str, object], said: str, tried: str) -> None:
    (cause,) = causes(**changed)
    assert said in cause and f"try {tried}" in cause


def test_the_likeliest_cause_comes_first() -> None:
    wild = {"peak_rate": 4.0, "warmup_epochs": 0.0, "epoch": 0.0, "amp": "fp16", "clip": 0.0, "bad_share": 0.01}
    words = ["--peak-lr", "--warmup-epochs", "--amp", "--clip", "inspect"]
    for found, expected in ((NAN, words), (HIGH, words), (CHANCE, [w for w in words if w != "--amp"])):
        listed = causes(found, **wild)
        assert len(listed) == len(expected) and all(word in cause for word, cause in zip(expected, listed))


def test_the_flags_that_are_suggested_exist() -> None:
    from stoker.config import Config
    from stoker.settings import listed

    names = {setting.name for setting in listed(Config())}
    assert {"peak_lr", "warmup_epochs", "amp", "clip"} <= names


def test_the_message_says_what_where_and_why() -> None:
    told = divergence.message(NAN, ["the rate; try --peak-lr 0.1", "fp16; try --amp bf16"], step=12_345)
    assert told.splitlines() == [
        "diverged at step 12,345: the loss is nan",
        "    1. the rate; try --peak-lr 0.1",
        "    2. fp16; try --amp bf16",
    ]
