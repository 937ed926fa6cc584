"""Seeing that a run diverges, and saying why. Plain values in, plain values out."""

import math
from dataclasses import dataclass
from typing import Literal

# A run that diverges more often has another fault than its rate.
MOST_ROLLBACKS = 3
# Lines that a trend is made of before anything is compared with it.
FIRST_LINES = 3
# Lines after which a bad start should have become better.
MANY_LINES = 10
# What a line counts in the trend: some seven lines are remembered.
WEIGHT = 0.15
# The same of the accuracy, which rises fast at first: a trend that lags behind would hide a fall.
TOP1_WEIGHT = 0.3
# A loss above so many times its trend, and this on top, is no noise; nor is it a change of stage or regularisation.
TIMES, ON_TOP = 2.0, 1.0
# Lines of few samples jump about: so many standard errors more, with single losses as far apart as 1 + their mean.
NOISE = 5.0
# A network that knows nothing has a loss of ln(classes): one that stays so far above does not learn.
HOPELESS_TIMES, HOPELESS_ON_TOP = 5.0, 5.0
# Above a rate of 1 sgd mostly diverges; below this epoch a rate without warm-up is suspect.
HIGH_RATE, OFF_RULE, EARLY_EPOCH = 1.0, 3.0, 5.0


@dataclass(kw_only=True)
class Trend:
    """How a run has gone so far. Lives in a checkpoint, and so goes back with it."""

    loss: float | None = None
    """exponential mean of the loss"""
    lines: int = 0
    top1: float | None = None
    """exponential mean of the top-1 accuracy, in percent"""
    best_top1: float | None = None
    """highest top-1 of a line that was well above chance; None as long as none was"""
    low_samples: int = 0
    """samples of the newest lines, as far back as all of them were at chance"""
    low_hits: float = 0.0
    """how many of those were right"""
    rollbacks: int = 0
    rate_factor: float = 1.0
    """what the rates are multiplied by since the rollbacks"""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A sign that a run diverges."""

    kind: Literal["not finite", "loss", "chance"]
    what: str


def seen(trend: Trend, scores: dict[str, float], *, samples: int, classes: int) -> Found | None:
    """Look at the mean scores of a line: a sign of divergence, or None and the trend has learned from the line."""
    if samples < 1:
        return None
    loss, top1 = scores["loss"], scores.get("top1")
    if not math.isfinite(loss):
        return Found(kind="not finite", what=f"the loss is {loss}")
    found = too_high(trend, loss, samples=samples, classes=classes)
    if found is not None:
        return found
    if top1 is not None and is_at_chance(trend, loss, top1, samples=samples, classes=classes):
        # Held back from the trend: a few such lines are noise, and many of them are what is looked for.
        trend.low_samples += samples
        trend.low_hits += samples * top1 / 100
        return fallen(trend, loss, classes=classes)
    learn(trend, loss, top1, samples=samples, classes=classes)
    return None


def too_high(trend: Trend, loss: float, *, samples: int, classes: int) -> Found | None:
    """A loss far above its trend; or one so high that nothing was learned, and rising or there for long."""
    if trend.loss is None or trend.lines < FIRST_LINES:
        return None
    if loss > TIMES * trend.loss + ON_TOP + NOISE * (1 + trend.loss) / math.sqrt(samples):
        return Found(kind="loss", what=f"the loss is {loss:.4g}, after {trend.loss:.4g} before")
    if is_hopeless(loss, classes=classes) and (loss > trend.loss or trend.lines >= MANY_LINES):
        nothing = math.log(max(2, classes))
        return Found(kind="loss", what=f"the loss is {loss:.4g}; knowing nothing would give {nothing:.2f}")
    return None


def is_hopeless(loss: float, *, classes: int) -> bool:
    """Whether a loss is far above that of a network that knows nothing."""
    return not loss <= HOPELESS_TIMES * math.log(max(2, classes)) + HOPELESS_ON_TOP


def is_at_chance(trend: Trend, loss: float, top1: float, *, samples: int, classes: int) -> bool:
    """Whether a line of a run that was well above chance looks like one of a network that knows nothing."""
    if trend.best_top1 is None or classes < 2:
        return False
    chance = 100 / classes
    return loss >= 0.95 * math.log(classes) and top1 <= chance + 3 * standard_error(chance, samples)


def fallen(trend: Trend, loss: float, *, classes: int) -> Found | None:
    """Whether the newest lines, all of them at chance, are together too many samples for bad luck."""
    if trend.top1 is None:
        return None
    now = 100 * trend.low_hits / trend.low_samples
    if trend.top1 - now < 5 * standard_error(trend.top1, trend.low_samples):
        return None
    return Found(
        kind="chance",
        what=f"the accuracy fell from {trend.top1:.3g} % to {now:.3g} % (chance is {100 / classes:.3g} %), "
        f"with a loss of {loss:.4g}",
    )


def learn(trend: Trend, loss: float, top1: float | None, *, samples: int, classes: int) -> None:
    """Take a line into the trend."""
    if trend.loss is None:
        trend.loss = loss
    else:
        trend.loss += WEIGHT * (loss - trend.loss)
    trend.lines += 1
    trend.low_samples, trend.low_hits = 0, 0.0
    if top1 is None or classes < 2:
        return
    trend.top1 = top1 if trend.top1 is None else trend.top1 + TOP1_WEIGHT * (top1 - trend.top1)
    if is_well_above_chance(top1, samples=samples, classes=classes):
        trend.best_top1 = top1 if trend.best_top1 is None else max(trend.best_top1, top1)


def is_well_above_chance(top1: float, *, samples: int, classes: int) -> bool:
    """Whether an accuracy is no luck: five standard errors and five hits above chance, and far above it too.

    The five hits are for small lines of many classes, where one lucky hit is many standard errors.
    """
    chance = 100 / classes
    is_no_luck = top1 >= chance + 5 * standard_error(chance, samples) + 100 * 5 / samples
    return is_no_luck and top1 >= min(3 * chance, chance + 20)


def standard_error(percent: float, samples: int) -> float:
    """The standard error of a percentage that was counted over so many samples."""
    share = min(max(percent / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / samples)


def causes(
    *,
    found: Found,
    peak_rate: float,
    rule_rate: float,
    warmup_epochs: float,
    epoch: float,
    amp: str,
    clip: float,
    bad_share: float,
) -> list[str]:
    """The likely causes with what to try, the likeliest first: the rate, the range of numbers, gradients, the data."""
    listed = []
    if peak_rate > OFF_RULE * rule_rate:
        times = peak_rate / rule_rate
        listed.append(f"the rate of {peak_rate:.3g} is {times:.3g} x that of the rule; try --peak-lr {rule_rate:.3g}")
    elif peak_rate > HIGH_RATE:
        lower = min(rule_rate, peak_rate / 4)
        listed.append(f"the rate of {peak_rate:.3g} is above 1; try --peak-lr {lower:.3g}")
    if warmup_epochs == 0 and epoch < EARLY_EPOCH:
        listed.append("the rate was at its peak from the first step; try --warmup-epochs 5")
    if amp == "fp16" and found.kind != "chance":  # what overflows leaves no finite loss for long
        listed.append("fp16 ends at 65,504, and what is larger becomes infinite; try --amp bf16, or --amp off")
    if clip == 0:
        listed.append("gradients are not clipped, so that one bad step is enough; try --clip 1")
    if bad_share > 0:
        listed.append(
            f"{100 * bad_share:.2g} % of the samples can't be read, so that others may be damaged too; "
            "try stoker inspect DATA"
        )
    return listed or [
        f"the rate of {peak_rate:.3g} may be too high for this network; try --peak-lr {peak_rate / 2:.3g}"
    ]


def message(found: Found, causes: list[str], *, step: int) -> str:
    """What is said of a divergence: what was seen, where, and the likely causes, the likeliest first."""
    lines = [f"diverged at step {step:,}: {found.what}"]
    return "\n".join(lines + [f"    {number}. {cause}" for number, cause in enumerate(causes, 1)])
