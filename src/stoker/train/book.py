"""What a run writes down of itself while it trains: lines of metrics, ledger and events, and the screen."""

import collections
import math
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from stoker import dist, runs, units
from stoker.config import Config, Stage
from stoker.data import native
from stoker.data.index import OTHER
from stoker.data.loader import MOST_PILLOW_THREADS, Loader
from stoker.data.order import Route
from stoker.data.sources import Dataset
from stoker.errors import Problem
from stoker.records import Event, LedgerRow, MetricRow, Status
from stoker.tasks import Task
from stoker.train import divergence, optim, rates
from stoker.train.divergence import Found
from stoker.train.evaluation import Evaluation
from stoker.train.keeper import Keeper
from stoker.train.screen import Pulse, Screen
from stoker.train.setbacks import Setback
from stoker.train.site import Site, settle
from stoker.train.state import TrainState
from stoker.train.track import Tracker

# Fewer steps an epoch are mostly a batch that is too large for the data.
FEW_STEPS = 4


def tune_text(config: Config) -> str:
    """How carefully weights are moved, in words."""
    tune, said = config.tune, []
    if tune.freeze_epochs:
        said.append(f"only the last layer learns for {units.count_text(tune.freeze_epochs, 'epoch')}, then all do")
    if tune.head_rate != 1:
        said.append(f"the last layer {tune.head_rate:g} x as fast")
    if tune.layer_decay != 1:
        said.append(f"each layer before it {tune.layer_decay:g} x as fast as the next")
    if config.optim.ema:
        said.append(f"the average of the weights ({config.optim.ema:g}) is evaluated")
    return "; ".join(said) or "all layers learn at the same rate"


