"""The measurements of a machine one after another, under a bar. What is younger than a week is not measured again."""

import contextlib
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from stoker import progress
from stoker.doctor import cpu, disk, gpu
from stoker.doctor.profile import WEEK_SECONDS, CpuSpeed, DiskSpeed, GpuSpeed, LinkSpeed, Measured

# Of each measurement; some take twice as long.
SECONDS = 1.0
# How the names of what is missing begin, part by part.
PARTS = {"gpus": "GPU", "cpu": "CPU", "disk": "disk"}


@dataclass(frozen=True, kw_only=True)
class Course:
    """What is to be measured."""

    folder: Path
    """whose disk it is"""
    data: str | None
    """whose pictures are decoded; None draws some"""
    source: Path | None
    """a folder that may hold many files, to be listed"""
    gpus: int
    """how many can be measured"""
    gpu_trouble: str | None
    """why there are no more"""
    link: LinkSpeed | None
    kept: Measured | None
    """what was measured before"""
    missing: dict[str, str] = field(default_factory=dict)

    def fresh(self) -> frozenset[str]:
        """The parts that were measured not long ago, on the same data and disk, and need not be again."""
        kept = self.kept
        if kept is None or not 0 <= time.time() - kept.at < WEEK_SECONDS:
            return frozenset()
        is_fresh = {
            "gpus": len(kept.gpus) == self.gpus,
            "cpu": kept.cpu is not None and (self.data is None or kept.cpu.data == self.data),
            "disk": kept.disk is not None
            and kept.disk.folder == str(self.folder)
            and (self.source is None or kept.disk.data == str(self.source)),
        }
        return frozenset(part for part, yes in is_fresh.items() if yes)

    def steps(self) -> int:
        """How many measurements there are to come."""
        counts = {"gpus": self.gpus * gpu.STEPS, "cpu": cpu.STEPS, "disk": disk.STEPS}
        return sum(count for part, count in counts.items() if part not in self.fresh())


def followed(course: Course, *, show: bool) -> Measured:
    """Measure, and say what is being measured."""
    with contextlib.ExitStack() as held:
        steps = held.enter_context(contextlib.closing(walk(course)))
        total = course.steps()
        bar = None
        if show and total and sys.stderr.isatty():
            bar = held.enter_context(progress.bar(unit="", transient=True))
            task = bar.add_task("", total=total, rate="")
        done = 0
        while True:
            try:
                name = next(steps)
            except StopIteration as end:
                found: Measured = end.value
                return found
            if bar is None:
                progress.say(f"measure  {name}", show=show)
            else:
                bar.update(task, description=name, completed=done)
            done += 1


def walk(course: Course) -> Generator[str, None, Measured]:
    """Measure what is not fresh; yields the name of each measurement before it begins."""
    fresh, kept, missing = course.fresh(), course.kept, dict(course.missing)
    gpus: tuple[GpuSpeed, ...] = ()
    picture: CpuSpeed | None = None
    room: DiskSpeed | None = None
    if kept is not None:
        starts = tuple(PARTS[part] for part in fresh)
        missing |= {what: why for what, why in kept.missing.items() if what.startswith(starts) and starts}
        gpus, picture, room = kept.gpus, kept.cpu, kept.disk
    if "gpus" not in fresh:
        gpus = yield from gpu.measured(missing, seconds=SECONDS) if course.gpus else nothing()
    if course.gpu_trouble is not None:
        missing["GPUs"] = course.gpu_trouble
    if "cpu" not in fresh:
        picture = yield from cpu.measured(missing, data=course.data, seconds=SECONDS)
    if "disk" not in fresh:
        room = yield from disk.measured(missing, folder=course.folder, data=course.source, seconds=SECONDS)
    return Measured(
        at=kept.at if kept is not None and fresh else time.time(),
        gpus=gpus,
        cpu=picture,
        disk=room,
        # A link is that of the processes that are here now: an old one says nothing about them.
        link=course.link,
        missing=missing,
    )


def nothing() -> Generator[str, None, tuple[GpuSpeed, ...]]:
    """The measurements of no GPU."""
    yield from ()
    return ()
