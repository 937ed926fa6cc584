"""The learning rates of a run: what they were meant to be, why, and what they were. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker import units
from stoker.config import Config, OptimConfig, Stage
from stoker.config.stages import parsed
from stoker.records import MetricRow
from stoker.report.account import Account
from stoker.report.questions.question import Question, unknown
from stoker.train import rates

if TYPE_CHECKING:
    from stoker.data.order import Route

ASKED = "What was the learning-rate schedule, and why this peak?"
# Recorded and computed rates are of the same arithmetic: only rounding may lie between them.
NEAR = 1e-3
# A rollback halves the rate, and there are not many of them in a run.
MOST_HALVINGS = 10


@dataclass(frozen=True, kw_only=True)
class Match:
    """How recorded rates compare with those of the settings."""

    compared: int
    same: int
    halved: dict[int, float]
    """what rates were multiplied by from a step on: a half, a quarter ..."""
    first_other: int | None
    """the first step whose rate is neither"""


def asked(account: Account) -> Question:
    """What the schedule was, why, and whether the rates that were recorded follow it."""
    config, recorded = account.evidence.config, recorded_text(account.training)
    stages = stages_of(config) if config is not None else ()
    if config is None or not stages:
        return unknown(
            "schedule", ASKED, "the settings (config.json) can't be read, or the batch was never fixed",
            fix="Bring the run's config.json and record.json back.", evidence=recorded,
        )  # fmt: skip
    optim = config.optim
    epochs = sum(stage.epochs for stage in stages)
    first = f"{kind_text(optim, epochs=epochs)} {peak_text(optim, stages[0])}"
    lines = (*stage_lines(optim, stages), *recorded, *match_lines(account), *event_lines(account))
    return Question(key="schedule", asked=ASKED, answer=first, evidence=lines, chart="rates" if recorded else None)


def stages_of(config: Config) -> tuple[Stage, ...]:
    """The stages of a run; none where something that they need was never fixed."""
    if config.train.batch == "auto" or config.image.resolution <= 0:
        return parsed(config.train.stages)
    return config.stages


def kind_text(optim: OptimConfig, *, epochs: int) -> str:
    """What kind of schedule it is, in a sentence."""
    share, warm = f"{100 * rates.CYCLE_RISE:.0f} % of the run", optim.warmup_epochs
    if optim.schedule == "onecycle":
        rise = f"the first {warm:g} epochs" if warm else share
        return (
            f"One cycle over {units.count_text(epochs, 'epoch')}: the rate rises along half a cosine from 1/25 of its "
            f"peak over {rise}, and falls along another to next to nothing."
        )
    begins = f"after a straight warm-up of {warm:g} epochs" if warm else "without a warm-up"
    if optim.schedule == "constant":
        return f"Constant over {units.count_text(epochs, 'epoch')}, {begins}: the rate stays at its peak."
    if optim.schedule == "step":
        drops = [drop for drop in sorted(optim.drop_epochs) if drop < epochs]
        when = f"after {', '.join(map(str, drops))} of {epochs} epochs" if drops else f"never within {epochs} epochs"
        return f"In steps, {begins}: the rate is multiplied by {optim.drop_factor:g} {when}."
    how = "along half a cosine" if optim.schedule == "cosine" else "in a straight line"
    name = optim.schedule.capitalize()
    return f"{name} over {units.count_text(epochs, 'epoch')}, {begins}: the rate falls from its peak {how} to nothing."


def peak_text(optim: OptimConfig, stage: Stage) -> str:
    """Where the peak comes from, in a sentence."""
    peak = rates.peak_rate(optim, batch=stage.batch, fixed=stage.peak_rate)
    rule = rates.rule_rate(optim, batch=stage.batch)
    if stage.peak_rate or optim.peak_lr:
        return f"Its peak of {peak:.4g} is as given; the rule for {stage.batch:,} samples a step would say {rule:.4g}."
    how, why = scaling(optim)
    return (
        f"Its peak is {peak:.4g}: {optim.lr:g} for {rates.BASE_BATCH} samples a step ({optim.optimizer}), scaled "
        f"{how} to {stage.batch:,} samples, because {why}."
    )


def scaling(optim: OptimConfig) -> tuple[str, str]:
    """How the rate is scaled with the batch, and why."""
    if rates.is_linear(optim):
        return "in proportion", "as many more samples in a step make as many fewer steps, each of which may go as far"
    return (
        "by the square root",
        f"{optim.optimizer} divides gradients by their size, whose chance part falls with the root of the batch",
    )


def stage_lines(optim: OptimConfig, stages: Sequence[Stage]) -> tuple[str, ...]:
    """The stages, where there are several."""
    if len(stages) < 2:
        return ()
    return tuple(
        f"stage {number}: {units.count_text(stage.epochs, 'epoch')} of {stage.resolution} pixels with "
        f"{stage.batch:,} samples a step: peak {rates.peak_rate(optim, batch=stage.batch, fixed=stage.peak_rate):.4g}"
        + (" (as given)" if stage.peak_rate else "")
        for number, stage in enumerate(stages, start=1)
    )


def recorded_text(training: Sequence[MetricRow]) -> tuple[str, ...]:
    """What the rates really were."""
    found = [(row.step, row.lr) for row in training if row.lr is not None]
    if not found:
        return ()
    step, top = max(found, key=lambda each: each[1])
    return (
        f"recorded: {found[0][1]:.4g} at step {found[0][0]:,}, at most {top:.4g} (step {step:,}), "
        f"{found[-1][1]:.4g} at step {found[-1][0]:,}",
    )


def match_lines(account: Account) -> tuple[str, ...]:
    """Whether the recorded rates are those of the settings."""
    found = matched(account)
    if found is None:
        return ("whether the recorded rates follow it is not known: the training set's size or the rates are missing",)
    if found.first_other is not None:
        record = account.evidence.record
        why = "the run began with the state of another" if record is not None and record.resumed_from else "not known"
        return (
            f"{found.same:,} of {found.compared:,} recorded rates are those of the schedule; from step "
            f"{found.first_other:,} on others are not (why: {why})",
        )
    lines = [f"all {found.compared:,} recorded rates are those of the schedule"]
    if found.halved:
        lines[0] += ", but for rollbacks"
    lines += [f"{factor:g} x the schedule's rate from step {step:,} on" for step, factor in found.halved.items()]
    return tuple(lines)


def matched(account: Account) -> Match | None:
    """The recorded rates against those of the settings; None where one of them is not known."""
    route, config = route_of(account), account.evidence.config
    rows = [row for row in account.training if row.lr is not None]
    if route is None or config is None or not rows:
        return None
    meant = rates.Rates(config.optim, route)
    same, now, halved, first_other = 0, 1.0, {}, None
    for row in rows:
        factor = factor_of(row.lr or 0.0, rate_at(meant, row))
        if factor is None:
            first_other = first_other or row.step
            continue
        same += 1
        if factor != now:
            now = halved[row.step] = factor
    return Match(compared=len(rows), same=same, halved=halved, first_other=first_other)


def rate_at(meant: rates.Rates, row: MetricRow) -> float:
    """The rate that the settings make for a row's last step."""
    route = meant.route
    within = max(row.step - route.step(row.epoch, 0) - 1, 0)
    return meant.at(row.epoch, within * route.stage(row.epoch).batch)


def factor_of(rate: float, meant: float) -> float | None:
    """What a rate was multiplied by: 1, or a half for each rollback; None where it is something else."""
    if meant <= 0:
        return 1.0 if rate <= 0 else None
    halves = (0.5**times for times in range(MOST_HALVINGS))
    return next((half for half in halves if abs(rate / meant / half - 1) < NEAR), None)


def route_of(account: Account) -> "Route | None":
    """The way through a run; None where its settings or the size of its data are not known."""
    from stoker.data.order import Route

    config, record = account.evidence.config, account.evidence.record
    count = record.data.get("train_samples") if record is not None else None
    stages = stages_of(config) if config is not None else ()
    if config is None or not stages or not isinstance(count, int) or count <= 0:
        return None
    atoms = max(config.train.atoms, 1)
    return Route(count=count, stages=stages, atoms=atoms, last_step=config.train.last_step)


def event_lines(account: Account) -> tuple[str, ...]:
    """What was said about the rate while the run went on."""
    return tuple(f"{event.kind}: {event.what}" for event in account.events if event.kind in ("rate", "rollback"))
