"""The columns of a comparison: what each is called, means, and shows of a line. One list for all that is printed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stoker import units
from stoker.report.comparison.repeats import FIGURES, Cell, Figure
from stoker.report.comparison.row import Row

Unit = Literal["text", "count", "percent", "busy", "share", "seconds", "per_second", "bytes", "dollars"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table."""

    key: str
    title: str
    unit: Unit = "text"
    meaning: str = ""
    rank: int = 9
    """how early it comes where there is room for a few only; 0 is first"""

    @property
    def is_number(self) -> bool:
        """whether it is aligned and sorted as one"""
        return self.unit != "text"


COLUMNS = (
    Column(key="run", title="run", rank=0),
    Column(key="state", title="state", rank=0),
    Column(key="repeats", title="n", unit="count", rank=3,
           meaning="runs that are alike in everything that changes result or speed, apart from the seed"),
    Column(key="machine", title="machine", rank=2, meaning="of the last start, also the GPUs that were not used"),
    Column(key="model", title="model", rank=2),
    Column(key="batch", title="batch", unit="count", rank=2, meaning="samples of a step, over all processes"),
    Column(key="processes", title="processes", unit="count", rank=2, meaning="each has a GPU, where there are GPUs"),
    Column(key="dtype", title="dtype", rank=2, meaning="fp32, or the narrower one of mixed precision"),
    Column(key="top1_percent", title="top-1", unit="percent", rank=1, meaning="of the best evaluation"),
    Column(key="samples_per_second", title="samples/s", unit="per_second", rank=1,
           meaning="of training under way, over all processes"),
    Column(key="wall_seconds", title="time", unit="seconds", rank=3,
           meaning="from the first start, with the time in which the run was down"),
    Column(key="dollars", title="cost", unit="dollars", rank=3, meaning="so far, packing and lost work included"),
    Column(key="target_seconds", title="to target", unit="seconds", rank=1,
           meaning="time until the first evaluation that reached the target was over"),
    Column(key="target_dollars", title="cost to target", unit="dollars", rank=3, meaning="cost until then"),
    Column(key="epochs", title="epochs", unit="count", rank=4, meaning="whole ones trained, and those asked for"),
    Column(key="seconds_per_epoch", title="epoch", unit="seconds", rank=4,
           meaning="an epoch under way, with evaluation and checkpoints"),
    Column(key="scaling_efficiency", title="scaling", unit="share", rank=5,
           meaning="samples/s of a process, of what it is with the fewest processes in this table, for the same model, "
           "machine, data, dtype and settings"),
    Column(key="scaling_kind", title="scaling at", rank=5,
           meaning="what is the same in what scaling is measured by: the batch of a process, or that of a whole step"),
    Column(key="gpu_busy_percent", title="GPU busy", unit="busy", rank=5,
           meaning="of the time in which some kernel ran, and its range: a sign of life, not of use"),
    Column(key="cpu_percent", title="CPU", unit="busy", rank=5, meaning="100 % is one core, and its range"),
    Column(key="peak_memory_bytes", title="memory", unit="bytes", rank=5,
           meaning="the most that the first process took: of its GPU, or of the machine where there is none"),
    Column(key="data_wait_share", title="data wait", unit="share", rank=5,
           meaning="of a step under way, in which training waited for samples"),
    Column(key="limit", title="limit", rank=6, meaning="what would make the run most faster if it were free"),
    Column(key="settings", title="settings", rank=2, meaning="those that differ and have no column"),
    Column(key="resolution", title="pixels", unit="count", rank=7, meaning="a side, in training"),
    Column(key="atom", title="atom", unit="count", rank=8, meaning="samples that go through the network together"),
    Column(key="hosts", title="hosts", unit="count", rank=8),
    Column(key="cpu", title="beside GPUs", rank=7, meaning="the CPU that makes samples ready, and its allotted cores"),
    Column(key="top5_percent", title="top-5", unit="percent", rank=6, meaning="of the same evaluation"),
    Column(key="last_top1_percent", title="last top-1", unit="percent", rank=8, meaning="of the last evaluation"),
    Column(key="lost_seconds", title="lost", unit="seconds", rank=8,
           meaning="of the time, work done for nothing, or by later starts only to be able to go on"),
    Column(key="torch", title="torch", rank=6),
    Column(key="driver", title="driver", rank=7),
    Column(key="cuda", title="CUDA", rank=7, meaning="that torch was built for"),
    Column(key="cudnn", title="cuDNN", rank=7),
    Column(key="image", title="image", rank=7, meaning="of the container"),
    Column(key="stoker", title="Stoker", rank=8),
    Column(key="packages", title="packages", rank=8, meaning="those whose versions differ"),
    Column(key="why", title="why", rank=9, meaning="what ended a run that is not done"),
    Column(key="folder", title="folder", rank=9),
)  # fmt: skip
BY_KEY = {column.key: column for column in COLUMNS}
DEFINITIONS = {column.key: column.meaning for column in COLUMNS if column.meaning}
APART = ("why", "folder")
"""what has its own place, or none, where people read"""
DECIMALS = {"percent": 2, "busy": 0}
GAUGES = ("gpu_busy_percent", "cpu_percent")
SOFTWARE = ("torch", "driver", "cuda", "cudnn", "image", "stoker")


