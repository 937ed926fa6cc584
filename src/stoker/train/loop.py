"""The run, top to bottom. Read this file first: everything else is what it calls."""

import contextlib
import os
import time
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm

from stoker import dist
from stoker.config import Config, ModelConfig
from stoker.data import order
from stoker.data.sources import Dataset
from stoker.errors import Problem
from stoker.tasks import Task
from stoker.train import checkpoint, optim, saving, step, trained
from stoker.train.book import Book
from stoker.train.screen import Screen
from stoker.train.site import Outcome, Site, decode_threads, peak_memory_bytes
from stoker.train.state import Position, TrainState


def train(config: Config, task: Task, data: Dataset, site: Site, *, resume: str | None, show: bool) -> Outcome:
    """Train a run to its end, from wherever it is. The same call after any interruption ends with the same weights."""
    world, device, clock, epochs = site.world, site.device, site.clock, config.train.epochs
    pace = order.Pace(
        count=len(data.train), batch=config.train.batch, atoms=config.train.atoms, last_step=config.train.last_step
    )
    rates = optim.Rates(config.optim, steps_an_epoch=pace.steps, epochs=epochs, batch=pace.batch)
    threads = decode_threads(config.loader.threads, world)
    screen = Screen(show=show and world.is_first, steps_an_epoch=pace.steps, epochs=epochs, samples_a_step=pace.batch)

    # The state: fresh weights from the seed, then whatever the newest whole checkpoint says.
    state = fresh_state(config, task, data, device)
    with clock.into("restore"):
        notes = saving.restore(state, site, resume=resume, epochs=epochs)
    at = state.at
    dist.check_equal(at.step, world, device, what="step to go on from")
    sums = torch.zeros(len(task.score_names) + 1, dtype=torch.float64, device=device)
    if world.is_first and at.line_sums:
        sums += torch.tensor(at.line_sums, dtype=torch.float64, device=device)

    # The network as it computes: compiled, and joined with those of the other processes.
    if config.model.compile:
        state.network.compile()
    model = dist.wrapped(state.network, world, device, exact=config.model.exact)

    # The data: a pure function of the seed and of where the run is, made ready ahead of time by threads.
    plans = order.training_plans(
        pace, seed=at.seed, epoch=at.epoch, position=at.position, epochs=epochs, rank=world.rank, world=world.size,
        window=config.loader.window,
    )  # fmt: skip
    batches = task.batches(data.train, plans, seed=at.seed, threads=threads, pin=device.type == "cuda")
    book = Book(site, task=task, batches=batches, allow_bad=config.data.allow_bad, screen=screen, step=at.step)
    book.open(state, config, pace, data, notes=notes, threads=threads)
    first_step = at.step
    # A run that begins with another's state has no checkpoint of its own yet.
    saved_step = at.step if at.step in checkpoint.steps(site.run) else None
    began = time.perf_counter()

    clock.switch("other")
    with contextlib.closing(batches), screen:
        screen.begin(pace.step(at.epoch, at.position))
        while True:
            # At an epoch's end: evaluate, unless that was done before an interruption.
            is_eval_due = at.epoch == epochs or at.epoch % config.train.eval_epochs == 0
            if at.position == 0 and at.evaluated < at.epoch and is_eval_due:
                with clock.into("eval"):
                    scores, bad = evaluate(config, task, data, state, site, book, threads=threads)
                with clock.into("checkpoint"):
                    if book.evaluation(state, scores, bad=bad):
                        if saved_step != at.step:
                            saving.save(state, sums, site, screen)
                            saved_step = at.step
                        saving.keep(state, site, name="best")
            if at.epoch == epochs or is_target_reached(config.train.target_accuracy, at):
                break

            # One step: the next positions of the epoch, cut into atoms, at the rate of this step.
            epoch, is_first_step = at.epoch, at.step == first_step
            rate = rates.at(pace.step(at.epoch, at.position))
            sums += step.take(
                state, model=model, task=task, batches=batches, atoms=pace.atoms, rate=rate, world=world,
                device=device, ledger=clock, compute="compile" if config.model.compile and is_first_step else "compute",
            )  # fmt: skip
            book.samples += pace.samples(at.position)
            at.position += pace.samples(at.position)
            at.step += 1
            is_epoch_over = pace.samples(at.position) == 0
            if is_epoch_over:
                at.epoch, at.position = at.epoch + 1, 0

            # Once in a while: a line.
            is_line_due = is_epoch_over or at.step % config.save.log_steps == 0
            with clock.into("logging"):
                screen.step(pace.step(at.epoch, at.position))
                if is_line_due:
                    book.line(state, sums, rate=rate, epoch=epoch)

            # Once in a while: a checkpoint. Also when asked to stop, and before the evaluation of the last epoch.
            is_halted = (world.size == 1 or is_line_due) and dist.any_true(site.stop.by is not None, world, device)
            is_epoch_saved = is_epoch_over and (at.epoch % config.save.checkpoint_epochs == 0 or at.epoch == epochs)
            is_epoch_kept = is_epoch_over and config.save.keep_epochs > 0 and at.epoch % config.save.keep_epochs == 0
            is_step_saved = config.save.checkpoint_steps and at.step % config.save.checkpoint_steps == 0
            if is_epoch_saved or is_epoch_kept or is_step_saved or is_halted:
                with clock.into("checkpoint"):
                    saving.save(state, sums, site, screen, must=is_halted or at.epoch == epochs)
                    saved_step = at.step
                    if is_epoch_kept:
                        saving.keep(state, site, name=f"epoch_{at.epoch}")
            if is_halted:
                book.close(state)
                why = f"{site.stop.by or 'another process'} at step {at.step} of {pace.steps * epochs}, which is saved"
                return Outcome(status="stopped", result=result(at, site, samples_per_second=None), why=why)
        speed = book.samples / (time.perf_counter() - began) if book.samples else None
    book.close(state)
    return Outcome(status="done", result=result(at, site, samples_per_second=speed))


