"""Runs that are repeats of each other as one line of a table: mean, spread and number of each figure. Pure."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from stoker.config import AugmentConfig, ImageConfig, LoaderConfig, ManyConfig, ModelConfig
from stoker.machine.usage import Spread
from stoker.report.comparison.row import Row

Scaling = Literal["same batch a process", "same batch in all"]
# The first that there is something to measure by is told: the work of a process stays the same, or that of a step.
SCALINGS: tuple[Scaling, ...] = ("same batch a process", "same batch in all")
# The settings that a step's time may depend on, apart from those with a column of their own.
PARTS = (AugmentConfig, ImageConfig, LoaderConfig, ManyConfig, ModelConfig)
SPEED = (*(item.name for part in PARTS for item in fields(part)), "optimizer", "clip", "ema", "freeze_epochs", "stages")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure over repeats."""

    mean: float
    spread: float | None = None
    """sample standard deviation; None of a single run"""
    count: int | None = 1
    """runs that it was measured in; None where somebody reported a spread and not of how many"""
    least: float | None = None
    """of all samples of all runs, for gauges"""
    most: float | None = None


# What is measured, in the order of the table.
FIGURES = (
    "top1_percent", "top5_percent", "last_top1_percent", "epochs", "seconds_per_epoch", "samples_per_second",
    "gpu_busy_percent", "cpu_percent", "peak_memory_bytes", "data_wait_share", "wall_seconds", "lost_seconds",
    "dollars", "target_seconds", "target_dollars",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A line of the table: a run, or several that are repeats of each other."""

    runs: tuple[Row, ...]
    figures: dict[str, Figure | None]
    """by name; None was not measured"""
    samples_per_second_per_process: float | None = None
    scaling_efficiency: float | None = None
    """samples/s of a process, as a share of what it is with the fewest processes of the same kind in this table"""
    scaling_kind: Scaling | None = None
    """what is the same in those"""

    @property
    def first(self) -> Row:
        """what was asked for, which is the same for all"""
        return self.runs[0]

    @property
    def name(self) -> str:
        """the runs by name; of many, the first ones"""
        names = [run.name for run in self.runs]
        return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"

    def mean(self, name: str) -> float | None:
        """a figure without its spread"""
        figure = self.figures.get(name)
        return figure.mean if figure is not None else None


def grouped(rows: Sequence[Row]) -> tuple[Cell, ...]:
    """Rows as lines of a table: repeats together, at the place of the first of them, and everything else alone."""
    groups: dict[str, list[Row]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.alike or f"alone {number}", []).append(row)
    return tuple(cell(group) for group in groups.values())


def cell(rows: Sequence[Row]) -> Cell:
    """The line of some repeats."""
    figures = {name: figure(getattr(row, name) for row in rows) for name in FIGURES}
    speed, processes = figures["samples_per_second"], rows[0].processes
    share = speed.mean / processes if speed is not None and processes else None
    return Cell(runs=tuple(rows), figures=figures, samples_per_second_per_process=share)


def figure(values: Iterable[float | Spread | None]) -> Figure | None:
    """A figure over runs; None where none of them has it."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    means = [value.mean if isinstance(value, Spread) else value for value in known]
    ranges = [value for value in known if isinstance(value, Spread)]
    return Figure(
        mean=statistics.fmean(means),
        spread=statistics.stdev(means) if len(means) > 1 else None,
        count=len(means),
        least=min((one.least for one in ranges), default=None),
        most=max((one.most for one in ranges), default=None),
    )


def scaled(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The same lines, each with how well it scales where there are some of fewer processes to measure it by."""
    kinds = {scaling: alike(cells, scaling) for scaling in SCALINGS}
    return tuple(measured(one, kinds) for one in cells)


def measured(one: Cell, kinds: Mapping[Scaling, Mapping[tuple[object, ...], Sequence[Cell]]]) -> Cell:
    """The same line with how well it scales, by the first kind that tells."""
    for scaling, groups in kinds.items():
        share = efficiency(one, groups.get(kind(one, scaling), ()))
        if share is not None:
            return replace(one, scaling_efficiency=share, scaling_kind=scaling)
    return one


def alike(cells: Sequence[Cell], scaling: Scaling) -> dict[tuple[object, ...], list[Cell]]:
    """The lines whose speed is known, those together that differ by the number of processes alone."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for one in cells:
        if one.samples_per_second_per_process and one.first.batch:
            groups.setdefault(kind(one, scaling), []).append(one)
    return groups


def efficiency(one: Cell, group: Sequence[Cell]) -> float | None:
    """A process's speed as a share of what it is with the fewest; None where all have the same number of them."""
    known = [(other.first.processes or 1, other.samples_per_second_per_process or 0.0) for other in group]
    speed, fewest = one.samples_per_second_per_process, min((count for count, _ in known), default=0)
    if speed is None or all(count == fewest for count, _ in known):
        return None
    return speed / statistics.fmean(there for count, there in known if count == fewest)


def kind(one: Cell, scaling: Scaling) -> tuple[object, ...]:
    """What must be equal for two speeds to differ by the number of processes alone."""
    row = one.first
    # Of a reported machine the name may tell more than its GPU: a container, a driver. Unknown data is like no other.
    where = row.name if row.is_reported or row.data is None else None
    batch = row.batch / row.processes if scaling == SCALINGS[0] and row.batch and row.processes else row.batch
    how = tuple(row.settings.get(name) for name in SPEED)
    return row.is_reported, where, row.device, row.model, row.dtype, row.resolution, row.data, batch, how