def value(cell: Cell, column: Column) -> Any:
    """What a line has in a column, to sort and to count by: a number, a text, or None."""
    key, row = column.key, cell.first
    if key in FIGURES:
        return cell.mean(key)
    if key in SOFTWARE:
        return getattr(row.software, key)
    if key == "packages":
        return listed(row.software.packages)
    if key == "settings":
        return listed(row.settings)
    return {
        "run": cell.name,
        "state": state(row),
        "repeats": len(cell.runs) if not row.is_reported else None,
        "scaling_efficiency": cell.scaling_efficiency,
        "scaling_kind": cell.scaling_kind,
        "folder": " ".join(run.folder for run in cell.runs if run.folder) or None,
    }.get(key, getattr(row, key, None))


def state(row: Row) -> str:
    """What became of a run, or of what somebody reported."""
    if not row.is_reported:
        return row.status
    return "reported" if row.status == "done" else f"reported, {row.status}"


def text(cell: Cell, column: Column) -> str | None:
    """What a line shows in a column; None where nothing was measured."""
    figure = cell.figures.get(column.key)
    if figure is None:
        found = value(cell, column)
        return None if found is None else found if isinstance(found, str) else quantity(found, column.unit)
    if column.key == "epochs":
        asked = cell.first.epochs_asked
        whole = quantity(figure.mean, "count")
        return whole if asked is None or asked == figure.mean else f"{whole} of {asked}"
    if column.key == "lost_seconds" and figure.mean == 0:
        # Nothing was lost, which needs no words.
        return None
    return measured(figure, column.unit, runs=len(cell.runs))


def measured(figure: Figure, unit: Unit, *, runs: int) -> str:
    """A figure with its spread and its range, and of how many runs where it is not of all."""
    said = quantity(figure.mean, unit) if figure.spread is None else paired(figure.mean, figure.spread, unit)
    if figure.least is not None and figure.most is not None and figure.most > figure.least:
        said += f" ({figure.least:.0f}-{figure.most:.0f})"
    return said if figure.count is None or figure.count == runs else f"{said} ({figure.count} of {runs})"


def quantity(number: float, unit: Unit) -> str:
    """A number as people read it."""
    if unit in ("percent", "busy"):
        return f"{number:.{DECIMALS[unit]}f} %"
    if unit == "share":
        return units.percent_text(number)
    if unit == "seconds":
        return units.seconds_text(number)
    if unit == "bytes":
        return units.bytes_text(number)
    if unit == "dollars":
        return f"${number:,.2f}" if number >= 1 or number == 0 else f"${number:.3g}"
    if unit == "per_second":
        return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def paired(mean: float, spread: float, unit: Unit) -> str:
    """A mean and its spread: one unit for both, and two digits of the spread."""
    if unit == "seconds" and mean >= 100:
        return f"{quantity(mean, unit)} ± {quantity(spread, unit)}"
    size, before, after = 1.0, "", ""
    if unit in ("percent", "busy", "share"):
        size, after = 0.01 if unit == "share" else 1.0, " %"
    elif unit == "seconds":
        size, after = (1.0, " s") if mean >= 1 else (0.001, " ms")
    elif unit == "bytes":
        size = next((size for size in (units.GIB, units.MIB, units.KIB) if mean >= size), 1)
        after = f" {units.bytes_text(size).split()[1]}"
    elif unit == "dollars":
        before = "$"
    decimals = max(0, 1 - math.floor(math.log10(spread / size))) if spread > 0 else 1
    decimals = min(decimals, {"dollars": 6, "percent": 2, "seconds": 2}.get(unit, 1))
    return f"{before}{mean / size:,.{decimals}f} ± {before}{spread / size:,.{decimals}f}{after}"


def listed(values: dict[str, Any]) -> str | None:
    """Names with their values, in one line; None where there are none."""
    return ", ".join(f"{name} {told(one)}" for name, one in values.items()) or None


def told(one: Any) -> str:
    """The value of a setting, in words."""
    if isinstance(one, list | tuple):
        return " ".join(map(str, one)) or "none"
    return {"": "none", "True": "on", "False": "off", "None": "none"}.get(str(one), str(one))


def raw(cell: Cell | None, column: Column) -> dict[str, Any]:
    """What a line has in a column, by the name of each field that this makes in a file; without a line, the names."""
    if column.key not in FIGURES:
        return {NAMES.get(column.key, column.key): value(cell, column) if cell is not None else None}
    figure = cell.figures.get(column.key) if cell is not None else None
    ends = ("least", "most") if column.key in GAUGES else ()
    found = {column.key: figure.mean if figure else None}
    found |= {f"{column.key}_{part}": getattr(figure, part) if figure else None for part in ("spread", *ends)}
    if column.key == "epochs":
        found |= {"epochs_asked": cell.first.epochs_asked if cell is not None else None}
    return found


# Of columns whose key has no unit.
NAMES = {
    "batch": "batch_samples", "atom": "atom_samples", "resolution": "resolution_pixels", "repeats": "runs",
    "scaling_efficiency": "scaling_efficiency_share",
}  # fmt: skip


def shared(cells: Sequence[Cell], columns: Sequence[Column]) -> dict[str, str]:
    """The columns that say the same of all lines, by key: they need no column. None of a single line."""
    found = {}
    for column in columns:
        texts = {text(cell, column) for cell in cells}
        only = next(iter(texts)) if len(texts) == 1 and len(cells) > 1 else None
        if only is not None and column.key not in ("run", "state", "repeats"):
            found[column.key] = only
    return found
