"""The front door: what the command line does, as functions that return values. Importing it does not import torch."""

import contextlib
import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import dist, notebook, progress, recipes, records, runs, settings
from stoker import doctor as doctors
from stoker import work as works
from stoker.api.benches import bench_ledger, bench_loader, bench_resume, bench_step
from stoker.api.looks import compare, report, watch
from stoker.api.usage import eval, export, predict  # noqa: A004
from stoker.config import Config
from stoker.data import inspection
from stoker.data.inspection import Inspection
from stoker.doctor import MachineProfile
from stoker.errors import Problem
from stoker.machine import evidence, gauges, verdict
from stoker.machine.verdict import Verdict
from stoker.plan import asking, history
from stoker.plan.history import History, Past
from stoker.plan.outlook import Plan
from stoker.plan.prospect import Ask
from stoker.records import Event, RunRecord

if TYPE_CHECKING:
    from stoker.data.packing import Packed
    from stoker.train.range_test import RangeTest


__all__ = [
    "Ask",
    "Trained",
    "as_json",
    "bench_ledger",
    "bench_loader",
    "bench_resume",
    "bench_step",
    "compare",
    "configured",
    "doctor",
    "eval",
    "export",
    "extended",
    "inspect",
    "lr_find",
    "pack",
    "plan",
    "plans",
    "predict",
    "report",
    "train",
    "watch",
    "why",
    "work",
]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run after training: its folder, its record, and where its time went."""

    folder: Path
    record: RunRecord
    verdict: Verdict
    was_done: bool
    """whether there was nothing left to do"""
    plan: Past | None = None
    """what it was planned to take and what it took; None where there was no plan, or it is not done"""
    report: Path | None = None
    """its page; None where none was asked for, or this start has written none"""


def configured(recipe: str | None = None, *, file: Path | None = None, **values: Any) -> Config:
    """Settings from defaults < recipe < file < values."""
    config = recipes.recipe(recipe) if recipe else Config()
    if file is not None:
        config = settings.read_file(file, config)
    return settings.with_values(config, values)


def extended(run: str | Path) -> Config:
    """The settings of a run as they came to be, to begin another with."""
    opened = runs.open_run(Path(run))
    return settings.with_values(runs.read_config(opened), records.read_record(opened.record).fixed)


def train(
    recipe: str | None = None,
    *,
    config: Config | None = None,
    name: str | Path | None = None,
    resume: str | None = None,
    extend: str | Path | None = None,
    auto_resume: bool = True,
    show: bool = True,
    **values: Any,
) -> Trained:
    """Train a run, or go on with it: the same call again is resume.

    Settings come from `config`, or from a recipe and values by their names: train("demo", epochs=3). With `extend`
    they come from another run, whose state the new run begins with.
    """
    if config is None:
        config = configured(recipe) if extend is None else extended(extend)
    config = settings.with_values(config, values)
    origin = runs.open_run(Path(extend)) if extend is not None else None
    if origin is not None:
        resume = _said_extension(origin, config, recipe=recipe, resume=resume, show=show)
    begins = origin.folder.name if origin is not None else recipe or "train"
    folder = Path(name or f"{begins}-{settings.address(config)}")
    if folder.parent == Path():
        folder = runs.ROOT / folder
    place = dist.world()
    if place.size > 1:
        if not auto_resume:
            raise Problem(
                "--no-auto-resume picks a new name, and many processes can't agree on one",
                fix="give a new name with --name instead",
            )
        # The others must not look for the folder before the first has made it.
        dist.start(place, dist.choose_device(config.model.device, place))
    if place.is_first:
        folder = folder if auto_resume else runs.unused(folder)
        _created(folder, config, resumed_from=str(Path(resume).resolve()) if resume else None)
    dist.barrier(place)
    try:
        return _followed(folder, show=show)
    except (Problem, KeyboardInterrupt):
        if place.is_first:
            runs.remove_untrained(folder)
        raise


def lr_find(
    recipe: str | None = None, *, config: Config | None = None, picture: str | Path = "lr-find.png", show: bool = True,
    **values: Any,
) -> "RangeTest":  # fmt: skip
    """Try rising learning rates on a run's first steps, draw the losses and suggest a rate. Nothing is saved."""
    config = settings.with_values(configured(recipe) if config is None else config, values)
    if dist.world().size > 1:
        raise Problem(
            f"--lr-find is for one process, and here are {dist.world().size}",
            fix="start it without torchrun, with the same --batch: stoker train ... --lr-find",
        )
    from stoker.data import sources

    # What needs no torch comes first: a wrong path is refused at once.
    sources.prepared(config.data, show=show)
    from stoker.train import curve, range_test

    curve.check_place(Path(picture))
    progress.say("lr-find  loading libraries and data", show=show)
    trial = range_test.prepared(config, show=show)
    works.try_samples(trial.config, trial.data)
    return range_test.measured(trial, picture=Path(picture), show=show)


def _followed(folder: Path, *, show: bool) -> Trained:
    """Bring a run to its end, shown where people look: in the cell of a notebook, or on the screen."""
    if show and dist.world().is_first and notebook.is_notebook():
        with notebook.Live(folder):
            return work(folder, show=False)
    return work(folder, show=show)


