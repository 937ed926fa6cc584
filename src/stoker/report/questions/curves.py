"""The curves of learning in a run's account: scores by epoch, held out and in training. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.config.stages import parsed
from stoker.records import MetricRow
from stoker.report.account import Account
from stoker.report.questions import learning
from stoker.report.questions.learning import Trend

LOSS = "loss"
NAMES = {"loss": "loss", "top1": "top-1", "top5": "top-5"}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One score after each of some epochs."""

    score: str
    epochs: tuple[int, ...]
    """that were done when it was measured"""
    values: tuple[float, ...]

    @property
    def name(self) -> str:
        """as people call it"""
        return NAMES.get(self.score, self.score)

    @property
    def trend(self) -> Trend | None:
        """where it is going; None for too few points"""
        return learning.trend(self.epochs, self.values, is_loss=self.score == LOSS)

    def at(self, epoch: float) -> float | None:
        """The value after an epoch."""
        return next((value for place, value in zip(self.epochs, self.values) if place == epoch), None)


def value(row: MetricRow, score: str) -> float | None:
    """A score of a row; None where it is not there, or was no number."""
    found = row.scores.get(score)
    is_number = isinstance(found, int | float) and math.isfinite(found)
    return float(found) if is_number and found is not None else None


def main_score(account: Account) -> str | None:
    """The score that a run is judged by, beside its loss; None where no evaluation has one."""
    names = [name for row in account.evaluations for name in row.scores if name != LOSS]
    return "top1" if "top1" in names else next(iter(names), None)


def held_out(account: Account, score: str) -> Curve:
    """A score of each evaluation."""
    found = {row.epoch: here for row in account.evaluations if (here := value(row, score)) is not None}
    return Curve(score=score, epochs=tuple(sorted(found)), values=tuple(found[epoch] for epoch in sorted(found)))


def in_training(account: Account, score: str) -> Curve:
    """A score over each epoch of training, as a mean over its samples. An epoch that goes on yet is not in it."""
    weighed: dict[int, tuple[float, int]] = {}
    for row in account.training:
        here = value(row, score)
        if here is not None and row.samples > 0:
            total, count = weighed.get(row.epoch + 1, (0.0, 0))
            weighed[row.epoch + 1] = (total + here * row.samples, count + row.samples)
    done = {row.epoch for row in account.evaluations}
    last = max(weighed, default=0)
    kept = [epoch for epoch in sorted(weighed) if epoch < last or epoch in done]
    return Curve(score=score, epochs=tuple(kept), values=tuple(weighed[epoch][0] / weighed[epoch][1] for epoch in kept))


def gap(account: Account, score: str) -> Curve:
    """By how much training is ahead of held-out samples, after each epoch that both are known of."""
    held, trained = held_out(account, score), in_training(account, score)
    both = [epoch for epoch in held.epochs if epoch in trained.epochs]
    sign = 1 if score == LOSS else -1
    values = [sign * ((held.at(epoch) or 0.0) - (trained.at(epoch) or 0.0)) for epoch in both]
    return Curve(score=score, epochs=tuple(both), values=tuple(values))


def epochs_of(account: Account) -> int | None:
    """Epochs that a run was made for; None where its settings are not known."""
    config = account.evidence.config
    if config is None:
        return None
    return sum(stage.epochs for stage in parsed(config.train.stages)) or config.train.epochs


def value_text(score: str, number: float) -> str:
    """A score as people read it."""
    return f"{number:.2f} %" if score.startswith("top") else f"{number:.4f}"


def change_text(score: str, number: float) -> str:
    """A change of a score, without its sign."""
    return f"{abs(number):.2f} points" if score.startswith("top") else f"{abs(number):.4f}"


def slope_text(curve: Curve, found: Trend) -> str:
    """How a score moves an epoch, with bounds."""
    ends = sorted((found.fit.low, found.fit.high))
    unit = " points" if curve.score.startswith("top") else ""
    form = ".2f" if unit else ".4f"
    return (
        f"{found.fit.slope:+{form}}{unit} an epoch ({ends[0]:+{form}} to {ends[1]:+{form}}, 95 % sure, "
        f"by the last {found.fit.points} evaluations)"
    )


def last_epoch(rows: Sequence[MetricRow]) -> int:
    """Epochs that were done at the last evaluation; 0 without one."""
    return max((row.epoch for row in rows), default=0)
