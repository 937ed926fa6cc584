"""Figures that somebody reported, from a CSV file, as rows beside measured ones."""

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.errors import Problem
from stoker.machine.usage import Spread
from stoker.report.comparison import repeats
from stoker.report.comparison.repeats import Cell, Figure
from stoker.report.comparison.row import Row, Software

COLUMNS = {
    "machine": "the machine, in words",
    "gpu": "the GPU's name; empty for a CPU",
    "model": "the network",
    "batch_per_gpu": "samples that go through a GPU together",
    "gpus": "how many GPUs; 0 for a CPU",
    "lr": "the learning rate",
    "dtype": "float32, float16, ...",
    "resolution": "pixels a side",
    "epochs": "epochs that were trained",
    "accuracy": "top-1, as a share of one",
    "accuracy_spread": "its standard deviation",
    "s_per_epoch": "seconds an epoch",
    "samples_per_s": "samples a second",
    "gpu_utilisation": 'such as "83% (65-97%)"',
    "cpu_utilisation": "100% is one core",
    "peak_memory_gb": "of a GPU, in 10^9 bytes",
    "status": "ok, outofmemory, or what went wrong",
}
NEEDED = ("machine", "model")
DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
STATUS = {"": "done", "ok": "done", "outofmemory": "oom", "oom": "oom"}
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?(?:\s*\((\d+(?:\.\d+)?)\s*%?\s*-\s*(\d+(?:\.\d+)?)\s*%?\))?")


def cells(path: Path) -> tuple[Cell, ...]:
    """The lines of a file of reported figures. An unknown column or a number that is none is refused."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            names = list(reader.fieldnames or [])
            check(path, names)
            return tuple(cell(values, where=f"{path}, line {reader.line_num}") for values in reader)
    except OSError as error:
        raise Problem(f"{path} can't be read: {error.strerror}", fix="give the path of a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Problem(f"{path} is no CSV file: {error}", fix="save it as CSV in UTF-8") from None


def check(path: Path, names: list[str]) -> None:
    """Refuse a file whose columns are not known, or which lacks those that a row needs."""
    unknown = [name for name in names if name not in COLUMNS]
    lacking = [name for name in NEEDED if name not in names]
    if unknown or lacking:
        what = [f"unknown are {', '.join(map(repr, unknown))}"] * bool(unknown)
        what += [f"it has no {' and no '.join(lacking)}"] * bool(lacking)
        known = ", ".join(f"{name} ({meaning})" for name, meaning in COLUMNS.items())
        raise Problem(f"the columns of {path} are not those of reported figures: {'; '.join(what)}",
                      fix=f"known columns are {known}; leave the others out")  # fmt: skip


def cell(values: Mapping[str | Any, str | Any], *, where: str) -> Cell:
    """A line of the file as a line of the table. A spread counts as one, of nobody knows how many runs."""
    if None in values or None in values.values():
        raise Problem(f"{where} has not as many fields as there are columns", fix="correct that line")
    given = {name: value.strip() for name, value in values.items()}
    found = repeats.cell([row(given, where=where)])
    top1, spread = found.figures["top1_percent"], number(given, "accuracy_spread", where)
    if top1 is None or spread is None:
        return found
    figure = Figure(mean=top1.mean, spread=100 * spread, count=None)
    return replace(found, figures={**found.figures, "top1_percent": figure})


def row(given: Mapping[str, str], *, where: str) -> Row:
    """A line of the file in the words of a run."""
    gpus, atom = whole(given, "gpus", where), whole(given, "batch_per_gpu", where)
    processes = None if gpus is None else max(gpus, 1)
    status = given.get("status", "")
    accuracy, memory = number(given, "accuracy", where), number(given, "peak_memory_gb", where)
    dtype = given.get("dtype") or None
    rate = number(given, "lr", where)
    return Row(
        name=given["machine"],
        folder=None,
        is_reported=True,
        status=STATUS.get(status, "failed"),
        why=None if status in STATUS else status,
        machine=" x ".join(filter(None, [str(gpus) if gpus else "", given.get("gpu", "")])) or "CPU",
        device=given.get("gpu") or "CPU",
        processes=processes,
        model=given["model"],
        batch=atom * processes if atom and processes else None,
        atom=atom,
        dtype=DTYPES.get(dtype or "", dtype),
        resolution=whole(given, "resolution", where),
        epochs=whole(given, "epochs", where),
        top1_percent=None if accuracy is None else 100 * accuracy,
        seconds_per_epoch=number(given, "s_per_epoch", where),
        samples_per_second=number(given, "samples_per_s", where),
        gpu_busy_percent=percent(given, "gpu_utilisation", where) if gpus != 0 else None,
        cpu_percent=percent(given, "cpu_utilisation", where),
        peak_memory_bytes=None if memory is None else memory * 1e9,
        software=Software(),
        settings={} if rate is None else {"lr": rate},
    )


def number(given: Mapping[str, str], name: str, where: str) -> float | None:
    """A field as a number; None where it is empty."""
    text = given.get(name, "")
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise Problem(f"{where}: {name} is {text!r}", fix="give a number, or leave it empty")
    return value


def whole(given: Mapping[str, str], name: str, where: str) -> int | None:
    """A field as a whole number; None where it is empty."""
    value = number(given, name, where)
    if value is not None and (value < 0 or value != int(value)):
        raise Problem(f"{where}: {name} is {given[name]!r}", fix="give a whole number, or leave it empty")
    return None if value is None else int(value)


def percent(given: Mapping[str, str], name: str, where: str) -> Spread | None:
    """A percentage with its range, as people write it down: 83% (65-97%)."""
    text = given.get(name, "")
    if not text:
        return None
    found = PERCENT.fullmatch(text)
    if found is None:
        raise Problem(f"{where}: {name} is {text!r}", fix="write it as 83% or as 83% (65-97%)")
    mean, least, most = found.groups()
    return Spread(mean=float(mean), least=float(least or mean), most=float(most or mean))
