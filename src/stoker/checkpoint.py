"""Checkpoints on disk: folders with a hash manifest, renamed into place whole. Knows files, not what is in them."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from stoker import runs, units
from stoker.errors import Problem
from stoker.runs import Run

MANIFEST = "manifest.json"
# What a run saves.
MODEL, OPTIMIZER, EMA, STATE = "model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"
KEPT = 2
# A manifest, folders, pointers and lines of metrics need some space too.
SLACK_BYTES = 10**6


class Torn(Exception):
    """A checkpoint that is not whole. Its text says how."""


def folder(run: Run, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return run.checkpoints / f"{step:08d}"


def write(run: Run, step: int, files: Mapping[str, bytes | memoryview]) -> Path:
    """Save files as the checkpoint of a step: all of them, on the disk, or nothing."""
    manifest = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    with put_in_place(run, step, size=sum(map(len, files.values()))) as temporary:
        for name, data in {**files, MANIFEST: json.dumps(manifest, indent=1).encode()}.items():
            write_file(temporary / name, data)
    return folder(run, step)


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file of a checkpoint, and make it last through a power cut."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def copy(source: Path, run: Run, step: int) -> Path:
    """Copy the folder of a checkpoint into a run: whole, with the hashes of its manifest, or not at all."""
    verify(source, hashes=False)  # those of the copy are looked at
    names = [MANIFEST, *manifest_of(source)]
    with put_in_place(run, step, size=folder_bytes(source)) as temporary:
        for name in names:
            shutil.copyfile(source / name, temporary / name)
            runs.sync(temporary / name)
        verify(temporary)
    return folder(run, step)


@contextlib.contextmanager
def put_in_place(run: Run, step: int, *, size: int) -> Iterator[Path]:
    """A folder to fill, which becomes the checkpoint of a step when that is done, and goes when it fails."""
    dest = folder(run, step)
    temporary, old = run.checkpoints / f".{dest.name}.tmp", run.checkpoints / f".{dest.name}.old"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        runs.sync(temporary)
        # The same step saved again (over a torn one, say) takes the place of what is there.
        if dest.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(dest, old)
        os.rename(temporary, dest)
        runs.sync(run.checkpoints)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        mend(run)
        if isinstance(error, OSError) and error.errno in runs.FULL:
            raise runs.full(dest, error, size=size) from None
        raise


def mend(run: Run) -> None:
    """Bring back a checkpoint that was moved aside for its successor, where a kill came before that took its place."""
    for old in run.checkpoints.glob(".*.old"):
        dest = run.checkpoints / old.name.removeprefix(".").removesuffix(".old")
        if not dest.exists():
            # Another process of the same run may do the same at this moment.
            with contextlib.suppress(FileNotFoundError):
                os.replace(old, dest)


def manifest_of(dest: Path) -> dict[str, dict[str, Any]]:
    """What the files of a checkpoint should be: bytes and SHA-256 by name."""
    try:
        manifest = json.loads((dest / MANIFEST).read_bytes())
        return {
            name: {"bytes": int(entry["bytes"]), "sha256": str(entry["sha256"])} for name, entry in manifest.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Torn(f"{dest}: {error!r}" if isinstance(error, KeyError) else f"{dest}: {error}") from None


def read(dest: Path, *, only: Container[str] | None = None) -> dict[str, bytes]:
    """The files of a checkpoint, or those of them that are asked for, each checked against its hash."""
    manifest = {name: entry for name, entry in manifest_of(dest).items() if only is None or name in only}
    try:
        files = {name: (dest / name).read_bytes() for name in manifest}
    except (OSError, ValueError) as error:
        raise Torn(f"{dest}: {error}") from None
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != manifest[name]["sha256"]:
            raise Torn(f"{dest / name} has not the hash that {MANIFEST} says")
    return files


def verify(dest: Path, *, hashes: bool = True) -> None:
    """Find out whether a checkpoint is whole without keeping it in memory. Sizes alone cost next to nothing."""
    for name, entry in manifest_of(dest).items():
        try:
            size = (dest / name).stat().st_size
            if size != entry["bytes"]:
                raise Torn(f"{dest / name} has {size} bytes, and {MANIFEST} says {entry['bytes']}")
            if hashes:
                with open(dest / name, "rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
                if found != entry["sha256"]:
                    raise Torn(f"{dest / name} has not the hash that {MANIFEST} says")
        except (OSError, ValueError) as error:
            raise Torn(f"{dest}: {error}") from None


def steps(run: Run) -> list[int]:
    """The steps that have a checkpoint, the newest first."""
    return sorted((int(p.name) for p in run.checkpoints.glob("*") if p.name.isdigit()), reverse=True)


def newest_whole(run: Run, *, trusted: Container[int] = ()) -> int | None:
    """The newest step whose checkpoint is whole. For those that are trusted, sizes are proof enough."""
    return next((step for step in steps(run) if not is_torn(folder(run, step), hashes=step not in trusted)), None)


def find(run: Run, name: str) -> Path:
    """A checkpoint by the name of its pointer (latest, best, epoch_N), its step, or the path of either."""
    for pointer in (run.pointer(name), Path(name)):
        if (place := pointed(pointer)) is not None:
            return place
    for candidate in (folder(run, int(name)) if name.isdigit() else Path(name), Path(name)):
        if (candidate / MANIFEST).exists():
            return candidate
    have = ", ".join(str(step) for step in steps(run)) or "none"
    names = [known for known in named(run) if known != "sound"]
    raise Problem(
        f"there is no checkpoint {name} in {run.folder} (steps: {have})",
        fix=f"give one that is there: --checkpoint {' or '.join(names) or 'STEP'}, or the path of a checkpoint folder",
    )


def point(run: Run, name: str, step: int) -> None:
    """Let a name stand for the checkpoint of a step."""
    runs.write_whole(run.pointer(name), folder(run, step).name + "\n")


def pointed_step(pointer: Path) -> int | None:
    """The step that a pointer names. Another file that was given by mistake is not read out."""
    if pointer.is_file() and pointer.stat().st_size < 64 and (text := pointer.read_text("latin-1").strip()).isdecimal():
        return int(text)
    return None


def pointed(pointer: Path) -> Path | None:
    """Where the checkpoint is that a pointer names."""
    step = pointed_step(pointer)
    return None if step is None else folder(Run(pointer.parent), step)


def named(run: Run) -> dict[str, int]:
    """The steps that names stand for: latest, best, epoch_N, and sound, which a run that goes astray goes back to."""
    pointers = (*(run.pointer(name) for name in ("latest", "best", "sound")), *sorted(run.folder.glob("epoch_*")))
    return {pointer.name: step for pointer in pointers if (step := pointed_step(pointer)) is not None}


def prune(run: Run, *, keep: int = KEPT, trusted: Container[int] = ()) -> None:
    """Remove checkpoints that are neither among the newest nor named; the newest whole one stays whatever they are."""
    present = steps(run)
    stay = {*present[:keep], *named(run).values()}
    surplus = [step for step in present if step not in stay]
    # Hashes are read only where something would go, and only until one is found whole: mostly the first, a trusted one.
    good = newest_whole(run, trusted=trusted) if surplus else None
    if good is not None:
        for step in surplus:
            if step != good:
                remove(run, step)


def remove(run: Run, step: int) -> None:
    """Remove a checkpoint: at once and as a whole, whenever a kill comes."""
    gone = run.checkpoints / f".{step:08d}.gone.tmp"
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):  # it can stay: no room is made, and that is found out elsewhere
        os.replace(folder(run, step), gone)
    shutil.rmtree(gone, ignore_errors=True)


def remove_after(run: Run, step: int) -> None:
    """Remove the checkpoints of all later steps, when training goes back to one. Nothing goes unless a whole one stays.

    Names go with what they stand for; latest goes back too.
    """
    good = next((earlier for earlier in steps(run) if earlier <= step and not is_torn(folder(run, earlier))), None)
    if good is None:
        return
    for name, named_step in named(run).items():
        if named_step > step and name == "latest":
            point(run, name, good)
        elif named_step > step:
            run.pointer(name).unlink(missing_ok=True)
    for later in steps(run):
        if later > step:
            remove(run, later)


def is_torn(dest: Path, *, hashes: bool = True) -> bool:
    """Whether a checkpoint is not whole."""
    try:
        verify(dest, hashes=hashes)
    except Torn:
        return True
    return False


def folder_bytes(dest: Path) -> int:
    """The size of the files in a folder."""
    return sum(path.stat().st_size for path in dest.glob("*"))


def free_bytes(run: Run) -> int:
    """The space left on a run's disk. Quotas and reserves can make it less."""
    place = run.checkpoints.absolute()
    return shutil.disk_usage(next(p for p in (place, *place.parents) if p.exists())).free


