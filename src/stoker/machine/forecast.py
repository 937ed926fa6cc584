"""A whole run on a machine before it starts: hours, dollars, what limits it. Pure."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from stoker import units
from stoker.machine import predict, price
from stoker.machine.catalogue import Instance
from stoker.machine.predict import Costs, Interval, Job, Step, around

# How far a save or the setup may be from what was measured once.
FIXED_UNSURE = 0.25
# The share of a GPU's memory that a process can have: the rest is the driver's and is lost in pieces.
USABLE_MEMORY = 0.94

Meets = Literal["surely", "likely", "perhaps", "no", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A stage of a run: its steps, and what they cost."""

    costs: Costs
    job: Job
    steps: int
    epochs: int
    changes: tuple[str, ...] = ()
    """what differs from the probe: keys of predict.UNSURE"""
    low: Costs | None = None
    """the least that the parts may cost, where they were not measured on that machine"""
    high: Costs | None = None

    def step(self) -> Interval:
        """Seconds of a step."""
        unsure = predict.unsure(self.costs, *self.changes)
        low, likely, high = (
            predict.step(costs or self.costs, self.job).seconds for costs in (self.low, self.costs, self.high)
        )
        return Interval(low=low / (1 + unsure), likely=likely, high=high * (1 + unsure))


@dataclass(frozen=True, kw_only=True)
class Rest:
    """What a run does besides its steps; None is not measured."""

    evals: int = 0
    eval_samples: int = 0
    """of each evaluation, over all processes"""
    eval_sample_seconds: float | None = None
    """of one process, on that machine"""
    saves: int = 0
    save_seconds: float | None = None
    """of each, that training waits"""
    setup_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will take and cost on a machine."""

    machine: str
    machines: int
    processes: int
    steps: int
    step: Interval
    """mean over the run"""
    parts: Step
    """of the leg that takes longest"""
    without: dict[str, float]
    """seconds of that leg's step if one resource were free"""
    epoch: Interval
    """mean of the steps of an epoch"""
    total: Interval
    """seconds of the run, without what was not measured"""
    eval_seconds: float | None
    save_seconds: float | None
    setup_seconds: float | None
    limit: str
    """network, decode, disk, copies, launches, compute, checkpoints or evaluation"""
    slowdown: float
    """how many times as long the run takes as with its limit free, after its setup; 1 where that is compute"""
    memory_bytes: int | None
    """of the fullest process"""
    fits: bool | None
    on_demand_dollars: Interval | None
    spot_dollars: Interval | None
    spot_seconds: Interval | None
    notes: tuple[str, ...]
    is_retired: bool = False
    is_whole: bool = True
    """whether all parts of a step are in it: an exchange over a link that nobody knows is not"""
    """no longer sold, so never a choice"""

    @property
    def is_choice(self) -> bool:
        """Whether the run can be had there at all, as far as is known."""
        return self.fits is not False and not self.is_retired and self.is_whole


def forecast(
    machine: str,
    legs: Sequence[Leg],
    rest: Rest,
    *,
    machines: int = 1,
    memory_bytes: int | None = None,
    device_memory_bytes: int | None = None,
    instance: Instance | None = None,
    terms: price.Terms | None = None,
    notes: Sequence[str] = (),
) -> Forecast:
    """The run that these legs make up. Dollars need an instance, and those of spot machines also the terms."""
    processes, steps = legs[0].job.world, max(sum(leg.steps for leg in legs), 1)
    training = reduce(Interval.plus, (leg.step().times(leg.steps) for leg in legs))
    evaluation = _product(rest.evals, rest.eval_samples / processes, rest.eval_sample_seconds)
    saving = _product(rest.saves, 1, rest.save_seconds)
    total = _together(training, evaluation or 0.0, (saving or 0.0) + (rest.setup_seconds or 0.0))
    longest = max(legs, key=lambda leg: leg.steps * leg.step().likely)
    limit, gain = limited(legs, evaluation_seconds=evaluation or 0.0, saving_seconds=saving or 0.0)
    spot = price.spot(total, instance, terms, machines=machines) if instance and terms else None
    return Forecast(
        machine=machine,
        machines=machines,
        processes=processes,
        steps=steps,
        step=training.times(1 / steps),
        parts=predict.step(longest.costs, longest.job),
        without=predict.without(longest.costs, longest.job),
        epoch=training.times(1 / max(sum(leg.epochs for leg in legs), 1)),
        total=total,
        eval_seconds=evaluation,
        save_seconds=saving,
        setup_seconds=rest.setup_seconds,
        limit=limit,
        slowdown=_slowdown(limit, gain, total.likely - (rest.setup_seconds or 0.0)),
        memory_bytes=memory_bytes,
        fits=fitting(memory_bytes, device_memory_bytes),
        on_demand_dollars=price.on_demand(total, instance, machines=machines) if instance else None,
        spot_dollars=None if spot is None else spot.dollars,
        spot_seconds=None if spot is None else spot.seconds,
        notes=(*notes, *_gaps(longest.job, rest), *_prices(instance, spot)),
        is_retired=instance is not None and instance.is_retired,
        is_whole=all(leg.job.world == 1 or leg.job.link is not None for leg in legs),
    )


def _slowdown(limit: str, gain: float, working: float) -> float:
    """How many times as long a run takes as it would without so many seconds; computing is what it is for."""
    return 1.0 if limit == "compute" else working / max(working - gain, 1e-9)


def fitting(memory_bytes: int | None, device_memory_bytes: int | None) -> bool | None:
    """Whether a process fits into a GPU's memory; None where either is not known."""
    if memory_bytes is None or device_memory_bytes is None:
        return None
    return memory_bytes <= device_memory_bytes * USABLE_MEMORY


