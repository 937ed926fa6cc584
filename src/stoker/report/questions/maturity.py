"""Whether a run is fully trained, and what more epochs would bring. The answer with its evidence. Pure."""

import math
import shlex

from stoker import units
from stoker.config.stages import parsed
from stoker.report.account import Account
from stoker.report.questions import curves, learning
from stoker.report.questions.curves import LOSS, Curve
from stoker.report.questions.learning import ENOUGH_POINTS, Trend
from stoker.report.questions.question import Question, unknown

ASKED = "Is it fully trained?"
# A rate below this share of its peak moves the weights no more.
RUN_DOWN = 0.02
# From this share of the loss of a guess on, a loss is no better than guessing.
GUESSED = 0.97
# A prediction whose bounds are farther apart than this says nothing: percent of the samples, or a share of the loss.
WIDE_POINTS, WIDE_SHARE = 20.0, 0.5


def asked(account: Account) -> Question:
    """Whether more epochs would bring more."""
    record = account.evidence.record
    if record is not None and record.status == "diverged":
        why = f": {record.why}" if record.why else ""
        return Question(
            key="trained", asked=ASKED, answer=f"No: it diverged{why}.", evidence=best_lines(account), chart="scores"
        )
    if (guess := guess_text(account)) is not None:
        lines = (*best_lines(account), *schedule_lines(account))
        return Question(key="trained", asked=ASKED, answer=guess, evidence=lines, chart="scores")
    found = judged(account)
    if not found:
        count = len(curves.held_out(account, LOSS).epochs)
        return unknown(
            "trained", ASKED,
            f"there {'is' if count == 1 else 'are'} {units.count_text(count, 'evaluation')} with a loss, and a trend "
            f"takes {ENOUGH_POINTS}",
            fix="Train on, or evaluate after every epoch: --eval-epochs 1.",
            evidence=(*best_lines(account), *schedule_lines(account)),
        )  # fmt: skip
    kinds = {trend.kind for trend in found.values()}
    lines = (*trend_lines(found), *best_lines(account), *noise_lines(account), *schedule_lines(account))
    if kinds == {"unclear"}:
        return unknown(
            "trained", ASKED, "the last evaluations vary more than they move",
            fix="More held-out samples or more epochs would tell.", evidence=lines,
        )  # fmt: skip
    said = [verdict_text(account, found), outlook_text(found), run_down_text(account, found)]
    return Question(key="trained", asked=ASKED, answer=" ".join(filter(None, said)), evidence=lines, chart="scores")


def guess_text(account: Account) -> str | None:
    """What to say of a run that has learned nothing yet; None where it has, or its classes are not known."""
    record, held = account.evidence.record, curves.held_out(account, LOSS).values
    classes = record.data.get("classes") if record is not None else None
    if not held or not isinstance(classes, int) or classes < 2 or min(held) < GUESSED * math.log(classes):
        return None
    # A network that is too sure of itself may have a bad loss and still name many classes right.
    hits, samples = curves.held_out(account, "top1").values, max(account.evaluations[-1].samples, 1)
    chance = 1 / classes + 2 * learning.NORMAL * math.sqrt((1 - 1 / classes) / classes / samples)
    if max(hits, default=0.0) > 100 * chance:
        return None
    return (
        f"No: it has learned next to nothing. Its lowest held-out loss is {min(held):.4f}, and guessing among "
        f"{classes:,} classes has {math.log(classes):.4f}."
    )


def judged(account: Account) -> dict[Curve, Trend]:
    """The held-out scores that have a trend: the loss, and what the run is judged by."""
    names = [LOSS, curves.main_score(account)]
    found = [curves.held_out(account, name) for name in names if name is not None]
    return {curve: trend for curve in found if (trend := curve.trend) is not None}


def verdict_text(account: Account, found: dict[Curve, Trend]) -> str:
    """Whether a run has learned all it can, in a sentence."""
    better = [curve for curve, trend in found.items() if trend.kind == "better"]
    worse = [curve for curve, trend in found.items() if trend.kind == "worse"]
    wanted, done = curves.epochs_of(account), curves.last_epoch(account.evaluations)
    where = "" if wanted is None or done >= wanted else f" after {done} of {units.count_text(wanted, 'epoch')}"
    if better and worse:
        return (
            f"Nearly{where}: the held-out {better[0].name} still gets better, but its {worse[0].name} gets worse "
            f"({moved_text(found, better[:1])}; {moved_text(found, worse[:1])})."
        )
    if better:
        return f"{'Not fully' if account.evidence.is_done else 'Not yet'}{where}: {moved_text(found, better)}."
    if worse:
        curve = worse[0]
        at = units.count_text(int(found[curve].best_at), "epoch")
        return f"It is past its best{where}, which was after {at}: {moved_text(found, worse)}."
    flat = [curve for curve, trend in found.items() if trend.kind == "flat"]
    names = " and ".join(curve.name for curve in flat)
    points = found[flat[0]].fit.points
    stand = "stands" if len(flat) == 1 else "stand"
    return f"Yes{where}, as far as its last {points} evaluations show: its held-out {names} {stand} still."


def moved_text(found: dict[Curve, Trend], chosen: list[Curve]) -> str:
    """How far scores moved an epoch lately, in words."""
    said = []
    for curve in chosen:
        fit = found[curve].fit
        way = "rose" if fit.slope > 0 else "fell"
        said.append(f"{curve.name} {way} by {curves.change_text(curve.score, fit.slope)} an epoch")
    first = found[chosen[0]].fit.points
    return f"over the last {first} evaluations the held-out {' and '.join(said)}"


