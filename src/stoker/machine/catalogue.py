"""What GPUs and rented machines are said to do and to cost: the rows that ship, and the user's own over them.

Every row has its date and its source. A figure that sources disagree about is left out, and must be measured.
A machine that rents out a share of a GPU is not in it.
"""

import csv
import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker import units
from stoker.errors import Problem

GPUS, INSTANCES = (Path(__file__).with_name(name) for name in ("gpus.csv", "instances.csv"))
GENERATIONS = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
VENDOR_WORDS = {"nvidia", "tesla", "quadro"}
GIGA, TERA = 1e9, 1e12
CLOSE = 5
# The columns, the name's first. Each carries its unit; nvlink is each way.
GPU_COLUMNS = (
    "gpu", "nvml_names", "generation", "memory_gb", "bandwidth_gb_per_second", "fp32_tflops", "tf32_tflops",
    "fp16_tflops", "bf16_tflops", "bf16_measured_tflops", "nvlink_gb_per_second", "is_conflict", "confidence", "date",
    "source",
)  # fmt: skip
INSTANCE_COLUMNS = (
    "instance", "gpu", "gpus", "gpu_memory_mib", "vcpus", "ram_gib", "network_baseline_gbit", "network_peak_gbit",
    "nvme_gb", "disk_mb_per_second", "on_demand_dollars_per_hour", "spot_low_dollars_per_hour",
    "spot_high_dollars_per_hour", "coremark", "pcie_lanes", "is_retired", "date", "source",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GpuSpec:
    """What a data sheet says about a GPU, as a program sees it: a K80 is half of its board."""

    name: str
    nvml_names: tuple[str, ...]
    generation: str
    memory_bytes: int
    """by the data sheet's gigabytes of 10^9, which is at most what there is"""
    bandwidth_bytes_per_second: float
    flops: dict[str, float]
    """a second, dense, by precision; what is missing is not known"""
    matmul_measured_flops: float | None
    """the most that people measured in bf16"""
    nvlink_bytes_per_second: float | None
    """each way, all links together; 0 has none"""
    source: str
    date: str
    confidence: str
    is_conflict: bool
    """sources disagree: what is missing must be measured, never quoted"""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine for rent."""

    name: str
    gpu: str
    """the name of a GpuSpec, which the catalogue may not have"""
    gpus: int
    gpu_memory_bytes: int | None
    """of each GPU"""
    vcpus: int | None
    ram_bytes: int | None
    network_baseline_bytes_per_second: float | None
    """what lasts; "up to" is for minutes"""
    network_peak_bytes_per_second: float | None
    nvme_bytes: int | None
    disk_bytes_per_second: float | None
    """of network disks, lasting"""
    on_demand_dollars_per_hour: float | None
    spot_low_dollars_per_hour: float | None
    spot_high_dollars_per_hour: float | None
    coremark: float | None
    """of all vCPUs"""
    pcie_lanes: int | None
    is_retired: bool
    date: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """GPUs and machines by name."""

    gpus: dict[str, GpuSpec]
    instances: dict[str, Instance]

    def gpu(self, name: str) -> GpuSpec | None:
        """The GPU of that name, which may be the driver's ("NVIDIA A100-SXM4-40GB"); None if there is none."""
        wanted = _plain(name)
        for spec in self.gpus.values():
            if wanted in (_plain(spec.name), *map(_plain, spec.nvml_names)):
                return spec
        return None

    def instance(self, name: str) -> Instance | None:
        """The machine of that name; None if there is none."""
        return self.instances.get(name.strip().lower())

    def close(self, name: str) -> tuple[str, ...]:
        """Names of machines and GPUs that look like a name that is not known, the closest first."""
        known, wanted = {each.lower(): each for each in (*self.instances, *self.gpus)}, name.strip().lower()
        begun = [each for each in known if wanted and each.startswith(wanted)]
        alike = difflib.get_close_matches(wanted, known, n=CLOSE, cutoff=0.5)
        return tuple(known[each] for each in dict.fromkeys([*begun, *alike]))[:CLOSE]


def read(extra: Path | None = None) -> Catalogue:
    """The catalogue that ships, with the rows of the user's file over it.

    A file has columns of gpus.csv or of instances.csv, at least the name. A row of a known name replaces the cells that
    it fills; others are added.
    """
    gpus, instances = _rows(GPUS), _rows(INSTANCES)
    if extra is not None:
        for row in _rows(extra):
            is_instance = "instance" in row.cells
            _lay_over(instances if is_instance else gpus, row, "instance" if is_instance else "gpu")
    specs, machines = [_gpu(row) for row in gpus], [_instance(row) for row in instances]
    return Catalogue(
        gpus={spec.name: spec for spec in specs}, instances={machine.name.lower(): machine for machine in machines}
    )


@dataclass(frozen=True, kw_only=True)
class _Row:
    """The cells of a line, by column, and where they stand."""

    path: Path
    line: int
    cells: dict[str, str]

    def wrong(self, column: str, what: str) -> Problem:
        """What to tell about a cell."""
        return Problem(f"{self.path}, line {self.line}, column {column}: {what}", fix=f"correct it in {self.path}")

    def text(self, column: str) -> str:
        """A cell that must not be empty."""
        if not self.cells.get(column):
            raise self.wrong(column, "it is empty, and a row of a new name needs it")
        return self.cells[column]

    def maybe(self, column: str, factor: float = 1.0) -> float | None:
        """A number in base units; None for an empty cell."""
        text = self.cells.get(column, "")
        try:
            value = float(text) if text else 0.0
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise self.wrong(column, f"{text!r} is not a number of at least 0")
        return value * factor if text else None

    def whole(self, column: str, factor: float = 1.0) -> int | None:
        """A whole number in base units; None for an empty cell."""
        value = self.maybe(column, factor)
        if value is not None and factor == 1 and value != round(value):
            raise self.wrong(column, f"{self.cells[column]!r} is not a whole number")
        return None if value is None else round(value)

    def number(self, column: str, factor: float = 1.0) -> float:
        """A number in base units that must be there, and more than 0."""
        self.text(column)
        value = self.maybe(column, factor)
        if not value:
            raise self.wrong(column, "it must be more than 0")
        return value

    def flag(self, column: str) -> bool:
        """Yes or no; no for an empty cell."""
        text = self.cells.get(column, "").lower()
        if text not in ("", "yes", "no"):
            raise self.wrong(column, f"{text!r} is neither yes nor no")
        return text == "yes"


def _rows(path: Path) -> list[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines, restval="")
            columns = tuple(name.strip() for name in reader.fieldnames or ())
            known = _columns(path, columns)
            reader.fieldnames = columns
            return [_row(path, reader.line_num, cells, known) for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Problem(
            f"{path} can't be read as a catalogue: {error}", fix="give a CSV file of GPUs or machines"
        ) from None


def _columns(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    known = INSTANCE_COLUMNS if "instance" in columns else GPU_COLUMNS
    for place, name in enumerate(columns, start=1):
        if name not in known or name in columns[: place - 1]:
            what = "is there twice" if name in known else "is not known"
            fix = f"name the columns of {path} as these are, or leave them out: {', '.join(known)}"
            raise Problem(f"{path}, line 1, column {place}: {name!r} {what}", fix=fix)
    if known[0] not in columns:
        fix = f"name a column 'gpu' (with {', '.join(known[1:5])}, ...) or one 'instance'"
        raise Problem(f"{path}, line 1: it has no column with names of GPUs or machines", fix=fix)
    return known


def _row(path: Path, line: int, cells: dict[Any, Any], known: tuple[str, ...]) -> _Row:
    if None in cells:
        raise Problem(f"{path}, line {line}: it has more cells than line 1", fix=f"correct it in {path}")
    row = _Row(path=path, line=line, cells={name: text.strip() for name, text in cells.items()})
    if not row.cells[known[0]]:
        raise row.wrong(known[0], "it is empty, and a row needs its name")
    return row


def _lay_over(rows: list[_Row], own: _Row, key: str) -> None:
    given = {name: text for name, text in own.cells.items() if text}
    # The old date and source don't stand for new figures; and who fills in a disputed figure has decided.
    fresh = {"date": "not stated", "source": str(own.path)} | given
    if any(name.endswith("_tflops") for name in given):
        fresh = {"is_conflict": "no"} | fresh
    for place, row in enumerate(rows):
        if _plain(row.cells[key]) == _plain(own.cells[key]):
            name = {key: row.cells[key]}
            rows[place] = _Row(path=own.path, line=own.line, cells=row.cells | fresh | name)
            return
    rows.append(_Row(path=own.path, line=own.line, cells=fresh))


def _gpu(row: _Row) -> GpuSpec:
    generation = row.text("generation").lower()
    if generation not in GENERATIONS:
        raise row.wrong("generation", f"{generation!r} is none of {', '.join(GENERATIONS)}")
    rates = {name: row.maybe(f"{name}_tflops", TERA) for name in PRECISIONS}
    names = row.cells.get("nvml_names", "").split(";")
    return GpuSpec(
        name=row.text("gpu"),
        nvml_names=tuple(name.strip() for name in names if name.strip()),
        generation=generation,
        memory_bytes=round(row.number("memory_gb", GIGA)),
        bandwidth_bytes_per_second=row.number("bandwidth_gb_per_second", GIGA),
        flops={name: rate for name, rate in rates.items() if rate},
        matmul_measured_flops=row.maybe("bf16_measured_tflops", TERA),
        nvlink_bytes_per_second=row.maybe("nvlink_gb_per_second", GIGA),
        source=row.text("source"),
        date=row.text("date"),
        confidence=row.cells.get("confidence") or "not stated",
        is_conflict=row.flag("is_conflict"),
    )


def _instance(row: _Row) -> Instance:
    bit = GIGA / 8
    return Instance(
        name=row.text("instance"),
        gpu=row.text("gpu"),
        gpus=row.whole("gpus") or round(row.number("gpus")),
        gpu_memory_bytes=row.whole("gpu_memory_mib", units.MIB),
        vcpus=row.whole("vcpus"),
        ram_bytes=row.whole("ram_gib", units.GIB),
        network_baseline_bytes_per_second=row.maybe("network_baseline_gbit", bit),
        network_peak_bytes_per_second=row.maybe("network_peak_gbit", bit),
        nvme_bytes=row.whole("nvme_gb", GIGA),
        disk_bytes_per_second=row.maybe("disk_mb_per_second", 1e6),
        on_demand_dollars_per_hour=row.maybe("on_demand_dollars_per_hour"),
        spot_low_dollars_per_hour=row.maybe("spot_low_dollars_per_hour"),
        spot_high_dollars_per_hour=row.maybe("spot_high_dollars_per_hour"),
        coremark=row.maybe("coremark"),
        pcie_lanes=row.whole("pcie_lanes"),
        is_retired=row.flag("is_retired"),
        date=row.text("date"),
        source=row.text("source"),
    )


def _plain(name: str) -> str:
    """A name without its vendor, and without the ways to write it."""
    words = re.split(r"[^a-z0-9.]+", name.lower())
    return " ".join(word for word in words if word and word not in VENDOR_WORDS)
