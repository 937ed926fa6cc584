"""What Stoker does in a step beside the network, part by part: each measured on its own, on a real run's objects."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from stoker import dist
from stoker.bench.ground import CLASSES, Ground, unseen
from stoker.bench.spread import Spread, spread
from stoker.tasks import classify
from stoker.train import optim, start, step
from stoker.train.rates import Rates

# Calls of a round, and rounds. A hundred calls are far fewer than a GPU's queue holds.
CALLS, ROUNDS = 100, 5
# A bar looks back over its last thousand steps, and takes the longer the more there were.
BAR_STEPS = 1000


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of the things that are done in a step, or once in a while."""

    name: str
    calls: float
    """in a step; 0.02 is once in fifty"""
    seconds: Spread
    """of a call, until a GPU is through with it too"""

    @property
    def step_seconds(self) -> float:
        """time of a step that goes into it"""
        return self.calls * self.seconds.middle


def measured(ground: Ground) -> tuple[Part, ...]:
    """Time every part, the costliest first."""
    with unseen():
        found = [
            Part(name=name, calls=calls, seconds=spread(timed(work, ground.device) for _ in range(ROUNDS)))
            for name, (calls, work) in works(ground).items()
        ]
    return tuple(sorted(found, key=lambda part: -part.step_seconds))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of a call, of many."""
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(CALLS):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / CALLS


def works(ground: Ground) -> dict[str, tuple[float, Callable[[], object]]]:
    """The parts by name: how often a step calls each, and the call as train/step.py and train/loop.py make it."""
    state, site, book, saves = ground.state, ground.site, ground.book, ground.saves
    gear = step.geared(ground.config, state, ground.task, site)
    route = start.route_of(ground.config, ground.data)
    rates, flags = Rates(ground.config.optim, route), dist.Agreement(site.world, count=2)
    labels = ground.labels.to(site.device)
    logits = torch.zeros(len(labels), CLASSES, device=site.device)
    loss = logits.mean()
    sums = torch.ones(len(ground.task.score_names) + 1, dtype=torch.float64, device=site.device)

    def clock() -> None:
        with site.clock.into("compute"):
            pass

    def zeros() -> torch.Tensor:
        return torch.zeros(len(sums), dtype=torch.float64, device=site.device)

    places = itertools.count(1)
    for _ in range(BAR_STEPS):
        book.screen.step(next(places))

    def line() -> None:
        sums.fill_(1.0)
        state.at.step += 1
        book.line(state, sums, rate=1.0, epoch=0)

    return {
        "ledger": (6, clock),
        "watch": (3, lambda: site.watch.at(state.at.step, "compute")),
        "sums of scores": (1, lambda: zeros().add_(sums)),
        "adding up scores": (1, lambda: sums.add_(sums)),
        "scores": (1, lambda: classify.sums(logits, labels, loss)),
        "batch-norm statistics kept": (1, lambda: gear.statistics.begin_step(atoms=1)),
        "seeding torch": (1, lambda: step.seed_torch(0, step=state.at.step, atom=0, device=site.device)),
        "loss scaled": (1, lambda: state.scaler.scale(loss * 1.0)),
        "learning rate": (1, lambda: optim.rated(state.optimizer, rates.at(0, state.at.position))),
        "average of weights": (1, lambda: gear.average.follow(step=state.at.step)),
        "screen": (1, lambda: book.screen.step(route.step(0, 0) + next(places))),
        "stop or save asked": (1, lambda: flags.tell((site.stop.by is not None, saves.is_time()))),
        "save due asked": (1, lambda: saves.is_due(state, is_epoch_over=False, epochs=1)),
        "a line": (1 / ground.config.save.log_steps, line),
    }
