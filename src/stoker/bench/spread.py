"""Measurements in short: their middle, the least and the most, and how many there were."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Some measurements of one thing."""

    middle: float
    """the median"""
    least: float
    most: float
    count: int


def spread(values: Iterable[float]) -> Spread:
    """The spread of measurements, of which there must be one."""
    found = list(values)
    return Spread(middle=statistics.median(found), least=min(found), most=max(found), count=len(found))
