"""A learning-rate range test (Smith, "Cyclical learning rates for training neural networks", arXiv 1506.01186).

The first steps of a run, with a rate that rises exponentially from far too small to far too large. Where the loss falls
fastest is a rate to train with; where it rises again is one that is too high. Nothing of it stays.
"""

import contextlib
import dataclasses
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from stoker import dist, progress, settings
from stoker.config import Config
from stoker.data import order
from stoker.data.sources import Dataset
from stoker.errors import Problem
from stoker.machine.interrupts import StopRequest
from stoker.runs import Run
from stoker.tasks import Task, classify, weights
from stoker.train import curve, fixed, memory, optim, start, step
from stoker.train.ledger import Ledger
from stoker.train.rates import peak_rate, rule_rate
from stoker.train.site import Site, decode_threads

STEPS = 200
# The loss counts as diverging when its mean has risen to so many times its lowest (fastai's lr_find, Lightning's too).
RISEN = 4.0
# What a loss weighs in a mean of losses, for each step that lies between.
BETA = 0.9
# From the rate that people train with: this far down and this far up.
BELOW, ABOVE = 1e-2, 1e2
# Steps that no suggestion comes from (fastai): of too few neighbours at the beginning, diverging at the end.
FIRST, LAST = STEPS // 10, 5
NO_FALL = "no clear fall: the test says nothing; keep the rule"
CUT_SHORT = "ended early: higher rates were not tried"
FROZEN = "only the last layer learns at first, and so here; --freeze-epochs 0 tries rates on all layers"