def fresh_state(config: Config, task: Task, data: Dataset, device: torch.device) -> TrainState:
    """A run before its first step: weights that follow from the seed."""
    step.seed_torch(config.train.seed, step=0, atom=2**32 - 1, device=device)
    network = task.model(classes=len(data.classes)).to(device)
    check_batch_norm(network, batch=config.train.batch, atoms=config.train.atoms)
    return TrainState(
        network=network,
        optimizer=optim.optimizer(config.optim, network.parameters()),
        scaler=GradScaler(device.type, enabled=config.model.amp == "fp16"),
        at=Position(
            seed=config.train.seed,
            model=config.model.model,
            classes=len(data.classes),
            data=data.fingerprint(),
            optimizer=config.optim.optimizer,
            amp=config.model.amp,
        ),
    )


def check_batch_norm(network: torch.nn.Module, *, batch: int, atoms: int) -> None:
    """Refuse atoms of one sample for a network with batch norm, which needs two to have a spread."""
    if batch < 2 * atoms and any(isinstance(module, _BatchNorm) for module in network.modules()):
        raise Problem(
            f"a batch of {batch} in {atoms} atoms leaves one sample an atom, and this network's batch norm needs two",
            fix=f"give --batch {2 * atoms} or more, or fewer --atoms",
        )


def pin_arithmetic(config: ModelConfig, device: torch.device) -> None:
    """Fix what decides in which order sums are added up. Comes before the first computation on a GPU."""
    torch.set_num_threads(config.compute_threads)
    if device.type == "cuda":
        if config.exact:
            # cuBLAS adds up in a fixed order only with a workspace of fixed size, and reads this once.
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.backends.cudnn.benchmark = not config.exact
        torch.use_deterministic_algorithms(config.exact)


def evaluate(
    config: Config, task: Task, data: Dataset, state: TrainState, site: Site, book: Book, *, threads: int
) -> tuple[torch.Tensor, int]:
    """The sums and count of the scores over all held-out samples, each once, and how many could not be read."""
    world, device = site.world, site.device
    batch = -(-config.train.batch // config.train.atoms)
    plans = order.evaluation_plans(len(data.held_out), batch=batch, rank=world.rank, world=world.size)
    batches = task.batches(data.held_out, plans, seed=None, threads=threads, pin=device.type == "cuda")
    state.network.eval()
    sums = trained.scored(task, state.network, batches, device=device)
    state.network.train()
    book.unreadable(batches, "left out of the evaluation")
    dist.add_up(sums, world)
    return sums[:-1], int(sums[-1])


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
