"""How a curve of learning goes: statistics of a few points, by hand and pure. What they can't say is None."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Student's t: how many standard errors to either side hold 95 %, for 1, 2, 3 ... degrees of freedom.
STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
NORMAL = 1.960
# Fewer points than this have no trend that could be told from chance.
ENOUGH_POINTS = 4
# Of the points, so many of the last ones make the trend: a straight line is no good over a whole curve.
LATE_SHARE, MOST_POINTS = 0.25, 20
# Of all that was gained, what is too little to be called a change, and what a flat curve may not hide.
SMALL, HIDDEN = 0.02, 0.1


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A straight line through points, by least squares."""

    slope: float
    low: float
    """the slope's bounds, of 95 %"""
    high: float
    end: float
    """the line at its last point"""
    points: int


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """How far two quantities go together: 1 together, -1 against each other, 0 neither."""

    r: float
    """Pearson's"""
    low: float
    """its bounds, of 95 % (Fisher's transformation)"""
    high: float
    points: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Many values, some of which count for more."""

    mean: float
    deviation: float
    low: float
    """a twentieth is below"""
    middle: float
    high: float
    """a twentieth is above"""
    weight: float
    """of all together"""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Where a curve of scores has come to, and where it is going."""

    kind: Literal["better", "worse", "flat", "unclear"]
    """by its last points"""
    fit: Fit
    span: float
    """that the last points cover"""
    first: float
    best: float
    best_at: float
    last: float
    last_at: float
    gained: float
    """from the first to the best; never below 0"""
    late_share: float | None
    """of what was gained, that came in the last quarter; None where nothing was"""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a value may become."""

    low: float
    likely: float
    high: float


def student(freedom: int) -> float:
    """How many standard errors to either side hold 95 %."""
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL


def linear_fit(xs: Sequence[float], ys: Sequence[float]) -> Fit | None:
    """The straight line through points; None for fewer than three, or where all are at one place."""
    if len(xs) < 3 or max(xs) == min(xs):
        return None
    slope, intercept = statistics.linear_regression(xs, ys)
    mean = statistics.fmean(xs)
    width = sum((x - mean) ** 2 for x in xs)
    rest = sum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys))
    freedom = len(xs) - 2
    error = student(freedom) * math.sqrt(rest / freedom / width)
    return Fit(slope=slope, low=slope - error, high=slope + error, end=intercept + slope * xs[-1], points=len(xs))


def correlation(xs: Sequence[float], ys: Sequence[float]) -> Correlation | None:
    """Pearson's correlation; None for fewer than four pairs, or where one quantity does not vary."""
    if len(xs) < 4 or max(xs) == min(xs) or max(ys) == min(ys):
        return None
    r = max(-1.0, min(1.0, statistics.correlation(xs, ys)))
    near = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, r)))
    error = NORMAL / math.sqrt(len(xs) - 3)
    return Correlation(r=r, low=math.tanh(near - error), high=math.tanh(near + error), points=len(xs))


def summary(values: Sequence[float], weights: Sequence[float]) -> Summary | None:
    """Mean, spread and quantiles of values that count by their weights; None where there is no weight."""
    whole = sum(weights)
    if whole <= 0:
        return None
    mean = sum(weight * value for value, weight in zip(values, weights)) / whole
    spread = sum(weight * (value - mean) ** 2 for value, weight in zip(values, weights)) / whole
    low, middle, high = (quantile(values, weights, share) for share in (0.05, 0.5, 0.95))
    return Summary(mean=mean, deviation=math.sqrt(spread), low=low, middle=middle, high=high, weight=whole)


def quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The least value that, with all below it, has this share of the weight."""
    ordered = sorted(zip(values, weights))
    wanted, so_far = share * sum(weights), 0.0
    for value, weight in ordered:
        so_far += weight
        if so_far >= wanted:
            return value
    return ordered[-1][0]


def late_points(count: int) -> int:
    """How many of the last points make the trend of a curve."""
    least = ENOUGH_POINTS if count < 2 * ENOUGH_POINTS else ENOUGH_POINTS + 1
    return min(count, MOST_POINTS, max(least, math.ceil(LATE_SHARE * count)))


def trend(places: Sequence[float], values: Sequence[float], *, is_loss: bool) -> Trend | None:
    """Where a curve is going; None for fewer points than make a trend."""
    count = len(places)
    if count < ENOUGH_POINTS:
        return None
    late = late_points(count)
    fit = linear_fit(places[-late:], values[-late:])
    if fit is None:
        return None
    sign = -1.0 if is_loss else 1.0
    best = max(values, key=lambda value: sign * value)
    gained = max(sign * (best - values[0]), 0.0)
    early = max(values[: count - max(1, round(LATE_SHARE * count))], key=lambda value: sign * value)
    span = places[-1] - places[-late]
    return Trend(
        kind=kind(fit, span=span, scale=gained or abs(values[0]), sign=sign),
        fit=fit,
        span=span,
        first=values[0],
        best=best,
        best_at=places[values.index(best)],
        last=values[-1],
        last_at=places[-1],
        gained=gained,
        late_share=max(sign * (best - early), 0.0) / gained if gained > 0 else None,
    )


def kind(fit: Fit, *, span: float, scale: float, sign: float) -> Literal["better", "worse", "flat", "unclear"]:
    """What a slope means, measured by `scale`: a change that is no chance, none to speak of, or not to be told."""
    ends = sorted((sign * fit.low * span, sign * fit.high * span))
    change = sign * fit.slope * span
    if ends[0] > 0 and change >= SMALL * scale:
        return "better"
    if ends[1] < 0 and change <= -SMALL * scale:
        return "worse"
    return "flat" if max(-ends[0], ends[1]) <= HIDDEN * scale else "unclear"


def outlook(found: Trend, *, more: float, least: float, most: float) -> Outlook:
    """What a value may become if the trend of its last points goes on: a straight line, within what can be at all.

    Curves flatten, so that it may also stay where it is, however sure the slope is.
    """
    fit, line = found.fit, found.fit.end + found.fit.slope * more
    low = fit.end + fit.low * more if fit.low < 0 else min(found.last, line)
    high = fit.end + fit.high * more if fit.high > 0 else max(found.last, line)
    low, likely, high = (min(max(value, least), most) for value in (low, line, high))
    return Outlook(low=low, likely=likely, high=high)
