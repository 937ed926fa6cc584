"""The run, top to bottom. Read this file first: everything else is what it calls."""

import contextlib
import time
from typing import Any

import torch

from stoker import dist
from stoker.config import Config
from stoker.data import order
from stoker.data.sources import Dataset
from stoker.tasks import Task
from stoker.train import evaluation, exhibition, setbacks, start, step
from stoker.train.book import Book
from stoker.train.rates import Rates
from stoker.train.saves import Saves
from stoker.train.screen import Screen
from stoker.train.setbacks import Setback
from stoker.train.site import Outcome, Site, decode_threads, peak_memory_bytes
from stoker.train.state import Position, TrainState, sums_of


def train(config: Config, task: Task, data: Dataset, site: Site, *, resume: str | None, show: bool) -> Outcome:
    """Train a run to its end, from wherever it is. The same call after any interruption ends with the same weights."""
    # The state: fresh weights from the seed, then whatever the newest whole checkpoint says.
    with site.clock.into("restore"):
        begun = start.begun(config, task, data, site, resume=resume)
    state = begun.state
    dist.check_equal(state.at.step, site.world, site.device, what="step to go on from")
    screen = Screen(show=show and site.world.is_first, route=start.route_of(config, data))
    book = Book(site, task=task, classes=len(data.classes), allow_bad=config.data.allow_bad, screen=screen)
    with screen, Saves(config.save, site, screen) as saves, book.tracker:
        book.open(state, config, data, notes=begun.notes, keeper=saves.keeper)
        with site.clock.into("checkpoint"):
            # The first checkpoint is the beginning: it shows that the disk can hold one, and what one costs.
            saves.begin(state, is_new=begun.is_new, scores=len(task.score_names))
        book.exhibited(exhibition.opening(config, task, data, site))
        # What goes wrong on the way and can be mended is mended; then the way goes on from where the state is.
        while True:
            try:
                outcome = walk(config, task, data, state, site, saves, book)
            except Setback as setback:
                mended = setbacks.overcome(setback, config, state, site, saves, book)
                if isinstance(mended, Config):
                    config = mended
                    continue
                outcome = mended
            saves.finish()
            if outcome.status == "done":
                book.exhibited(exhibition.closing(config, task, data, site))
            book.close(state, outcome.status)
            return outcome


def walk(config: Config, task: Task, data: Dataset, state: TrainState, site: Site, saves: Saves, book: Book) -> Outcome:
    """Go from where the state is to the end of the run, or until something stops it."""
    world, device, clock, at = site.world, site.device, site.clock, state.at
    route = start.route_of(config, data)
    rates = Rates(config.optim, route, factor=at.trend.rate_factor)
    flags = dist.Agreement(world, count=2)
    gear = step.geared(config, state, task, site)
    sums = torch.tensor(sums_of(at, world, count=len(task.score_names) + 1), dtype=torch.float64, device=device)

    # The data: a pure function of the seed and of where the run is, made ready ahead of time by threads.
    threads = decode_threads(config.loader.threads, world)
    plans = order.training_plans(
        route, seed=at.seed, epoch=at.epoch, position=at.position, rank=world.rank, world=world.size,
        window=config.loader.window,
    )  # fmt: skip
    batches = task.batches(data.train, plans, seed=at.seed, threads=threads, pin=device.type == "cuda")
    book.begin(state, route, batches, threads=threads)
    began, samples_before = time.perf_counter(), book.samples
    taken: set[tuple[int, int, bool]] = set()

    clock.switch("other")
    with contextlib.closing(batches):
        while True:
            # At an epoch's end: evaluate, unless that was done before an interruption.
            is_eval_due = at.epoch == route.epochs or at.epoch % config.train.eval_epochs == 0
            if at.position == 0 and at.evaluated < at.epoch and is_eval_due:
                with clock.into("eval"), setbacks.noticed(state, sums, site, is_compiling=config.model.compile):
                    found = evaluation.evaluated(gear, data, flags, batch=route.atom(at.epoch), threads=threads)
                if found is None:
                    return stopped(state, sums, site, saves, route)
                with clock.into("checkpoint"):
                    if book.evaluation(state, found):
                        saves.save(state, sums, names=("best",))
            if at.epoch == route.epochs or is_target_reached(config.train.target_accuracy, at):
                break

            # One step: the next positions of the epoch, cut into atoms, at the rate of this step.
            epoch, pace = at.epoch, route.pace(at.epoch)
            rate = rates.at(at.epoch, at.position)
            shape = (route.number(epoch), pace.samples(at.position), gear.is_frozen)
            is_new, is_compiling = shape not in taken, config.model.compile and shape not in taken
            taken.add(shape)
            with setbacks.noticed(state, sums, site, is_compiling=is_compiling):
                scores = step.gradients(
                    gear, batches, atoms=route.atoms, compute="compile" if is_compiling else "compute", is_new=is_new
                )
            if scores is None:
                return stopped(state, sums, site, saves, route)
            with setbacks.noticed(state, sums, site, is_clean=False):
                step.update(gear, rate=rate)
            sums += scores
            book.samples += pace.samples(at.position)
            at.position += pace.samples(at.position)
            at.step += 1
            is_epoch_over = pace.samples(at.position) == 0
            if is_epoch_over:
                at.epoch, at.position = at.epoch + 1, 0

            # Once in a while: a line, and a look at whether all is well.
            with clock.into("logging"):
                book.screen.step(route.step(at.epoch, at.position))
                if is_epoch_over or at.step % config.save.log_steps == 0:
                    book.line(state, sums, rate=rate, epoch=epoch)

            # Once in a while: a checkpoint. Also when asked to stop, and before the evaluation of the last epoch.
            is_stopped, is_time = flags.tell((site.stop.by is not None, saves.is_time()))
            if is_stopped:
                return stopped(state, sums, site, saves, route)
            if is_time or saves.is_due(state, is_epoch_over=is_epoch_over, epochs=route.epochs):
                with clock.into("checkpoint"):
                    saves.save(state, sums)

            # What was frozen learns from here on.
            if is_epoch_over and gear.is_frozen and at.epoch == config.tune.freeze_epochs:
                gear = step.geared(config, state, task, site)
        samples = book.samples - samples_before
        speed = samples / (time.perf_counter() - began) if samples else None
    return Outcome(status="done", result=result(at, site, samples_per_second=speed))


def stopped(state: TrainState, sums: torch.Tensor, site: Site, saves: Saves, route: order.Route) -> Outcome:
    """Save, and say who asked for the stop."""
    with site.clock.into("checkpoint"):
        saves.save(state, sums)
        saves.finish()
    why = f"{site.stop.by or 'another process'} at step {state.at.step} of {route.steps}, which is saved"
    return Outcome(status="stopped", result=result(state.at, site, samples_per_second=None), why=why)


def is_target_reached(target: float | None, at: Position) -> bool:
    """Whether a run is good enough to end before its last epoch."""
    return target is not None and at.best is not None and at.best["top1"] >= target


def result(at: Position, site: Site, *, samples_per_second: float | None) -> dict[str, Any]:
    """What record.json says of a run."""
    return {
        "epoch": at.epoch,
        "step": at.step,
        "best": at.best,
        "samples_per_second": samples_per_second,
        "peak_memory_bytes": peak_memory_bytes(site.device),
    }