def outlook_text(found: dict[Curve, Trend]) -> str:
    """What more epochs would likely bring, in a sentence: modestly, since curves flatten."""
    curve, trend = list(found.items())[-1]
    if trend.kind not in ("better", "flat"):
        return ""
    more = max(1, math.ceil(trend.span))
    most = 100.0 if curve.score.startswith("top") else math.inf
    ahead = learning.outlook(trend, more=more, least=0.0, most=most)
    low, likely, high = (curves.value_text(curve.score, value) for value in (ahead.low, ahead.likely, ahead.high))
    now, epochs = curves.value_text(curve.score, trend.last), units.count_text(more, "more epoch")
    if low == high:
        return f"{epochs} would likely leave {curve.name} at {now}."
    if trend.kind == "flat":
        return f"{epochs} would likely bring {curve.name} from {now} to between {low} and {high}."
    if ahead.high - ahead.low > (WIDE_POINTS if curve.score.startswith("top") else WIDE_SHARE * trend.last):
        points = units.count_text(trend.fit.points, "evaluation")
        return f"How much {epochs} would bring can't be told from {points} that vary so much: {low} to {high}."
    return (
        f"{epochs} along the same line would bring {curve.name} from {now} to {likely}; curves flatten, so likely to "
        f"between {low} and {high}."
    )


def trend_lines(found: dict[Curve, Trend]) -> tuple[str, ...]:
    """The slopes, and how much came late."""
    lines = []
    for curve, trend in found.items():
        lines.append(f"held-out {curve.name}: {curves.slope_text(curve, trend)}: {trend.kind}")
        if trend.late_share is not None:
            lines.append(
                f"of the {curves.change_text(curve.score, trend.gained)} by which its {curve.name} got better in all, "
                f"{units.percent_text(trend.late_share)} came in the last quarter of the evaluations"
            )
    return tuple(lines)


def best_lines(account: Account) -> tuple[str, ...]:
    """When the best was."""
    lines = []
    for score in (curves.main_score(account), LOSS):
        curve = curves.held_out(account, score) if score is not None else None
        if curve is None or not curve.values:
            continue
        best = min(curve.values) if score == LOSS else max(curve.values)
        at, last = curve.epochs[curve.values.index(best)], curve.epochs[-1]
        ago = "the last evaluation" if at == last else f"{units.count_text(last - at, 'epoch')} before the last"
        lines.append(
            f"best held-out {curve.name}: {curves.value_text(curve.score, best)}, "
            f"after {units.count_text(at, 'epoch')} ({ago})"
        )
    return tuple(lines)


def run_down_share(account: Account) -> float | None:
    """What is left of the peak rate at the end of a run that is done; None where it is enough to go on with."""
    rates = [row.lr for row in account.training if row.lr]
    share = rates[-1] / max(rates) if rates else 1.0
    return share if account.evidence.is_done and share < RUN_DOWN else None


def run_down_text(account: Account, found: dict[Curve, Trend]) -> str:
    """What a rate that has run down means for more epochs, in a sentence; empty where it has not."""
    if run_down_share(account) is None or "worse" in {trend.kind for trend in found.values()}:
        return ""
    if "better" in {trend.kind for trend in found.values()}:
        return "They would need a new schedule, since the rate has run down."
    return "But its rate had run down by then, so that a longer schedule may still bring more."


def schedule_lines(account: Account) -> tuple[str, ...]:
    """Whether the rate has run down, and how to go on."""
    command, share = extension(account), run_down_share(account)
    if command is None:
        return ()
    if share is None:
        return (f"more epochs: {command}",)
    return (
        f"the rate has run down to {share:.2g} of its peak, which moves the weights no more: more epochs take a new "
        "schedule, in which it rises again and falls more slowly, and scores may first get worse",
        f"more epochs with a new schedule: {command}",
    )


def extension(account: Account) -> str | None:
    """The command that trains for longer; None where the run can go on by itself, or its settings are not known."""
    config, epochs = account.evidence.config, curves.epochs_of(account)
    if config is None or epochs is None or not account.evidence.is_done:
        return None
    more = max(1, round(learning.LATE_SHARE * epochs), ENOUGH_POINTS - len(account.evaluations))
    run = shlex.quote(str(account.folder))
    if not config.train.stages:
        return f"stoker train --extend {run} --epochs {epochs + more}"
    last = parsed(config.train.stages)[-1]
    stages = f"{config.train.stages}, {last.resolution}@{last.batch} x {more}"
    return f"stoker train --extend {run} --stages {shlex.quote(stages)}"


def noise_lines(account: Account) -> tuple[str, ...]:
    """How sure one evaluation is by itself."""
    score, rows = curves.main_score(account), account.evaluations
    last = curves.value(rows[-1], score) if rows and score is not None else None
    if last is None or score is None or not score.startswith("top") or rows[-1].samples <= 0:
        return ()
    share = min(max(last / 100, 0.0), 1.0)
    error = 100 * learning.NORMAL * math.sqrt(share * (1 - share) / rows[-1].samples)
    return (f"{rows[-1].samples:,} samples are held out, so one evaluation alone is sure to +- {error:.1f} points",)