def _said_extension(origin: runs.Run, config: Config, *, recipe: str | None, resume: str | None, show: bool) -> str:
    """Say what a run changes of the one it extends, and return the checkpoint it begins with."""
    if recipe or resume:
        raise Problem(
            f"--extend {origin.folder} brings its own settings and state",
            fix=f"leave {recipe or '--resume'} out, and give what should change as flags",
        )
    if not origin.pointer("latest").exists():
        raise Problem(f"{origin.folder} has no checkpoint to go on from", fix=f"train it: stoker work {origin.folder}")
    changes = settings.identity_differences(extended(origin.folder), config)
    if not changes:
        raise Problem(
            f"nothing is changed of {origin.folder}",
            fix=f"give more --epochs, or go on with: stoker work {origin.folder}",
        )
    for change in changes:
        progress.say(f"extend   {change.name}: {change.old} -> {change.new}", show=show and dist.world().is_first)
    return str(origin.checkpoints / origin.pointer("latest").read_text().strip())


def _created(folder: Path, config: Config, *, resumed_from: str | None) -> None:
    """Make a run folder, or take up the one that is there, or the copy of it in the mirror."""
    if config.save.mirror:
        from stoker.train import mirror

        mirror.check(Path(config.save.mirror), runs.Run(folder))
        mirror.from_mirror(folder, Path(config.save.mirror))
    runs.create(folder, config, resumed_from=resumed_from)


def work(run: str | Path, *, show: bool = True) -> Trained:
    """Bring an existing run to its end."""
    opened = runs.open_run(Path(run))
    was_done = records.read_record(opened.record).status == "done"
    record = works.work(opened.folder, show=show)
    return Trained(
        folder=opened.folder, record=record, verdict=why(opened.folder), was_done=was_done, plan=history.past(opened),
        report=None if was_done else _reported(opened, record, show=show),
    )  # fmt: skip


def _reported(run: runs.Run, record: RunRecord, *, show: bool) -> Path | None:
    """Write the page of a run that has come to its end. A run is worth more than its page: no fault of it is raised."""
    is_over = record.status in ("done", "diverged")
    if not (is_over and dist.world().is_first and runs.read_config(run).save.report):
        return None
    progress.say("report   drawing charts", show=show)
    from stoker.report import writing

    try:
        return writing.write(run, has_twin=False).html
    except Exception as error:
        what = f"the report was not written: {error}; try again with: stoker report {run.folder}"
        with contextlib.suppress(OSError, Problem):  # the disk may be full
            runs.append_line(run.events, Event(at=time.time(), kind="report", what=what))
        progress.say(f"note     {what}", show=show)
        return None


def why(run: str | Path) -> Verdict:
    """Where a run's time went and what limits it; for running, finished and killed runs."""
    opened = runs.open_run(Path(run))
    return verdict.judge(verdict.sensible(evidence.gather(opened)))


def doctor(
    disk: str | Path | None = None, *, data: str | None = None, peer: str | None = None, again: bool = False,
    show: bool = True,
) -> MachineProfile:  # fmt: skip
    """What this machine is and does, what is wrong with it, and how to fix it."""
    return doctors.measure(Path(disk) if disk else None, data=data, peer=peer, again=again, show=show)


def inspect(
    data: str, *, most: int = 10_000, sheet: str | Path | None = None, show: bool = True, cache: str = "data"
) -> Inspection:
    """What a source holds, with up to `most` samples decoded to see that they can be, and a contact sheet (a PNG)."""
    return inspection.inspected(data, most=most, sheet=None if sheet is None else Path(sheet), cache=cache, show=show)


def pack(
    source: str | Path,
    dest: str | Path,
    *,
    short_side: int = 256,
    quality: int = 90,
    keep: bool = False,
    holdout: float = 0.1,
    seed: int = 0,
    shard_samples: int = 1024,
    allow_bad: float = 0.01,
    workers: int = 0,
    cache: str = "data",
    show: bool = True,
) -> "Packed":
    """Make a pack of any source, or go on with it: the same call again is resume."""
    if workers < 0:
        raise Problem(f"workers is {workers}", fix="give 1 or more, or 0 to take the cores allotted")
    from stoker.data import packing
    from stoker.data.packing import encode

    encoding = encode.Encoding(short_side=short_side, quality=quality, keep=keep)
    chosen = packing.Settings(
        encoding=encoding, shard_samples=shard_samples, holdout=holdout, seed=seed, allow_bad=allow_bad, cache=cache
    )
    cores = workers or gauges.cores_allotted().allotted
    return packing.pack_source(str(source), Path(dest), chosen, workers=cores, show=show)


def plan(
    recipe: str | None = None, *, config: Config | None = None, ask: Ask | None = None, show: bool = True, **values: Any
) -> Plan:  # fmt: skip
    """What a run will take on this machine and on others, from a short probe of its recipe here."""
    config = settings.with_values(configured(recipe) if config is None else config, values)
    return asking.answered(config, ask or Ask(), show=show)


def plans(folder: str | Path = runs.ROOT) -> History:
    """The plans of all runs of a folder against what came of them."""
    return history.over(sorted(path.parent for path in Path(folder).glob("*/plan.json")))


def as_json(value: Any) -> Any:
    """An answer as what `--json` prints: a dataclass as its fields."""
    return records.finite(dataclasses.asdict(value))
