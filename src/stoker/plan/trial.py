"""Steps on trial: Stoker's own, with a network of their own, of which nothing stays."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from stoker import dist, settings
from stoker.config import Config, Stage
from stoker.data import order
from stoker.data.loader import Batch, Loader
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.machine.interrupts import StopRequest
from stoker.runs import Run
from stoker.tasks import Task
from stoker.train import marks, memory, start, step
from stoker.train.ledger import Ledger
from stoker.train.site import Site, settle

RATE = 1e-6
# A GPU is held back for a step so many times, each time for longer, until all its work has come meanwhile.
HOLDS = 4


class Ready:
    """What a step takes for its loader: one batch, again and again."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def ready(self, seconds: float) -> bool:
        """Whether the next batch is there: always."""
        del seconds
        return True

    def __next__(self) -> Batch:
        return self.batch


class Trial:
    """A network like that of a run, on its device, and steps that it takes one atom at a time."""

    def __init__(self, config: Config, task: Task, data: Dataset, device: torch.device) -> None:
        self.config, self.task, self.data, self.device = config, task, data, device
        self.clock = Ledger()
        self.marks = marks.Stream(device) if device.type == "cuda" else None
        if self.marks is not None:
            self.clock.follow(self.marks)
        self._folder = tempfile.TemporaryDirectory(prefix="stoker-trial-")
        alone = dist.World()
        self.site = Site(
            run=Run(Path(self._folder.name)), world=alone, device=device, clock=self.clock, stop=StopRequest(),
            watch=dist.Watch(alone, device, events=None), attempt=1, started_at=time.time(),
            first_started_at=time.time(),
        )  # fmt: skip
        # Compiling takes longer than a trial may.
        alike = settings.with_values(config, {"atoms": 1, "freeze_epochs": 0, "sync_bn": False, "compile": False})
        self.state = start.fresh(alike, task, data, self.site, pretrained=None).state
        self.gear = step.geared(alike, self.state, task, self.site)

    def close(self) -> None:
        """Give back memory and disk."""
        self._folder.cleanup()
        del self.gear, self.state
        memory.free(self.device)

    def made(self, samples: int, resolution: int) -> Batch:
        """A batch of noise that is there already."""
        places, pin = np.arange(samples), self.device.type == "cuda"
        size = (samples, resolution, resolution, 3)
        pixels = torch.randint(256, size, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        labels = torch.zeros(samples, dtype=torch.int64)
        return Batch(
            plan=Plan(epoch=0, positions=places, samples=places, resolution=resolution),
            pixels=pixels.pin_memory() if pin else pixels,
            labels=labels.pin_memory() if pin else labels,
        )

    def burst(self, batches: Loader, steps: int) -> dict[str, float]:
        """Take some steps; returns the seconds of one by the ledger's buckets."""
        settle(self.device, self.clock)
        self.clock.switch("other")
        self.clock.interval()
        for _ in range(steps):
            scores = step.gradients(self.gear, batches, atoms=1, compute="compute")
            assert scores is not None, "nobody can stop a trial"
            step.update(self.gear, rate=RATE)
            self.state.at.step += 1
        settle(self.device, self.clock)
        return {bucket: (seconds or 0.0) / steps for bucket, seconds in self.clock.interval().items()}

    def synthetic(self, samples: int, resolution: int, steps: int) -> dict[str, float]:
        """Steps on a batch that is there already: what the network takes by itself."""
        return self.burst(cast(Loader, Ready(self.made(samples, resolution))), steps)

    def held(self, samples: int, resolution: int) -> dict[str, float] | None:
        """A step on a GPU that begins when all its work has come. None on a CPU, and where that can't be had."""
        if self.marks is None:
            return None
        for _ in range(HOLDS):
            self.marks.forget()
            self.marks.hold()
            found = self.synthetic(samples, resolution, 1)
            if self.marks.pure_seconds is not None:
                return {bucket: found[bucket] for bucket in marks.WORK}
        return None

    def launch_seconds(self, samples: int, resolution: int) -> float:
        """The training thread's time to hand a step's work to an idle GPU; 0 on a CPU, which does it at once."""
        if self.marks is None:
            return 0.0
        self.synthetic(samples, resolution, 1)
        return self.marks.host_seconds

    def score_seconds(self, samples: int, resolution: int) -> float:
        """How long an evaluation takes for a sample that is there already."""
        batch = self.made(samples, resolution)
        self.state.network.eval()
        try:
            self.task.score(self.state.network, self.task.moved(batch, self.device))
            settle(self.device, self.clock)
            began = time.perf_counter()
            self.task.score(self.state.network, self.task.moved(batch, self.device))
            settle(self.device, self.clock)
            return (time.perf_counter() - began) / samples
        finally:
            step.set_training(self.gear)

    @contextlib.contextmanager
    def loader(self, samples: int, resolution: int, *, threads: int, window: int) -> Iterator[Loader]:
        """The run's own samples, in the order of its first epochs."""
        stage = Stage(resolution=resolution, batch=min(samples, len(self.data.train)), epochs=1_000_000)
        route = order.Route(count=len(self.data.train), stages=(stage,), atoms=1, last_step="drop")
        seed = self.config.train.seed
        plans = order.training_plans(route, seed=seed, epoch=0, position=0, rank=0, world=1, window=window)
        batches = self.task.batches(self.data.train, plans, seed=seed, threads=threads, pin=self.device.type == "cuda")
        with contextlib.closing(batches):
            yield batches

    def flops(self, resolution: int) -> float | None:
        """Floating-point operations of a sample, forward and backward; None where they can't be counted."""
        from torch.utils.flop_counter import FlopCounterMode

        inputs: Any = self.task.moved(self.made(2, resolution), self.device)
        try:
            with FlopCounterMode(display=False) as counted:
                loss, _ = self.task.loss(self.state.network, inputs)
                loss.backward()  # type: ignore[no-untyped-call]
        except Exception:  # the counter is a debugging tool, which not every network suits
            return None
        finally:
            self.state.optimizer.zero_grad(set_to_none=True)
        return counted.get_total_flops() / 2 or None