def limited(legs: Sequence[Leg], *, evaluation_seconds: float, saving_seconds: float) -> tuple[str, float]:
    """What limits a run, and the seconds that it would save if that were free.

    Of two things that go on side by side and take equally long, neither saves anything alone. So a resource counts by
    the mean of what it saves as the first to be free, and of what is left when it is the last that isn't.
    """
    counts = {"evaluation": evaluation_seconds, "checkpoints": saving_seconds}
    gains = dict(counts)
    for leg in legs:
        seconds, without = predict.step(leg.costs, leg.job).seconds, predict.without(leg.costs, leg.job)
        for name, rest_seconds in without.items():
            gain = seconds - rest_seconds
            gains[name] = gains.get(name, 0.0) + leg.steps * gain
            counts[name] = counts.get(name, 0.0) + leg.steps * (gain + alone(leg, name)) / 2
    limit = max(counts, key=lambda name: counts[name])
    return limit, gains[limit]


def alone(leg: Leg, name: str) -> float:
    """Seconds of a step in which only one resource is not free."""
    costs, job = leg.costs, leg.job if name == "network" else dataclasses.replace(leg.job, link=None)
    for other in predict.FREE:
        costs = costs if other == name else predict.freed(costs, other)
    return predict.step(costs, job).seconds


def _together(training: Interval, evaluation_seconds: float, fixed_seconds: float) -> Interval:
    """Steps, evaluations and the rest; evaluation is as unsure as the steps are, by the same network and machine."""
    scored = training.times(evaluation_seconds / training.likely) if training.likely else predict.NOTHING
    return training.plus(scored).plus(around(fixed_seconds, FIXED_UNSURE))


def _product(times: int, size: float, seconds: float | None) -> float | None:
    """Seconds of something done so many times; not done at all takes none, however long it would take."""
    if times == 0:
        return 0.0
    return None if seconds is None else times * size * seconds


def _gaps(job: Job, rest: Rest) -> list[str]:
    """What the total leaves out, because it was not measured."""
    gaps = []
    if job.world > 1 and job.link is None:
        gaps.append("how fast gradients travel between the processes is not known: their exchange is not in it")
    if rest.evals and rest.eval_sample_seconds is None:
        gaps.append(f"not measured, and not in it: {units.count_text(rest.evals, 'evaluation')}")
    if rest.saves and rest.save_seconds is None:
        gaps.append(f"not measured, and not in it: {units.count_text(rest.saves, 'checkpoint')}")
    if rest.setup_seconds is None:
        gaps.append("not measured, and not in it: the setup")
    return gaps


def _prices(instance: Instance | None, spot: price.Spot | None) -> list[str]:
    """What the dollars rest on."""
    if instance is None:
        return []
    found = [f"prices of {instance.name} as of {instance.date}: {instance.source}"]
    if instance.is_retired:
        found.append(f"{instance.name} is no longer sold")
    if instance.network_peak_bytes_per_second != instance.network_baseline_bytes_per_second:
        found.append('its network is reckoned by what lasts, not by its "up to"')
    return found + ([spot.note] if spot else [])


def dollars(forecast: Forecast) -> Interval | None:
    """The lower of a run's prices: on spot machines where there are any."""
    prices = [each for each in (forecast.on_demand_dollars, forecast.spot_dollars) if each is not None]
    return min(prices, key=lambda each: each.likely, default=None)


def cheapest(forecasts: Sequence[Forecast]) -> Forecast | None:
    """The one that likely costs least, of those that have a price, are still sold and not too small."""
    priced = [(cost.likely, each) for each in forecasts if each.is_choice and (cost := dollars(each))]
    return min(priced, key=lambda pair: pair[0])[1] if priced else None


def fastest(forecasts: Sequence[Forecast]) -> Forecast | None:
    """The one that likely takes least time, of those that are still sold and not too small."""
    return min((each for each in forecasts if each.is_choice), key=lambda each: each.total.likely, default=None)


def meets(forecast: Forecast, *, target_seconds: float | None = None, target_dollars: float | None = None) -> Meets:
    """Whether a run stays within a target of time, of dollars or of both."""
    if forecast.fits is False:
        return "no"
    order: tuple[Meets, ...] = ("surely", "likely", "perhaps", "no", "unknown")
    found: list[Meets] = ["surely"]
    for target, figure in ((target_seconds, forecast.total), (target_dollars, dollars(forecast))):
        if target is not None:
            found.append("unknown" if figure is None else _within(figure, target))
    return "no" if "no" in found else max(found, key=order.index)


def _within(figure: Interval, target: float) -> Meets:
    if figure.high <= target:
        return "surely"
    if figure.likely <= target:
        return "likely"
    return "perhaps" if figure.low <= target else "no"


@dataclass(frozen=True, kw_only=True)
class Explained:
    """How much of a slower step a slower link explains."""

    times: float
    """as long as before"""
    most_times: float
    """that the link explains, if the whole step had been an exchange"""
    unexplained_seconds: float
    sentence: str


def explained(fast_seconds: float, slow_seconds: float, *, times_slower: float) -> Explained:
    """Whether a link that is so many times slower is enough to explain a slower step."""
    times, rest = slow_seconds / fast_seconds, max(slow_seconds - times_slower * fast_seconds, 0.0)
    sentence = f"The step takes {times:.1f} times as long; the link, {times_slower:g} times slower, can explain that."
    if rest:
        shares = f"{units.seconds_text(rest)} of {units.seconds_text(slow_seconds)}"
        sentence = (
            f"The step takes {times:.1f} times as long, more than bandwidth explains: at most {times_slower:g} times. "
            f"{shares} have another cause, such as lost packets or a second user of the link."
        )
    return Explained(times=times, most_times=times_slower, unexplained_seconds=rest, sentence=sentence)
