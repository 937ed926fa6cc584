"""The front door: what the command line does, as functions that return values. Importing it does not import torch."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import dist, recipes, records, runs, settings
from stoker import doctor as doctors
from stoker import work as works
from stoker.config import Config, DataConfig
from stoker.doctor import MachineProfile
from stoker.errors import Problem
from stoker.machine import gauges, verdict
from stoker.machine.verdict import Verdict
from stoker.records import LedgerRow, RunRecord

if TYPE_CHECKING:
    from stoker.bench.loader import LoaderBench
    from stoker.data.packing import Packed
    from stoker.data.survey import Look
    from stoker.tasks.classify import Answer


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run after training: its folder, its record, and where its time went."""

    folder: Path
    record: RunRecord
    verdict: Verdict
    was_done: bool
    """whether there was nothing left to do"""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a network reaches on held-out samples."""

    checkpoint: str
    data: str
    samples: int
    unreadable: int
    scores: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a source holds."""

    data: str
    classes: dict[str, int]
    """samples by class, training and held out together"""
    train_samples: int
    held_out_samples: int
    held_out: str
    total_bytes: int
    empty: tuple[str, ...]
    ignored_files: int
    look: "Look"
    sheet: Path | None
    """where the contact sheet is"""


def configured(recipe: str | None = None, *, file: Path | None = None, **values: Any) -> Config:
    """Settings from defaults < recipe < file < values."""
    config = recipes.recipe(recipe) if recipe else Config()
    if file is not None:
        config = settings.read_file(file, config)
    return settings.with_values(config, values)


def train(
    recipe: str | None = None,
    *,
    config: Config | None = None,
    name: str | Path | None = None,
    resume: str | None = None,
    auto_resume: bool = True,
    show: bool = True,
    **values: Any,
) -> Trained:
    """Train a run, or go on with it: the same call again is resume.

    Settings come from `config`, or from a recipe and values by their names: train("demo", epochs=3).
    """
    config = settings.with_values(config, values) if config is not None else configured(recipe, **values)
    folder = Path(name or f"{recipe or 'train'}-{settings.address(config)}")
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
        runs.create(folder, config, resumed_from=str(Path(resume).resolve()) if resume else None)
    dist.barrier(place)
    try:
        return work(folder, show=show)
    except (Problem, KeyboardInterrupt):
        if place.is_first:
            runs.remove_untrained(folder)
        raise


def work(run: str | Path, *, show: bool = True) -> Trained:
    """Bring an existing run to its end."""
    opened = runs.open_run(Path(run))
    was_done = records.read_record(opened.record).status == "done"
    record = works.work(opened.folder, show=show)
    return Trained(folder=opened.folder, record=record, verdict=why(opened.folder), was_done=was_done)


def why(run: str | Path) -> Verdict:
    """Where a run's time went and what limits it; for running, finished and killed runs."""
    opened = runs.open_run(Path(run))
    return verdict.judge(records.read_lines(opened.ledger, LedgerRow), state=runs.state_text(opened))


def doctor(disk: str | Path = ".") -> MachineProfile:
    """What this machine is, what is wrong with it, and how to fix it."""
    return doctors.examine(Path(disk))


def inspect(
    data: str, *, most: int = 10_000, sheet: str | Path | None = None, show: bool = True, cache: str = "data"
) -> Inspection:
    """What a source holds, with up to `most` samples decoded to see that they can be, and a contact sheet (a PNG)."""
    from stoker import progress
    from stoker.data import sheet as sheets
    from stoker.data import sources, survey

    found = sources.open_source(DataConfig(data=data, allow_bad=1.0, cache=cache), seed=0, show=show)
    if sheet is not None:
        sheets.check_place(Path(sheet))
    threads = gauges.cores_allotted().allotted
    both = (found.train, found.held_out)
    total = sum(len(index) for index in both)
    shares = [-(-most * len(index) // total) for index in both]
    seen: list[survey.Seen] = []

    def counted() -> Any:
        for index, share in zip(both, shares, strict=True):
            for one in survey.looks(index, survey.chosen(index, share), threads=threads):
                seen.append(one)
                yield len(seen)

    progress.follow(counted(), total=sum(min(s, len(i)) for s, i in zip(shares, both)), what="decoding", show=show)
    counts = [
        int((found.train.label == n).sum() + (found.held_out.label == n).sum()) for n in range(len(found.classes))
    ]
    if sheet is not None:
        sheets.contact_sheet(found).save(sheet, format="PNG")
    return Inspection(
        data=data,
        classes=dict(zip(found.classes, counts, strict=True)),
        train_samples=len(found.train),
        held_out_samples=len(found.held_out),
        held_out=found.held_out_name,
        total_bytes=sum(index.total_bytes for index in both),
        empty=tuple(str(path) for path in found.empty),
        ignored_files=found.ignored,
        look=survey.summed(seen),
        sheet=None if sheet is None else Path(sheet),
    )


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


def eval(run: str | Path, *, data: str | None = None, checkpoint: str = "best", show: bool = True) -> Scores:  # noqa: A001
    """Score a run's network on its held-out samples, or on other data of the same classes."""
    from stoker.train import trained

    return Scores(**trained.evaluate(runs.open_run(Path(run)), data=data, name=checkpoint, show=show))


def predict(run: str | Path, inputs: Sequence[str | Path], *, checkpoint: str = "best") -> "list[Answer]":
    """What a run's network sees in some pictures."""
    from stoker.train import trained

    return trained.predict(runs.open_run(Path(run)), [Path(path) for path in inputs], name=checkpoint)


def bench_loader(
    data: str = "dials:2000x256",
    *,
    resolution: int = 224,
    workers: int = 0,
    rounds: int = 5,
    repeat: int = 0,
    peers: str = "",
    show: bool = True,
) -> "LoaderBench":
    """How fast samples are made ready, against other loaders on the same files with as many cores."""
    from stoker.bench import loader

    allotted = gauges.cores_allotted().allotted
    if not 0 <= workers <= allotted:
        raise Problem(
            f"{workers} workers were asked for, and {allotted} cores are allotted", fix=f"give 1 to {allotted}, or 0"
        )
    if rounds < 1 or repeat < 0:
        raise Problem(f"rounds is {rounds} and repeat is {repeat}", fix="give 1 round or more, and 0 or more to repeat")
    cores = workers or allotted
    return loader.compare(
        data, resolution=resolution, workers=cores, rounds=rounds, repeat=repeat, keys=peers, show=show
    )


def as_json(value: Any) -> Any:
    """An answer as what `--json` prints: a dataclass as its fields."""
    return records.finite(dataclasses.asdict(value))
