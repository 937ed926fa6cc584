"""A run goes back to the newest checkpoint at which it was known to be well."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stoker import checkpoint, dist, runs
from stoker.config import Config, SaveConfig, Stage
from stoker.data.order import Route
from stoker.dist import World
from stoker.errors import Problem
from stoker.machine.interrupts import StopRequest
from stoker.runs import Run
from stoker.train.ledger import Ledger
from stoker.train.saves import Saves
from stoker.train.screen import Screen
from stoker.train.site import Site
from stoker.train.state import TrainState
from tests.train.test_state import trained

SUMS = torch.zeros(2, dtype=torch.float64)


@pytest.fixture
def saves(tmp_path: Path) -> Iterator[Saves]:
    """The saves of a run that keeps two checkpoints and those with a name."""
    run, device = runs.create(tmp_path / "run", Config(), resumed_from=None), torch.device("cpu")
    site = Site(
        run=run, world=World(), device=device, clock=Ledger(), stop=StopRequest(), attempt=1, started_at=time.time(),
        watch=dist.Watch(World(), device, events=None), first_started_at=time.time(),
    )  # fmt: skip
    route = Route(count=8, stages=(Stage(resolution=8, batch=4, epochs=1),), atoms=1, last_step="drop")
    with Saves(SaveConfig(keep_last=2), site, Screen(show=False, route=route)) as made:
        yield made


def saved(saves: Saves, state: TrainState, *steps: int) -> None:
    """Save a state at some steps, without a look at its scores in between."""
    for state.at.step in steps:
        saves.save(state, SUMS)
    saves.finish()


def tear(run: Run, *steps: int) -> None:
    for step in steps:
        (checkpoint.folder(run, step) / checkpoint.MODEL).write_bytes(b"torn")


def test_going_back_takes_no_checkpoint_after_the_last_sound_step(saves: Saves) -> None:
    state = trained()
    saved(saves, state, 2, 4)
    state.at.sound_step = 5
    saved(saves, state, 6, 8)
    assert checkpoint.named(saves.site.run) == {"latest": 8, "sound": 4}
    event = saves.take_back(state)
    assert event.what == "from step 8 back to step 4" and state.at.step == state.at.sound_step == 4
    assert checkpoint.steps(saves.site.run) == [4]


def test_a_run_whose_sound_checkpoints_are_torn_says_so_and_loses_nothing(saves: Saves) -> None:
    state = trained()
    saved(saves, state, 2, 4)
    state.at.sound_step = 5
    saved(saves, state, 6, 8)
    tear(saves.site.run, 4)
    with pytest.raises(Problem, match="no whole checkpoint up to step 5") as found:
        saves.take_back(state)
    assert found.value.fix and not found.value.goes_on
    assert state.at.step == 8 and checkpoint.steps(saves.site.run) == [8, 6, 4]


def test_a_resumed_run_knows_of_the_sound_checkpoint_it_goes_on_from(saves: Saves) -> None:
    state, run = trained(), saves.site.run
    saved(saves, state, 2, 4)
    assert state.at.sound_step == 0, "the checkpoint at step 4 knows of no later one"
    checkpoint.point(run, "sound", 4)
    checkpoint.remove(run, 2)
    saves.begin(state, is_new=False, scores=1)
    assert state.at.sound_step == 4
    state.at.step = 7
    saves.take_back(state)
    assert state.at.step == 4


@pytest.mark.parametrize(("sound", "kept"), [(2, 3), (4, 4), (9, 3), (None, 3)])
def test_the_name_sound_counts_where_it_is_news_of_this_or_an_earlier_step(
    saves: Saves, sound: int | None, kept: int
) -> None:
    state = trained()
    state.at.step, state.at.sound_step = 4, 3
    if sound is not None:
        checkpoint.point(saves.site.run, "sound", sound)
    saves.begin(state, is_new=False, scores=1)
    assert state.at.sound_step == kept
