"""A run whose data costs nothing: Stoker's own loop over batches that are in memory already, some steps at a time."""

import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from stoker import dist, settings
from stoker.config import Config
from stoker.data.index import Index, made
from stoker.data.loader import Batch, Loader
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.errors import Problem
from stoker.machine.interrupts import StopRequest
from stoker.records import Seconds
from stoker.runs import Run
from stoker.tasks import Task
from stoker.tasks.classify import Classify, task_of
from stoker.train import fixed, loop, marks, memory, start
from stoker.train import site as sites
from stoker.train.book import Book
from stoker.train.ledger import Ledger
from stoker.train.saves import Saves
from stoker.train.screen import Screen
from stoker.train.setbacks import Setback
from stoker.train.site import Site

CLASSES = 1000
# Batches with pixels of their own, which come round again and again.
DIFFERENT = 4
# Small enough that random labels teach nothing, least of all to diverge.
RATE = 1e-3
# A GPU is held back for a step soon after steps of a new kind begin, then once in a thousand (see marks): a round of
# some dozens would hold the first, and tell of a run what is true of its first minute.
WARM = {"cuda": marks.MOST_FAILURES * (marks.FIRST_HELD + 1) + 1, "cpu": 0}


class Over(Exception):
    """All steps of a round are done."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the steps that are measured work on."""

    model: str
    resolution: int
    batch: int
    device: str = "auto"
    amp: str = "off"

    def suited(self, sizes: dict[str, tuple[int, int]]) -> "Load":
        """The same with the pixels and samples that suit the kind of device, where they were not said."""
        kind = dist.choose_device(self.device, dist.World()).type
        resolution, batch = sizes[kind]
        return dataclasses.replace(
            self, device=kind, resolution=self.resolution or resolution, batch=self.batch or batch
        )

    def config(self) -> Config:
        """The settings of such a run: those of any other, but it saves only when it is told to."""
        values = {
            **dataclasses.asdict(self),
            "peak_lr": RATE,
            "schedule": "constant",
            "epochs": 1,
            "checkpoint_minutes": 1e6,
        }
        config = settings.with_values(Config(), values)
        return settings.with_values(config, fixed.fixed_settings(config, dist.World()))


class Ready:
    """What the loop takes for its loader: hands out batches that were there before, and times the steps between."""

    def __init__(self, index: Index, batches: list[Batch], site: Site, *, warm: int) -> None:
        """The first `warm` steps are not timed."""
        self.index, self.site, self._warm = index, site, warm
        self.bad: dict[int, str] = {}
        self.read_seconds = self.decode_seconds = 0.0
        self.seconds = 0.0
        """from the beginning of the first step to the end of the last"""
        self.ledger: Seconds = {}
        self._batches, self._given = batches, 0

    def ready(self, seconds: float) -> bool:
        """Whether the next batch is there: always. The loop asks at the beginning of every step."""
        del seconds
        if self._given in (self._warm, len(self._batches)):
            sites.settle(self.site.device, self.site.clock)
            now, ledger = time.perf_counter(), self.site.clock.so_far()
            if self._given > self._warm:
                self.seconds += now
                self.ledger = {name: value - (self.ledger[name] or 0.0) for name, value in ledger.items() if value}
                raise Over
            self.seconds, self.ledger = -now, ledger
        return True

    def __next__(self) -> Batch:
        self._given += 1
        return self._batches[self._given - 1]

    def most_bytes(self, pixels: int) -> int:
        """Memory that batches of so many pixels take."""
        return DIFFERENT * pixels * 3

    def close(self) -> None:
        """Nothing to end."""


class Fed:
    """Image classification with other batches. The rest is the task's own."""

    def __init__(self, task: Classify, pixels: list[torch.Tensor], labels: torch.Tensor) -> None:
        self.score_names = task.score_names
        # As attributes, so that calling them costs what it costs in any run.
        self.open, self.bare, self.fitted, self.model = task.open, task.bare, task.fitted, task.model
        self.moved, self.loss, self.score = task.moved, task.loss, task.score
        self.pixels, self.labels = pixels, labels
        self.site: Site
        self.steps = self.warm = 0
        """that are given out before the round is over; and how many of them are not timed"""
        self.given: Ready

    def batches(self, index: Index, plans: Iterator[Plan], *, seed: int | None, threads: int, pin: bool) -> Loader:
        """The batches of a round. They are made here, before the first step: none of it is measured."""
        del seed, threads, pin
        found = [
            Batch(plan=plan, pixels=self.pixels[number % DIFFERENT], labels=self.labels)
            for number, plan in enumerate(itertools.islice(plans, self.steps))
        ]
        self.given = Ready(index, found, self.site, warm=self.warm)
        return cast(Loader, self.given)


