"""What goes wrong in a run that can go on, and how it goes on: out of memory, a failed compilation, divergence."""

import contextlib
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from stoker import dist, records, runs, settings
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import Event
from stoker.train import divergence, memory, optim, rates
from stoker.train.divergence import Found
from stoker.train.site import Outcome, Site
from stoker.train.state import TrainState, sums_of

if TYPE_CHECKING:
    from stoker.train.book import Book
    from stoker.train.saves import Saves


class Setback(Exception):
    """A step that can't be gone on from as things are."""

    def __init__(
        self, *, found: Found | None = None, memory: BaseException | None = None, compiler: BaseException | None = None,
        is_clean: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(str(found or memory or compiler))
        self.found, self.memory, self.compiler, self.is_clean = found, memory, compiler, is_clean


def setback(error: Exception, *, is_compiling: bool, is_clean: bool) -> Setback | None:
    """What an error in a step makes of it; None for an error that is nobody's but ours or the user's."""
    if isinstance(error, Problem | Setback):
        return None
    if memory.is_out_of_memory(error):
        return Setback(memory=error, is_clean=is_clean)
    if not is_compiling or not is_clean or dist.told(error) is not None:
        return None
    # Compilers fail in many ways; if the fault is not theirs, the same step without one shows it.
    return Setback(compiler=error)


@contextlib.contextmanager
def noticed(
    state: TrainState, sums: torch.Tensor, site: Site, *, is_compiling: bool = False, is_clean: bool = True
) -> Iterator[None]:
    """Make a setback of an error that is one. What was summed up before the step stays with the state."""
    try:
        yield
    except Exception as error:
        met = setback(error, is_compiling=is_compiling, is_clean=is_clean)
        if met is None:
            raise
        state.at.line_sums = [[0.0] * len(sums) for _ in range(site.world.size)]
        state.at.line_sums[site.world.rank] = sums.tolist()
        raise met from error


def overcome(
    met: Setback, config: Config, state: TrainState, site: Site, saves: "Saves", book: "Book"
) -> Config | Outcome:
    """Make a run fit to go on, and return the settings it goes on with; or how it ends."""
    if met.found is not None:
        return after_divergence(met.found, config, state, site, saves, book)
    if met.compiler is not None:
        state.network._compiled_call_impl = None  # undoes nn.Module.compile
        torch._dynamo.reset()
        what = (
            f"the network can't be compiled here ({first_line(met.compiler)}); it is trained without, which is slower"
        )
        eager = changed(config, site, book, kind="compile", what=what, compile=False)
        if site.world.size > 1:
            raise Problem(what, fix="start the same command again: it goes on from the last checkpoint", goes_on=True)
        return eager
    assert met.memory is not None
    return after_memory(met, config, state, site, saves, book)


def after_memory(
    met: Setback, config: Config, state: TrainState, site: Site, saves: "Saves", book: "Book"
) -> Config | Outcome:
    """Cut the batch into smaller atoms. What one step does stays the same but for batch norm."""
    assert met.memory is not None
    has_norm = any(isinstance(module, _BatchNorm) for module in state.network.modules())
    batch, atoms = book.route.stage(state.at.epoch).batch, config.train.atoms
    more = memory.smaller(batch=min(stage.batch for stage in config.stages), atoms=atoms, needs_two=has_norm)
    if more is None or config.many.sync_bn:  # one batch norm of all atoms takes one process for each
        raise met.memory
    norm = ", so batch norm sees fewer samples at a time" if has_norm else ""
    what = (
        f"out of memory at step {state.at.step} with {-(-batch // atoms)} samples an atom; goes on with "
        f"{more} atoms of {-(-batch // more)} in the place of {atoms}: the batch stays {batch}{norm} "
        f"({first_line(met.memory)})"
    )
    reduced = changed(config, site, book, kind="out-of-memory", what=what, atoms=more)
    if site.world.size > 1:
        # The others are in the middle of this step, and wait for this process.
        raise Problem(
            what,
            fix="start the same command again: it goes on from the last checkpoint with smaller atoms",
            goes_on=True,
        )
    # The frames of the step that failed hold its tensors: nothing would be free.
    traceback.clear_frames(met.memory.__traceback__)
    memory.free(site.device)
    if not met.is_clean:
        with site.clock.into("rollback"):
            gone_back(state, site, saves)
    return reduced


def gone_back(state: TrainState, site: Site, saves: "Saves") -> Event:
    """Bring a run to its last sound checkpoint; what was written down and done since is undone."""
    event = saves.take_back(state)
    site.clock.lose(since=state.at.ledger)
    if site.world.is_first:
        runs.cut_metrics(site.run, step=state.at.step, evaluated=state.at.evaluated)
    return event


def after_divergence(
    found: Found, config: Config, state: TrainState, site: Site, saves: "Saves", book: "Book"
) -> Config | Outcome:
    """Go back to where all was well and halve the rate; or stop and say why."""
    at, trend = state.at, state.at.trend
    stage = book.route.stage(at.epoch)
    causes = divergence.causes(
        found=found,
        peak_rate=trend.rate_factor * rates.peak_rate(config.optim, batch=stage.batch, fixed=stage.peak_rate),
        rule_rate=optim.sound_rate(config.optim, config.tune, batch=stage.batch),
        warmup_epochs=config.optim.warmup_epochs,
        epoch=at.epoch,
        amp=config.model.amp,
        clip=config.optim.clip,
        bad_share=len(book.batches.bad) / max(1, len(book.batches.index)),
    )
    message = divergence.message(found, causes, step=at.step)
    if config.train.on_divergence == "stop" or trend.rollbacks >= divergence.MOST_ROLLBACKS:
        if site.world.is_first:
            book.event("diverged", message)
        often = f" (after {trend.rollbacks} rollbacks)" if trend.rollbacks else ""
        ended = {"epoch": at.epoch, "step": at.step, "best": at.best}
        # Whoever begins with what is left begins where all was still well.
        saves.take_back(state)
        return Outcome(status="diverged", result=ended, why=message + often)
    rollbacks, factor = trend.rollbacks + 1, trend.rate_factor / 2
    with site.clock.into("rollback"):
        event = gone_back(state, site, saves)
        state.at.trend.rollbacks, state.at.trend.rate_factor = rollbacks, factor
        if site.world.is_first:
            book.event("rollback", f"{message}; {event.what}, with {factor:g} x the rate")
        book.screen.say(f"rollback {message}")
        book.screen.say(f"rollback {event.what}, with {factor:g} x the rate")
        sums = sums_of(state.at, site.world, count=len(book.task.score_names) + 1)
        # Written down at once: a kill from here on must not bring the old rate back.
        saves.save(state, torch.tensor(sums, dtype=torch.float64, device=site.device))
    return config


def changed(config: Config, site: Site, book: "Book", *, kind: str, what: str, **values: object) -> Config:
    """Settings that the run goes on with from here, also after a restart; what changed is said and written down."""
    fixed = {**records.read_record(site.run.record).fixed, **values}
    runs.update_record(site.run, fixed=fixed)
    # A run has begun once it has metrics: from here on it is no new one, whose settings are found out anew.
    site.run.metrics.touch()
    runs.append_line(site.run.events, Event(at=time.time(), kind=kind, what=what))
    book.screen.say(f"note     {what}")
    return settings.with_values(config, values)


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
