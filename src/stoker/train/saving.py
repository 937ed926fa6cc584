"""How a run's state comes back from disk. How it gets there: keeper.py."""

from stoker import checkpoint, lines, runs
from stoker.errors import Problem
from stoker.records import LedgerRow
from stoker.train import ledger
from stoker.train import state as states
from stoker.train.site import Site
from stoker.train.state import Position, TrainState


def restore(state: TrainState, site: Site, *, resume: str | None, epochs: int) -> list[str]:
    """Bring a fresh state to the newest whole checkpoint of its run, or to the one it was told to begin with.

    Returns what a person should know of it.
    """
    run, before = site.run, state.at
    # Before anything is written: a file that is cut or mended looks alive.
    alive_at = runs.last_sign_of_life(run) if site.attempt > 1 else None
    checkpoint.mend(run)
    # Before its first step a run may have been begun with other settings, and its first checkpoint with them.
    newest_torn = states.load_newest(run, state) if runs.has_begun(run) else []
    notes = [f"skipped a torn checkpoint: {torn}" for torn in newest_torn]
    if state.at.step == 0 and resume is not None:
        place = checkpoint.find(run, resume)
        try:
            states.from_files(state, checkpoint.read(place), where=str(place))
        except checkpoint.Torn as error:
            raise Problem(
                f"the checkpoint to begin with is not whole: {error}", fix="give another to --resume"
            ) from None
        check_origin(state.at, before, place=str(place), epochs=epochs)
        if state.at.best is not None:
            notes.append(f"the best of that run, {state.at.best['top1']:.2f} % top-1, stays with it")
        # Its time and its scores belong to the run it came from.
        state.at.ledger, state.at.saved_at, state.at.best = {}, site.first_started_at, None
        state.at.trend.rollbacks, state.at.trend.rate_factor = 0, 1.0
        notes.append(f"begins with the weights of {place}, step {state.at.step}")
    elif state.at.step:
        notes.append(f"goes on from its checkpoint at step {state.at.step}")
    if site.world.is_first:
        runs.tidy(run)
        runs.cut_metrics(run, step=state.at.step, evaluated=state.at.evaluated)
    rows = lines.last(run.ledger_of(site.world.rank), LedgerRow, 2).rows
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