class Ground:
    """One run, and the steps it takes. Its folder gets what any run writes down."""

    def __init__(self, load: Load, folder: Path, *, most_steps: int) -> None:
        """At most so many steps are taken at a time."""
        self.config = config = load.config()
        self.device = dist.choose_device(config.model.device, dist.World())
        start.pin_arithmetic(config.model, self.device)
        task = task_of(config)
        stage, pin = config.stages[0], self.device.type == "cuda"
        drawn = torch.Generator().manual_seed(0)
        size = (stage.batch, stage.resolution, stage.resolution, 3)
        pixels = [torch.randint(256, size, dtype=torch.uint8, generator=drawn) for _ in range(DIFFERENT)]
        labels = torch.randint(CLASSES, size[:1], generator=drawn)
        self.pixels = [pixel.pin_memory() for pixel in pixels] if pin else pixels
        self.labels = labels.pin_memory() if pin else labels
        self.task, self.fed = task, Fed(task, self.pixels, self.labels)
        self.fed.warm = WARM.get(self.device.type, 0)
        self.data = dataset(stage.batch * (self.fed.warm + most_steps + 1))
        run = Run(folder)
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        clock = Ledger(unmeasured={"host"})
        if self.device.type == "cuda":
            clock.follow(marks.Stream(self.device))
        # Nobody asks it to stop and it has no peers; both are asked all the same.
        self.site = self.fed.site = Site(
            run=run, world=dist.World(), device=self.device, clock=clock, stop=StopRequest(),
            watch=dist.Watch(dist.World(), self.device, events=None), attempt=1, started_at=time.time(),
            first_started_at=time.time(),
        )  # fmt: skip
        self.state = start.fresh(config, cast(Task, self.fed), self.data, self.site, pretrained=None).state
        self.ledger: Seconds = {}
        """seconds of all rounds so far, by bucket"""

    @contextlib.contextmanager
    def opened(self) -> Iterator["Ground"]:
        """Make the book, the screen and the saves of the run. What a bar shows is worked out, but not drawn."""
        screen = Screen(show=True, route=start.route_of(self.config, self.data))
        self.book = Book(self.site, task=cast(Task, self.fed), classes=CLASSES, allow_bad=0.0, screen=screen)
        with Saves(self.config.save, self.site, screen) as self.saves:
            yield self

    def seconds(self, steps: int) -> float:
        """Let Stoker's loop take some steps; returns the time of one."""
        self.fed.steps, self.state.at.position = self.fed.warm + steps, 0
        with refused_memory(self.config), unseen(), contextlib.suppress(Over):
            loop.walk(self.config, cast(Task, self.fed), self.data, self.state, self.site, self.saves, self.book)
        for bucket, value in self.fed.given.ledger.items():
            self.ledger[bucket] = (self.ledger.get(bucket) or 0.0) + (value or 0.0)
        return self.fed.given.seconds / steps


def dataset(count: int) -> Dataset:
    """As many samples as a round takes, of which nothing is ever read."""
    columns: dict[str, Any] = {name: np.zeros(count, np.int64) for name in ("file", "length", "label")}
    index = made(Path(), ["nothing"], columns)
    return Dataset(
        name="batches in memory", classes=tuple(map(str, range(CLASSES))), train=index, held_out=index,
        held_out_name="none",
    )  # fmt: skip


def settle(device: torch.device) -> None:
    """Wait for what a GPU still has to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Let what is said be written where nobody reads it."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


@contextlib.contextmanager
def refused_memory(config: Config) -> Iterator[None]:
    """Say what to do about a step that does not fit into memory."""
    try:
        yield
    except Exception as error:
        cause = error.memory if isinstance(error, Setback) else error
        if cause is not None and memory.is_out_of_memory(cause):
            raise Problem(
                f"out of memory with {config.train.batch} samples of {config.image.resolution} pixels",
                fix="give a smaller --batch",
            ) from None
        raise