def spare(run: Run, *, trusted: Container[int] = ()) -> list[int]:
    """The checkpoints that can give way to a new one, the oldest first: all but the named and the newest whole one."""
    stay = {step for name, step in named(run).items() if name != "latest"} | {newest_whole(run, trusted=trusted)}
    return [step for step in reversed(steps(run)) if step not in stay] if None not in stay else []


def make_room(run: Run, needed_bytes: int, *, trusted: Container[int] = ()) -> None:
    """See to it that a checkpoint has space. Older ones give way, where that is enough; else it is a Problem."""
    free = free_bytes(run)
    if free >= needed_bytes:
        return
    older = spare(run, trusted=trusted)
    sizes = {step: folder_bytes(folder(run, step)) for step in older}
    if free + sum(sizes.values()) < needed_bytes:
        raise Problem(
            f"the disk is full: a checkpoint in {run.checkpoints} needs {units.bytes_text(needed_bytes)}, and "
            f"{units.bytes_text(free)} are free",
            fix="free some space: training goes on, and the last whole checkpoint is kept",
        )
    for step in older:
        if free < needed_bytes:
            remove(run, step)
            free += sizes[step]


def check_space(run: Run, needed_bytes: int, *, copies: int) -> None:
    """Refuse to begin where the disk can't hold as many checkpoints as a run has at a time."""
    there = sum(folder_bytes(folder(run, step)) for step in spare(run))
    wanted = max(copies * needed_bytes - there, needed_bytes) + SLACK_BYTES
    if (free := free_bytes(run)) < wanted:
        raise Problem(
            f"the disk of {run.folder} is too small: {units.count_text(copies, 'checkpoint')} of "
            f"{units.bytes_text(needed_bytes)} each need {units.bytes_text(wanted)} more, and "
            f"{units.bytes_text(free)} are free",
            fix="free some space, put the run on another disk with --name PATH, or give a smaller --keep-last",
        )
