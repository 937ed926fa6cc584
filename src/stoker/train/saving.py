"""When and how a run's state goes to disk and comes back."""

import contextlib
import time

import torch

from stoker import dist, records, runs
from stoker.errors import Problem
from stoker.records import Event, LedgerRow
from stoker.train import checkpoint, ledger
from stoker.train import state as states
from stoker.train.screen import Screen
from stoker.train.site import Site, settle
from stoker.train.state import Position, TrainState


def restore(state: TrainState, site: Site, *, resume: str | None, epochs: int) -> list[str]:
    """Bring a fresh state to the newest whole checkpoint of its run, or to the one it was told to begin with.

    Returns what a person should know of it.
    """
    run, before = site.run, state.at
    # Before anything is written: a file that is cut or mended looks alive.
    alive_at = runs.last_sign_of_life(run) if site.attempt > 1 else None
    notes = [f"skipped a torn checkpoint: {torn}" for torn in states.load_newest(run, state)]
    if state.at.step == 0 and resume is not None:
        place = checkpoint.find(run, resume)
        try:
            states.from_files(state, checkpoint.read(place), where=str(place))
        except checkpoint.Torn as error:
            raise Problem(
                f"the checkpoint to begin with is not whole: {error}", fix="give another to --resume"
            ) from None
        check_origin(state.at, before, place=str(place), epochs=epochs)
        # Its time and its scores belong to the run it came from.
        state.at.ledger, state.at.saved_at, state.at.best = {}, site.first_started_at, None
        notes.append(f"begins with the weights of {place}, step {state.at.step}")
    elif state.at.step:
        notes.append(f"goes on from its checkpoint at step {state.at.step}")
    if site.world.is_first:
        runs.tidy(run)
        runs.cut_metrics(run, step=state.at.step, evaluated=state.at.evaluated)
    rows = records.read_lines(run.ledger_of(site.world.rank), LedgerRow)
    site.clock.go_on(
        ledger.carried(
            kept=state.at.ledger or None,
            kept_at=state.at.saved_at or site.first_started_at,
            kept_step=state.at.step,
            last=rows[-1] if rows else None,
            alive_at=alive_at,
            started_at=site.started_at,
        )
    )
    return notes


def check_origin(at: Position, wanted: Position, *, place: str, epochs: int) -> None:
    """Refuse to begin with a checkpoint whose place in the data means nothing here."""
    for what, there, here in (("seed", at.seed, wanted.seed), ("data", at.data, wanted.data)):
        if there != here:
            raise Problem(
                f"{place} was made with another {what}: {there}, and here it is {here}",
                fix=f"give the same {what}, so that training can go on where that run was",
            )
    if at.epoch >= epochs:
        raise Problem(
            f"{place} has {at.epoch} epochs behind it, and this run ends after {epochs}", fix="give more with --epochs"
        )


def save(state: TrainState, sums: torch.Tensor, site: Site, screen: Screen, *, must: bool = False) -> None:
    """Write the state down. A full disk is said and survived, unless there is no later chance (`must`)."""
    settle(site.device, site.clock)
    total = sums.clone()
    dist.add_up(total, site.world)
    state.at.line_sums = total.tolist()
    if not site.world.is_first:
        return
    try:
        runs.sync(site.run.metrics)
        states.save(site.run, state, ledger=site.clock.so_far())
    except Problem as problem:
        screen.say(f"not saved: {problem}")
        with contextlib.suppress(Problem):  # the events are on the same disk
            runs.append_line(site.run.events, Event(at=time.time(), kind="not-saved", what=str(problem)))
        if must:
            raise
    else:
        checkpoint.prune(site.run)


def keep(state: TrainState, site: Site, *, name: str) -> None:
    """Give the checkpoint of this step a name, so that it stays."""
    if site.world.is_first and checkpoint.folder(site.run, state.at.step).exists():
        checkpoint.point(site.run, name, state.at.step)