@dataclass(frozen=True, kw_only=True)
class RangeTest:
    """The losses of rising learning rates, and the rates that they suggest."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    """of a step's samples, before its update"""
    smoothed: tuple[float, ...]
    """mean of the losses around each step"""
    steepest: float | None
    """the rate at which the smoothed loss falls fastest; None where the test says nothing"""
    valley: float | None
    """the rate in the middle of the longest fall (fastai's rule)"""
    setting: float
    """peak rate of the settings"""
    rule: float
    """peak rate that people train with, for this optimiser and batch"""
    batch: int
    optimizer: str
    scale: float
    """a rate is the --lr of so many times less: what --lr is multiplied by for this batch"""
    ended: str
    """why there are no more steps"""
    is_interrupted: bool
    caution: str | None
    """what speaks against the suggestions"""
    picture: Path


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A run before its first step: settings without open ends, task, data and device."""

    config: Config
    task: Task
    data: Dataset
    device: torch.device


@dataclass(kw_only=True)
class Log:
    """What has been seen so far."""

    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    lowest: float = math.inf
    """of the means up to each step"""
    ended: str = ""
    is_interrupted: bool = False


def prepared(config: Config, *, show: bool) -> Trial:
    """Everything that a run has before its first step, and what `train` refuses, refused."""
    world = dist.world()
    # Compiling takes longer than the test, and changes nothing that it could show.
    config = settings.with_values(config, {**fixed.fixed_settings(config, world), "compile": False})
    device = dist.choose_device(config.model.device, world)
    start.pin_arithmetic(config.model, device)
    task = classify.task_of(config)
    data = task.open(seed=config.train.seed, show=show)
    if config.train.batch == "auto":
        batch = fixed.batch_that_fits(config, task, data, world, device, show=show)
        config = settings.with_values(config, {"batch": batch})
    fixed.check_atoms(config, world)
    fixed.check_batches(config, data)
    return Trial(config=config, task=task, data=data, device=device)


def measured(trial: Trial, *, picture: Path, show: bool) -> RangeTest:
    """Take the steps, draw the curve and suggest rates. A request to stop ends it with what it has."""
    config, first = trial.config, trial.config.stages[0]
    rule = optim.sound_rate(config.optim, config.tune, batch=first.batch)
    log = Log()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        site = Site(
            run=Run(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-lr-find-")))),
            world=dist.world(),
            device=trial.device,
            clock=Ledger(),
            stop=stop,
            watch=stack.enter_context(dist.Watch(dist.world(), trial.device, events=None)),
            attempt=1,
            started_at=time.time(),
            first_started_at=time.time(),
        )
        steps = walk(trial, site, log, rates=rising(rule * BELOW, rule * ABOVE))
        progress.follow(steps, total=STEPS, what="range test", show=show)
    test = judged(config, log, rule=rule, picture=picture)
    curve.draw(test)
    return test


def judged(config: Config, log: Log, *, rule: float, picture: Path) -> RangeTest:
    """What the losses say. Rates are suggested only where there is a fall to go by."""
    first, means = config.stages[0], smoothed(log.losses)
    is_clear = has_fallen(log.losses, means)
    return RangeTest(
        rates=tuple(log.rates),
        losses=tuple(log.losses),
        smoothed=tuple(means),
        steepest=steepest(log.rates, means) if is_clear else None,
        valley=valley(log.rates, means) if is_clear else None,
        setting=peak_rate(config.optim, batch=first.batch, fixed=first.peak_rate),
        rule=rule,
        batch=first.batch,
        optimizer=config.optim.optimizer,
        scale=rule_rate(config.optim, batch=first.batch, lr=1.0),
        ended=log.ended,
        is_interrupted=log.is_interrupted,
        caution=caution(config, log, is_clear=is_clear),
        picture=picture,
    )


def walk(trial: Trial, site: Site, log: Log, *, rates: Sequence[float]) -> Iterator[int]:
    """The steps of a fresh run at given rates, until the loss has risen far; yields their number so far."""
    config, task = trial.config, trial.task
    given = config.tune.weights
    pretrained = weights.read(given, model=config.model.model) if given else None
    state = start.fresh(config, task, trial.data, site, pretrained=pretrained).state
    gear, at = step.geared(config, state, task, site), state.at
    route = long_enough(config, trial.data, steps=len(rates))
    plans = order.training_plans(route, seed=at.seed, epoch=0, position=0, rank=0, world=1, window=config.loader.window)
    threads, pin = decode_threads(config.loader.threads, site.world), site.device.type == "cuda"
    with contextlib.closing(task.batches(trial.data.train, plans, seed=at.seed, threads=threads, pin=pin)) as batches:
        for rate in rates:
            try:
                sums = step.gradients(gear, batches, atoms=route.atoms, compute="compute")
                if sums is not None:
                    step.update(gear, rate=rate)
            except Exception as error:
                refuse_out_of_memory(error, batch=route.stages[0].batch, atoms=route.atoms)
                raise
            if sums is None or site.stop.by is not None:
                log.ended, log.is_interrupted = f"{site.stop.by} came", True
                return
            at.step += 1
            if not noted(log, rate=rate, loss=(sums[task.score_names.index("loss")] / sums[-1]).item()):
                return
            yield len(log.rates)
    log.ended = f"all {len(rates)} steps are done"


def long_enough(config: Config, data: Dataset, *, steps: int) -> order.Route:
    """The way of a run as its first stage begins it, with epochs for all steps of the test."""
    first = dataclasses.replace(config.stages[0], epochs=steps)
    return order.Route(
        count=len(data.train), stages=(first,), atoms=config.train.atoms, last_step=config.train.last_step
    )


def refuse_out_of_memory(error: Exception, *, batch: int, atoms: int) -> None:
    """Say what to do about a step that does not fit into memory."""
    if memory.is_out_of_memory(error):
        raise Problem(
            f"out of memory with a batch of {batch} in {atoms} atoms: {str(error).strip().splitlines()[0]}",
            fix=f"give --atoms {2 * atoms}, or a smaller --batch",
        ) from None


def rising(lowest: float, highest: float) -> list[float]:
    """The rates of all steps, each the same multiple of the one before."""
    return [lowest * (highest / lowest) ** (number / (STEPS - 1)) for number in range(STEPS)]


def noted(log: Log, *, rate: float, loss: float) -> bool:
    """Take in the loss of a step, and say whether to go on."""
    if not math.isfinite(loss):
        log.ended = f"the loss is not finite at a rate of {rate:.2g}"
        return False
    log.rates.append(rate)
    log.losses.append(loss)
    mean = smoothed(log.losses)[-1]
    log.lowest = min(log.lowest, mean)
    if mean > RISEN * log.lowest:
        log.ended = f"the loss has risen to {RISEN:g} x its lowest at a rate of {rate:.2g}"
        return False
    return True


def smoothed(losses: Sequence[float]) -> list[float]:
    """The mean of the losses around each step, near ones weighing most; of the last step, that of those before it.

    A mean of only the steps before lags behind: the fall then seems to come at rates several times too high.
    """
    places = np.arange(len(losses))
    weighing = BETA ** np.abs(places[:, None] - places)
    means: list[float] = (weighing @ np.asarray(losses) / weighing.sum(axis=1)).tolist()
    return means


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """The rate at which losses fall fastest for an equal rise of the rate's logarithm; None where none falls.

    Only before the lowest loss: a fall after it is the recovery from a rate that was too high.
    """
    kept, seen = rates[FIRST:-LAST], losses[FIRST:-LAST]
    falls = np.diff(seen[: int(np.argmin(seen)) + 1]) if len(seen) else np.empty(0)
    if len(falls) == 0 or falls.min() >= 0:
        return None
    return kept[int(falls.argmin())]


def valley(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """The rate in the middle of the longest fall, small bumps left out (fastai, callback/schedule.py, `valley`)."""
    kept, seen = rates[FIRST:-LAST], losses[FIRST:-LAST]
    # The longest falling subsequence that ends at each step.
    lengths: list[int] = []
    for number, loss in enumerate(seen):
        lengths.append(1 + max((lengths[k] for k in range(number) if seen[k] > loss), default=0))
    if not lengths or max(lengths) < 2:
        return None
    end = lengths.index(max(lengths))
    third = max(lengths) / 3
    return kept[max(0, end - max(lengths)) + int(third) + int(third / 2)]


def has_fallen(losses: Sequence[float], means: Sequence[float]) -> bool:
    """Whether a curve has a fall that is more than chance."""
    seen = means[FIRST:-LAST]
    if not seen:
        return False
    # Twice what the losses of two steps differ by without any learning; the median leaves jumps out.
    noise = 2 * np.median(np.abs(np.diff(losses[: FIRST + int(np.argmin(seen)) + 1])))
    return bool(seen[0] - min(seen) > max(noise, 1e-3 * seen[0]))


def caution(config: Config, log: Log, *, is_clear: bool) -> str | None:
    """What speaks against going by a test, if anything does."""
    if not is_clear:
        return NO_FALL
    if log.is_interrupted:
        return CUT_SHORT
    return FROZEN if config.tune.freeze_epochs else None
