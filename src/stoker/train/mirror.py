"""A second copy of a run on a disk that outlives the machine: MIRROR/RUN is a run folder too, with the same rules."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stoker import checkpoint, records, runs, settings
from stoker.checkpoint import Torn
from stoker.errors import Problem
from stoker.runs import Run


def check(mirror: Path, run: Run | None = None) -> None:
    """Refuse a mirror that could not take a checkpoint, before hours are trusted to it."""
    if run is not None:
        copy_of(run, mirror)
    try:
        # The folder itself is not made: where a volume is not mounted, that would fill the wrong disk.
        with tempfile.TemporaryFile(dir=mirror) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        raise Problem(
            f"the mirror {mirror} can't be written: {error.strerror}",
            fix="mount or make that folder, give another with --mirror, or leave --mirror out",
        ) from None


def copy_of(run: Run, mirror: Path) -> Run:
    """Where the mirror of a run is. Another place than the run itself, or it would be no second copy."""
    here, there = run.folder.resolve(), mirror.resolve() / run.folder.resolve().name
    if here == there or here == mirror.resolve() or here in there.parents or there in here.parents:
        raise Problem(
            f"the mirror {mirror} would be in the same place as the run {run.folder}",
            fix="give --mirror a folder on another disk, which outlives this one",
        )
    return Run(there)


def to_mirror(run: Run, mirror: Path, step: int | None, *, keep: int = checkpoint.KEPT) -> None:
    """Copy a run's records and the checkpoint of a step (None: only what has a name) to its mirror.

    A kill at any moment leaves a mirror that a run can go on from: the records come first, since lines beyond a
    checkpoint are cut off when it goes on, and lines that are missing would be missing for good.
    """
    there = copy_of(run, mirror)
    with told(there.folder):
        if not mirror.is_dir():
            raise Problem(f"the mirror {mirror} is not there", fix="mount it again: the next checkpoint is copied")
        refuse_another(run, there)
        checkpoint.mend(there)
        runs.tidy(there)
        # The record comes before the settings: a folder with settings is a run.
        for path in (run.record, run.config, *others(run)):
            if path.exists():
                runs.write_whole(there.folder / path.name, path.read_bytes())
        names = checkpoint.named(run)
        missing = set(names.values()) - set(checkpoint.steps(there)) - {step}
        torn = []
        for wanted in (*(() if step is None else (step,)), *sorted(missing)):
            try:
                checkpoint.copy(checkpoint.folder(run, wanted), there, wanted)
            except Torn as error:
                torn.append(str(error))
        if step is not None and not torn:
            # What is later was given up by a rollback that the mirror was not there for.
            checkpoint.remove_after(there, step)
        copy_names(names, there)
        checkpoint.prune(there, keep=keep, trusted=() if step is None or torn else {step})
        if step is None:
            copy_exhibits(run, there)
    if torn:
        raise Problem(f"not whole, so not copied: {'; '.join(torn)}", fix="see what is wrong with the disk of the run")


def from_mirror(run_folder: Path, mirror: Path) -> int | None:
    """Bring a run back from its mirror, where that is further; returns the step it can go on from then.

    Newer work in the run folder is never touched. The checkpoint to go on from comes last, so that a kill before it
    means that all is done again.
    """
    run = Run(run_folder)
    there = copy_of(run, mirror)
    if not there.config.exists():
        return None
    with told(run.folder):
        refuse_another(run, there)
        checkpoint.mend(run)
        step, own = checkpoint.newest_whole(there), checkpoint.newest_whole(run)
        if step is None or (own is not None and own >= step):
            return None
        kept = settings.as_json(runs.carried_on(there, runs.read_config(run if run.config.exists() else there)))
        runs.write_whole(run.record, there.record.read_bytes())
        runs.write_whole(run.config, kept)
        for path in others(there):
            if path.exists():
                runs.write_whole(run.folder / path.name, path.read_bytes())
        copy_exhibits(there, run)
        names = checkpoint.named(there)
        for wanted in sorted(set(names.values()) - {step} - set(checkpoint.steps(run))):
            with contextlib.suppress(Torn):
                checkpoint.copy(checkpoint.folder(there, wanted), run, wanted)
        copy_names({name: value for name, value in names.items() if value != step}, run)
        checkpoint.copy(checkpoint.folder(there, step), run, step)
        copy_names({**{name: value for name, value in names.items() if value == step}, "latest": step}, run)
    return step


def remove_after(run: Run, mirror: Path, step: int) -> None:
    """Remove the checkpoints of all later steps from a mirror too."""
    there = copy_of(run, mirror)
    with told(there.folder):
        if there.config.exists():
            refuse_another(run, there)
            checkpoint.remove_after(there, step)


def others(run: Run) -> list[Path]:
    """The records that a run needs to go on and to be reported on elsewhere, beside its record and its settings."""
    many = (path for name in ("ledger", "gauges") for path in sorted(run.folder.glob(f"{name}*.jsonl")))
    return [run.classes, run.machine, run.code, run.plan, run.metrics, run.events, *many]


def copy_exhibits(source: Run, dest: Run) -> None:
    """Let a run show what another shows. Pictures come first, so that each one that is spoken of is there."""
    if not source.exhibits.is_dir():
        return
    dest.exhibits.mkdir(parents=True, exist_ok=True)
    shown = sorted(source.exhibits.glob("[!.]*"), key=lambda path: (path.suffix == ".json", path.name))
    for path in shown:
        runs.write_whole(dest.exhibits / path.name, path.read_bytes())
    for old in {path.name for path in dest.exhibits.iterdir()} - {path.name for path in shown}:
        (dest.exhibits / old).unlink()


def copy_names(names: dict[str, int], there: Run) -> None:
    """Point names at checkpoints that are there, so that none points to nothing."""
    present = checkpoint.steps(there)
    for name, step in names.items():
        if step in present:
            checkpoint.point(there, name, step)


def refuse_another(run: Run, there: Run) -> None:
    """Refuse a mirror in which another run has the same name."""
    if run.config.exists() and run.record.exists() and there.config.exists():
        record, config = records.read_record(run.record), runs.read_config(run)
        if record.attempts[:1] and record.attempts[0].started_at == first_start(there):
            return  # what was fixed may have changed since: smaller atoms, say
        fixed = record.fixed if runs.has_begun(run) else {}
        runs.check_same(there, settings.with_values(config, fixed), resumed_from=record.resumed_from)


def first_start(run: Run) -> float | None:
    """When a run was first started: no two have it in common."""
    attempts = records.read_record(run.record).attempts
    return attempts[0].started_at if attempts else None


@contextlib.contextmanager
def told(place: Path) -> Iterator[None]:
    """Say what a failed copy means."""
    try:
        yield
    except OSError as error:
        raise Problem(
            f"{place} can't be copied to: {error}", fix="see whether its disk is there and not full"
        ) from None
