"""Whether a run learns its samples by heart: training against held-out scores. The answer with its evidence. Pure."""

import statistics

from stoker import units
from stoker.report.account import Account
from stoker.report.questions import curves, learning
from stoker.report.questions.curves import LOSS, Curve
from stoker.report.questions.learning import ENOUGH_POINTS, Trend
from stoker.report.questions.question import Question, unknown

ASKED = "Is it overfitting?"
# Of all that the held-out loss gained, what it may lose again by chance; and the points that its end is a mean of.
LOST_AGAIN, END_POINTS = 0.05, 3


def asked(account: Account) -> Question:
    """Whether training goes on at the cost of samples that it has not seen."""
    gap = curves.gap(account, LOSS)
    lines = (*gap_lines(account), *caveat_lines(account))
    if len(gap.epochs) < ENOUGH_POINTS:
        missing = (
            f"{units.count_text(len(gap.epochs), 'epoch')} with both training and held-out loss, "
            f"and a trend takes {ENOUGH_POINTS}"
        )
        return unknown(
            "overfitting", ASKED, f"there {'is' if len(gap.epochs) == 1 else 'are'} {missing}",
            fix="Train on, or evaluate after every epoch: --eval-epochs 1.", evidence=lines,
        )  # fmt: skip
    return Question(
        key="overfitting", asked=ASKED, answer=overfitting_text(account, gap), evidence=lines, chart="losses"
    )


def overfitting_text(account: Account, gap: Curve) -> str:
    """Whether a run overfits, in words."""
    held, training = curves.held_out(account, LOSS), curves.in_training(account, LOSS)
    trend = held.trend
    assert trend is not None  # an epoch with both losses has a held-out one
    wide = learning.linear_fit(gap.epochs[-trend.fit.points :], gap.values[-trend.fit.points :])
    then, now = training.at(trend.best_at), training.values[-1]
    is_lost = trend.kind == "worse" or is_past(held, trend)
    if is_lost and then is not None and now < then:
        return (
            f"Yes: its held-out loss was lowest after {units.count_text(int(trend.best_at), 'epoch')} "
            f"({trend.best:.4f}) and is {trend.last:.4f} now, while training loss fell from {then:.4f} to {now:.4f}."
        )
    ahead = f"at the end its held-out loss is {abs(gap.values[-1]):.4f} {side(gap.values[-1])} its training loss"
    if is_lost:
        return f"No, but it gets worse on both: {ahead}, and neither falls."
    if wide is not None and wide.low > 0:
        return (
            f"It begins to: {ahead}, and this gap grows by {wide.slope:.4f} an epoch "
            f"({wide.low:.4f} to {wide.high:.4f}), but the held-out loss has not got worse yet."
        )
    return f"No sign of it: {ahead}, this gap does not surely grow, and the held-out loss is not past its best."


def is_past(held: Curve, trend: Trend) -> bool:
    """Whether the end of a loss is above its lowest, by more than chance would have it."""
    end = held.values[-END_POINTS:]
    return trend.best not in end and statistics.fmean(end) - trend.best > LOST_AGAIN * (trend.gained or trend.best)


def side(gap: float) -> str:
    """On which side of the training loss the held-out loss is."""
    return "above" if gap >= 0 else "below"


def gap_lines(account: Account) -> tuple[str, ...]:
    """The gap at the end and how it moved, for the loss and the score."""
    lines = []
    for score in (LOSS, curves.main_score(account)):
        found = curves.gap(account, score) if score is not None else None
        if found is None or not found.values:
            continue
        held, trained = curves.held_out(account, found.score), curves.in_training(account, found.score)
        epoch = found.epochs[-1]
        pair = [curves.value_text(found.score, curve.at(epoch) or 0.0) for curve in (trained, held)]
        lines.append(f"{found.name} in epoch {epoch}: {pair[0]} in training, {pair[1]} held out after it")
        late = learning.late_points(len(found.epochs))
        fit = learning.linear_fit(found.epochs[-late:], found.values[-late:])
        if fit is not None:
            lines.append(
                f"gap in {found.name}: {fit.slope:+.4f} an epoch ({fit.low:+.4f} to {fit.high:+.4f}, 95 % sure)"
            )
    return tuple(lines)


def caveat_lines(account: Account) -> tuple[str, ...]:
    """What makes training scores look worse than they are, beside those of held-out samples."""
    config = account.evidence.config
    if config is None:
        return ("the settings are not known, so it is not known either how pictures were altered in training",)
    augment, crop = config.augment, config.image.crop_scale[0]
    altered = {
        f"random crops of {100 * crop:.0f} % of the picture and more": crop < 1,
        f"shifts of up to {augment.translate} pixels": augment.translate > 0,
        "erased boxes": augment.erase > 0,
        "MixUp": augment.mixup > 0,
        "CutMix": augment.cutmix > 0,
        f"label smoothing of {augment.label_smoothing:g}": augment.label_smoothing > 0,
    }
    used = [name for name, is_used in altered.items() if is_used]
    lines = ["training scores are a mean over an epoch, in which the weights still got better"]
    if used:
        lines.append(
            f"training scores are taken on altered samples ({', '.join(used)}), which are harder: the gap looks "
            f"smaller than it is, or even negative"
        )
    if config.optim.ema:
        lines.append("held-out scores are those of the average of the weights, training scores are not")
    return tuple(lines)
