"""Checkpoints on disk: folders with a hash manifest, renamed into place whole. Knows files, not what they mean."""

import hashlib
import json
import os
import shutil
from pathlib import Path

from stoker import runs
from stoker.errors import Problem
from stoker.runs import Run

MANIFEST = "manifest.json"
KEPT = 2


class Torn(Exception):
    """A checkpoint that is not whole. Its text says how."""


def folder(run: Run, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return run.checkpoints / f"{step:08d}"


def write(run: Run, step: int, files: dict[str, bytes]) -> Path:
    """Save files as the checkpoint of a step: all of them, on the disk, or nothing."""
    dest = folder(run, step)
    temporary = run.checkpoints / f".{dest.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    manifest = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    try:
        temporary.mkdir(parents=True)
        for name, data in {**files, MANIFEST: json.dumps(manifest, indent=1).encode()}.items():
            with open(temporary / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        runs.sync(temporary)
        # The same step saved again (over a torn one, say) takes the place of what is there.
        old = run.checkpoints / f".{dest.name}.old"
        shutil.rmtree(old, ignore_errors=True)
        if dest.exists():
            os.rename(dest, old)
        os.rename(temporary, dest)
        runs.sync(run.checkpoints)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if error.errno not in runs.FULL:
            raise
        size = sum(len(data) for data in files.values())
        raise runs.full(dest, error, size=size) from None
    return dest


def read(dest: Path) -> dict[str, bytes]:
    """The files of a checkpoint, each checked against its hash."""
    try:
        manifest = json.loads((dest / MANIFEST).read_text())
        files = {name: (dest / name).read_bytes() for name in manifest}
    except (OSError, ValueError) as error:
        raise Torn(f"{dest}: {error}") from None
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != manifest[name]["sha256"]:
            raise Torn(f"{dest / name} has not the hash that {MANIFEST} says")
    return files


def steps(run: Run) -> list[int]:
    """The steps that have a checkpoint, the newest first."""
    return sorted((int(p.name) for p in run.checkpoints.glob("*") if p.name.isdigit()), reverse=True)


def find(run: Run, name: str) -> Path:
    """A checkpoint by the name of its pointer (latest, best, epoch_N), its step, or the path of either."""
    for pointer in (run.pointer(name), Path(name)):
        # A pointer is a number in a small file; another file that was given by mistake is not read out.
        if pointer.is_file() and pointer.stat().st_size < 64 and (text := pointer.read_text().strip()).isdigit():
            return pointer.parent / run.checkpoints.name / text
    for candidate in (folder(run, int(name)) if name.isdigit() else Path(name), Path(name)):
        if (candidate / MANIFEST).exists():
            return candidate
    have = ", ".join(str(step) for step in steps(run)) or "none"
    raise Problem(
        f"there is no checkpoint {name} in {run.folder} (steps: {have})",
        fix="give latest, best, epoch_N, a step, or the path of a checkpoint folder",
    )


def point(run: Run, name: str, step: int) -> None:
    """Let a name stand for the checkpoint of a step."""
    runs.write_whole(run.pointer(name), folder(run, step).name + "\n")


def prune(run: Run) -> None:
    """Remove checkpoints that are neither among the newest nor pointed to."""
    pointers = [run.pointer("latest"), run.pointer("best"), *run.folder.glob("epoch_*")]
    named = {int(p.read_text()) for p in pointers if p.exists()}
    for step in steps(run)[KEPT:]:
        if step not in named:
            shutil.rmtree(folder(run, step), ignore_errors=True)