class Book:
    """The writer of one process's records. Only the first process writes metrics and talks."""

    def __init__(self, site: Site, *, task: Task, classes: int, allow_bad: float, screen: Screen) -> None:
        self.site, self.task, self.classes, self.allow_bad, self.screen = site, task, classes, allow_bad, screen
        self.route = screen.route
        self.batches: Loader
        self.samples = 0
        """samples that this start of the run has trained on, over all processes"""
        self._step = self._samples = 0
        self._read = self._decode = self._written = 0.0
        self._keeper: Keeper | None = None
        self._bad_told: set[str] = set()
        self._threads = self._sent_bytes = 0
        self._waiting: collections.deque[tuple[Path, Any]] = collections.deque()
        """lines that the disk had no room for"""
        self.tracker = Tracker(site.run)

    def open(
        self, state: TrainState, config: Config, data: Dataset, *, notes: Iterable[str], keeper: Keeper | None
    ) -> None:
        """Say what is about to happen, before it takes hours."""
        self._keeper = keeper
        say, route, world = self.screen.say, self.route, self.site.world
        weights = sum(p.numel() for p in state.network.parameters())
        say(f"run      {self.site.run.folder}")
        say(
            f"data     {data.name}: {route.count:,} training samples ({units.bytes_text(data.train.total_bytes)}), "
            f"{len(data.held_out):,} held out ({data.held_out_name}), {len(data.classes)} classes"
        )
        say(f"model    {state.at.model}, {weights:,} weights, on {self.site.device}, amp {config.model.amp}")
        for number in range(len(route.stages)):
            say(f"steps    {self.stage_text(number)}")
            say(f"lr       {self.rate_text(config, route.stages[number])}")
            warned = optim.warning(
                config.optim, config.tune, batch=route.stages[number].batch, fixed=route.stages[number].peak_rate
            )
            if warned:
                say(f"warning  {warned}")
                if world.is_first:
                    self.event("rate", warned)
            if route.paces[number].steps < FEW_STEPS:
                few = units.count_text(route.paces[number].steps, "step")
                fewer = max(2, route.count // (2 * FEW_STEPS))
                say(f"warning  only {few} an epoch, which is little to learn by; try --batch {fewer}")
        if config.tune.weights or config.optim.ema:
            say(f"tune     {tune_text(config)}")
        if native.library() is None:
            say(f"note     {native.MISSING}; fix: {native.CURE}")
        if config.model.compile:
            say("note     the network is compiled in the first step, which can take minutes")
        if world.size > 1:
            self._sent_bytes = dist.sent_bytes(state.network, config.many.compress)
            sent = units.bytes_text(self._sent_bytes)
            say(f"many     {sent} of gradients a step from each process, compression {config.many.compress}")
        if world.size > 1 and config.many.compress == "powersgd":
            say("note     powersgd keeps a memory that is not saved: after an interruption the weights differ a little")
        for note in notes:
            say(f"note     {note}")
            if world.is_first:
                self.event("resume", note)
        if world.is_first and config.save.track != "off":
            say(f"track    {self.tracker.open(config.save.track, config)}")

    def exhibited(self, why_not: str | None) -> None:
        """Say why the run has nothing to show, where it has not."""
        if why_not is not None:
            self.event("exhibits", f"what the network sees is not shown: {why_not}")
            self.screen.say(f"note     what the network sees is not shown: {why_not}")

    def stage_text(self, number: int) -> str:
        """How a stage is cut into steps, in words."""
        route, stage, pace = self.route, self.route.stages[number], self.route.paces[number]
        left_over = pace.count - pace.steps * pace.batch
        which = f"stage {number + 1}: {stage.resolution} pixels, " if len(route.stages) > 1 else ""
        return (
            f"{which}{units.count_text(stage.epochs, 'epoch')} x {units.count_text(pace.steps, 'step')}"
            f" x {units.count_text(pace.batch, 'sample')}"
            + (f" ({left_over} left over in each epoch)" if left_over > 0 else "")
            + f", {units.count_text(pace.atoms, 'atom')} on {units.count_text(self.site.world.size, 'process')}"
        )

    def rate_text(self, config: Config, stage: Stage) -> str:
        """The peak rate of a stage and where it comes from, in words."""
        peak = rates.peak_rate(config.optim, batch=stage.batch, fixed=stage.peak_rate)
        how = f"{config.optim.optimizer}, {config.optim.schedule}, warm-up {config.optim.warmup_epochs:g} epochs"
        if stage.peak_rate or config.optim.peak_lr:
            return f"peak {peak:.4g}, as given ({how})"
        return f"{config.optim.lr:g} for {rates.BASE_BATCH} samples -> peak {peak:.4g} ({how})"

    def begin(self, state: TrainState, route: Route, batches: Loader, *, threads: int) -> None:
        """Follow the run from where it is: at a start, and after a setback."""
        self.route = self.screen.route = route
        self.batches, self._threads = batches, threads
        self._step, self._read, self._decode = state.at.step, 0.0, 0.0
        self._samples = self.samples
        atom = max(-(-stage.batch // route.atoms) * stage.resolution**2 for stage in route.stages)
        most = units.bytes_text(batches.most_bytes(atom))
        is_native = native.library() is not None and (batches.index.codec != OTHER).mean() > 0.5
        decoder = native.built_with() if is_native else f"Pillow (at most {MOST_PILLOW_THREADS} of them at once)"
        self.screen.say(f"loader   {units.count_text(threads, 'decode thread')}, {decoder}, at most {most} of memory")
        self.screen.begin(state.at.epoch, state.at.position)
        self.tracker.begin(step=state.at.step, rollbacks=state.at.trend.rollbacks, best=state.at.best)
        self._ledger_row(state)

    def event(self, kind: str, what: str) -> None:
        """Enter something worth knowing later."""
        self._write(self.site.run.events, Event(at=time.time(), kind=kind, what=what))

    def _write(self, path: Path, row: Any) -> None:
        """Add a line to a file. What a full disk does not take is kept, and written when there is room again."""
        self._waiting.append((path, row))
        while self._waiting:
            try:
                runs.append_line(*self._waiting[0])
            except Problem as problem:
                if len(self._waiting) == 1:
                    self.screen.say(f"not written: {problem}")
                return
            self._waiting.popleft()

    def line(self, state: TrainState, sums: torch.Tensor, *, rate: float, epoch: int) -> None:
        """Write down the scores and the time since the last line, and start the next."""
        settle(self.site.device, self.site.clock)
        self._tell_peers_apart()
        dist.add_up(sums, self.site.world)
        values = sums.tolist()
        sums.zero_()
        count = int(values[-1])
        scores = {n: v / count for n, v in zip(self.task.score_names, values[:-1], strict=True)}
        row = MetricRow(kind="train", epoch=epoch, step=state.at.step, samples=count, lr=rate, scores=scores)
        pulse = self._ledger_row(state)
        if self.site.world.is_first:
            self._write(self.site.run.metrics, row)
            self.screen.line(row, pulse)
        self.tracker.row(row)
        self._tell_track()
        self._check_bad()
        found = divergence.seen(state.at.trend, scores, samples=count, classes=self.classes)
        if found is not None:
            raise Setback(found=found)
        # The losses are from before each step's update: what the last one did to the weights is not known yet.
        if not divergence.is_hopeless(scores["loss"], classes=self.classes):
            state.at.sound_step = max(state.at.sound_step, state.at.step - 1)

    def _tell_peers_apart(self) -> None:
        """Tell a slow wire from a slow peer: who comes last to an exchange waits for the wire alone."""
        clock, world = self.site.clock, self.site.world
        mine = clock.steps_over()
        if world.size > 1 and mine:
            every = torch.zeros(world.size, len(mine), dtype=torch.float64, device=self.site.device)
            every[world.rank] = torch.tensor(mine, dtype=torch.float64)
            dist.add_up(every, world)
            clock.waited(sum(mine) - float(every.min(dim=0).values.sum()))

    def _ledger_row(self, state: TrainState) -> Pulse:
        clock, loader, world = self.site.clock, self.batches, self.site.world
        steps, samples = state.at.step - self._step, self.samples - self._samples
        seconds = clock.interval(steps=steps)
        written = self._keeper.cpu_seconds if self._keeper is not None else 0.0
        self._step, self._samples = state.at.step, self.samples
        row = LedgerRow(
            at=time.time(),
            rank=world.rank,
            world=world.size,
            attempt=self.site.attempt,
            step=state.at.step,
            steps=steps,
            samples=samples,
            seconds=seconds,
            totals=clock.so_far(),
            read_seconds=loader.read_seconds - self._read,
            decode_seconds=loader.decode_seconds - self._decode,
            device=str(self.site.device),
            write_seconds=written - self._written,
            host=socket.gethostname(),
            threads=self._threads,
            pure_seconds=clock.pure_seconds,
            sent_bytes=self._sent_bytes,
        )
        self._read, self._decode, self._written = loader.read_seconds, loader.decode_seconds, written
        self._write(self.site.run.ledger_of(world.rank), row)
        self.tracker.pace(row)
        return Pulse(steps=steps, seconds=seconds)

    def evaluation(self, state: TrainState, found: Evaluation) -> bool:
        """Write down the scores of an evaluation. Returns whether they are the best so far."""
        values, bad = found.sums.tolist(), found.bad
        self._tell_unreadable(found.unreadable, "left out of the evaluation")
        count = int(values[-1])
        if not count or bad > self.allow_bad * (count + bad):
            raise Problem(
                f"{bad} of {count + bad} held-out samples can't be read; {units.percent_text(self.allow_bad)} may be",
                fix="see them all with: stoker inspect DATA; or allow more with --allow-bad",
            )
        scores = {n: v / count for n, v in zip(self.task.score_names, values[:-1], strict=True)}
        at = state.at
        row = MetricRow(kind="eval", epoch=at.epoch, step=at.step, samples=count, lr=None, scores=scores)
        if not math.isfinite(scores["loss"]):
            raise Setback(found=Found(kind="not finite", what=f"the held-out loss is {scores['loss']}"))
        if not divergence.is_hopeless(scores["loss"], classes=self.classes):
            at.sound_step = at.step
        is_best = at.best is None or (scores["top1"], -scores["loss"]) > (at.best["top1"], -at.best["loss"])
        if is_best:
            at.best = {**scores, "step": at.step, "epoch": at.epoch}
        at.evaluated = at.epoch
        if self.site.world.is_first:
            self._write(self.site.run.metrics, row)
            self.screen.evaluation(row, is_best=is_best, bad=bad)
        self.tracker.row(row, best=at.best)
        return is_best

    def _tell_track(self) -> None:
        for problem in self.tracker.problems():
            self.event("track", problem)
            self.screen.say(f"track    {problem}")

    def close(self, state: TrainState, status: Status) -> None:
        """Write down the rest of the time, and show where all of it went."""
        with self.site.clock.into("logging"):
            self.tracker.close(status, seconds=self.site.stop.seconds_left())
            self._tell_track()
        self.screen.ledger(self.site.clock.so_far())
        self._ledger_row(state)
        for path, row in self._waiting:
            # There is no later chance.
            runs.append_line(path, row)

    def _tell_unreadable(self, bad: dict[str, str], what_then: str) -> None:
        """Enter samples that could not be read in the events, each once."""
        for path, reason in bad.items():
            if path not in self._bad_told:
                self._bad_told.add(path)
                self.event("unreadable", f"{path}: {reason}; {what_then}")
                self.screen.say(f"unreadable: {path}: {reason}; {what_then}")

    def _check_bad(self) -> None:
        """Enter new unreadable samples in the events, and stop when there are too many."""
        bad, index = self.batches.bad, self.batches.index
        places = {index.place(sample): reason for sample, reason in bad.items()}
        self._tell_unreadable(places, "the next readable sample takes its place")
        if len(bad) > self.allow_bad * len(index):
            first = next(iter(bad))
            raise Problem(
                f"{len(bad)} of {len(index)} samples can't be read; {units.percent_text(self.allow_bad)} may be; "
                f"the first: {index.place(first)}: {bad[first]}",
                fix="see them all with: stoker inspect DATA; or allow more with --allow-bad",
            )
