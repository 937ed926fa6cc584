"""Dollars of hours: on demand, and on spot machines that may be taken away. Pure."""

import math
from dataclasses import dataclass

from stoker import units
from stoker.machine.catalogue import Instance
from stoker.machine.predict import Interval

# What is assumed: how long it takes to start on the next machine.
RESTART_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a run on spot machines has to reckon with."""

    checkpoint_seconds: float
    """from one checkpoint to the next"""
    mtbf_hours: float
    """for which a machine lasts, on average"""
    restart_seconds: float = RESTART_SECONDS


@dataclass(frozen=True, kw_only=True)
class Spot:
    """What a run takes and costs on spot machines."""

    seconds: Interval
    """work that is done again and restarts included"""
    dollars: Interval
    interruptions: float
    """as many as are to be expected"""
    note: str


def on_demand(total: Interval, instance: Instance, *, machines: int = 1) -> Interval | None:
    """Dollars of a run of so many seconds; None without a price."""
    if instance.on_demand_dollars_per_hour is None:
        return None
    return total.times(instance.on_demand_dollars_per_hour * machines / 3600)


def spot(total: Interval, instance: Instance, terms: Terms, *, machines: int = 1) -> Spot | None:
    """Dollars of a run on spot machines; None without prices.

    An interruption of any machine stops them all, undoes half the time between two checkpoints, and takes a restart.
    """
    low, high = instance.spot_low_dollars_per_hour, instance.spot_high_dollars_per_hour
    if low is None or high is None:
        return None
    rate = machines / (terms.mtbf_hours * 3600)
    seconds = total.times(1 + rate * (terms.checkpoint_seconds / 2 + terms.restart_seconds))
    hours = seconds.times(machines / 3600)
    undone, restart = (units.seconds_text(each) for each in (terms.checkpoint_seconds / 2, terms.restart_seconds))
    return Spot(
        seconds=seconds,
        # Prices in the middle of a range that may be tenfold: its geometric mean.
        dollars=Interval(low=hours.low * low, likely=hours.likely * math.sqrt(low * high), high=hours.high * high),
        interruptions=total.likely * rate,
        note=f"spot: ${low:g} to ${high:g} an hour ({instance.date}); assumed: a machine is taken away every "
        f"{terms.mtbf_hours:g} h, which undoes {undone} of work and takes {restart} to start again",
    )
