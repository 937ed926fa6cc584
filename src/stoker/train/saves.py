"""A run's checkpoints as the loop sees them: when one is due, what it costs, and what must be waited for."""

import math
import time
from pathlib import Path

import torch

from stoker import checkpoint, dist
from stoker.config import SaveConfig
from stoker.records import Event
from stoker.train import keeper
from stoker.train import state as states
from stoker.train.divergence import Found
from stoker.train.keeper import Keeper
from stoker.train.screen import Screen
from stoker.train.setbacks import Setback
from stoker.train.site import Site, settle
from stoker.train.state import TrainState


class Saves:
    """When to save, and saving. Every process calls it at the same steps; the first one writes."""

    def __init__(self, config: SaveConfig, site: Site, screen: Screen) -> None:
        self.config, self.site, self.screen = config, site, screen
        self.saved_step: int | None = None
        self._is_told = False
        """whether the others were told that it is time; they hear of it one step later"""
        self.blocked_seconds = 0.0
        self._last = time.monotonic()
        self.keeper: Keeper | None = None
        if site.world.is_first:
            mirror = Path(config.mirror) if config.mirror else None
            self.keeper = Keeper(site.run, keep_last=config.keep_last, mirror=mirror)

    def __enter__(self) -> "Saves":
        if self.keeper is not None:
            self.keeper.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.keeper is not None:
            self.keeper.__exit__(*error)
            self.tell()

    def begin(self, state: TrainState, *, is_new: bool, scores: int) -> None:
        """Take up a state: one that is on disk already, or the beginning of a run, which then is the first saved."""
        if not is_new:
            self.saved_step = state.at.step
            # Where later checkpoints are torn, this one may be known to be well without knowing it itself.
            known = checkpoint.pointed_step(self.site.run.pointer("sound"))
            if known is not None and known <= state.at.step:
                state.at.sound_step = max(state.at.sound_step, known)
            # A kill may have come between the checkpoint and its name.
            self.save(state, torch.zeros(scores + 1))
            return
        if self.keeper is not None:
            held = [*state.network.state_dict().values(), *(state.ema or {}).values()]
            # The optimiser has no memory yet; most have one number a weight, Adam and LAMB two.
            slots = 2 if state.at.optimizer in ("adamw", "lamb") else 1
            held += slots * list(state.network.parameters())
            needed = sum(tensor.numel() * tensor.element_size() for tensor in held)
            checkpoint.check_space(self.site.run, needed, copies=self.config.keep_last + 1)
        # There is nothing before it to go back to.
        state.at.sound_step = state.at.step
        sums = states.sums_of(state.at, self.site.world, count=scores + 1)
        self.save(state, torch.tensor(sums, dtype=torch.float64, device=self.site.device))

    def is_due(self, state: TrainState, *, is_epoch_over: bool, epochs: int) -> bool:
        """Whether this step's place in the run calls for a checkpoint."""
        at, config = state.at, self.config
        if config.checkpoint_steps and at.step % config.checkpoint_steps == 0:
            return True
        return is_epoch_over and (at.epoch % config.checkpoint_epochs == 0 or at.epoch == epochs or self.is_kept(state))

    def is_kept(self, state: TrainState) -> bool:
        """Whether the checkpoint of an epoch's end stays for good."""
        return self.config.keep_epochs > 0 and state.at.epoch % self.config.keep_epochs == 0

    def is_time(self) -> bool:
        """Whether so much time has gone by that a checkpoint is due. The first process's clock decides."""
        if self.keeper is None:
            return False
        # Not twice in a row, because others hear of it one step later; but again, if that was in an evaluation.
        was_told = self._is_told and self.site.world.size > 1
        self._is_told = not was_told and time.monotonic() - self._last >= self.interval_seconds
        return self._is_told

    @property
    def interval_seconds(self) -> float:
        """time between two checkpoints: as asked for, or by what one costs and how often runs are interrupted"""
        if self.config.checkpoint_minutes:
            return 60 * self.config.checkpoint_minutes
        assert self.keeper is not None
        return keeper.interval_seconds(
            save_seconds=self.blocked_seconds,
            mtbf_hours=self.config.mtbf_hours,
            write_seconds=self.keeper.job_seconds,
        )

    def save(self, state: TrainState, sums: torch.Tensor, *, names: tuple[str, ...] = ()) -> None:
        """Take a snapshot and have it written, once a step; names are given to it in any case."""
        if state.at.position == 0 and state.at.epoch > 0 and self.is_kept(state):
            names = (*names, f"epoch_{state.at.epoch}")
        if self.saved_step != state.at.step:
            settle(self.site.device, self.site.clock)
            self._checked(state)
            every = torch.zeros(self.site.world.size, len(sums), dtype=sums.dtype, device=sums.device)
            every[self.site.world.rank] = sums
            dist.add_up(every, self.site.world)
            state.at.line_sums = every.tolist()
            state.at.ledger, state.at.saved_at = self.site.clock.so_far(), time.time()
            if self.keeper is not None:
                if self.saved_step is not None and state.at.sound_step >= self.saved_step:
                    # All was still well after this one: it stays as long as no later one is known to be so.
                    self.keeper.name(self.saved_step, "sound")
                began = time.perf_counter()
                taken = states.snapshot(state)
                self.blocked_seconds = time.perf_counter() - began
                self.keeper.save(taken, state.at.step, names)
            self.saved_step, self._last = state.at.step, time.monotonic()
        elif self.keeper is not None:
            for name in names:
                self.keeper.name(state.at.step, name)
        self.tell()

    def _checked(self, state: TrainState) -> None:
        """Never save weights that are not numbers: a run could not go back to them."""
        norms = torch._foreach_norm([p.detach() for p in state.network.parameters()])
        if not math.isfinite(torch.stack([norm.float() for norm in norms]).sum().item()):
            raise Setback(found=Found(kind="not finite", what="the weights are not finite"))

    def finish(self) -> None:
        """Wait until everything is on disk. A machine that goes away first is not waited for."""
        if self.keeper is None:
            return
        try:
            self.keeper.wait(self.site.stop.seconds_left())
        finally:
            self.tell()

    def tell(self) -> None:
        """Show what went wrong with a checkpoint since the last look. The run goes on."""
        for problem in self.keeper.problems() if self.keeper is not None else ():
            self.screen.say(problem)

    def take_back(self, state: TrainState) -> Event:
        """Bring a state to the newest checkpoint at which the run was still well; later ones are removed."""
        if self.keeper is not None:
            self.keeper.remove_after(state.at.sound_step)
        dist.barrier(self.site.world)
        from_step = state.at.step
        states.load_newest(self.site.run, state, at_most=state.at.sound_step)
        self.saved_step = None
        # All was well after it: it is what the next setback goes back to, as long as nothing later is known to be so.
        state.at.sound_step = state.at.step
        if state.scaler.is_enabled():
            # It remembers how far the update came that failed.
            state.scaler._per_optimizer_states.clear()
        return Event(at=time.time(), kind="rollback", what=f"from step {from_step} back to step {state.at.step}")
