"""What a run writes down of itself while it trains: lines of metrics, ledger and events, and the screen."""

import time
from collections.abc import Iterable

import torch

from stoker import dist, runs, units
from stoker.config import Config
from stoker.data import native
from stoker.data.index import OTHER
from stoker.data.loader import MOST_PILLOW_THREADS, Loader
from stoker.data.order import Pace
from stoker.data.sources import Dataset
from stoker.errors import Problem
from stoker.records import Event, LedgerRow, MetricRow
from stoker.tasks import Task
from stoker.train import optim
from stoker.train.screen import Pulse, Screen
from stoker.train.site import Site, settle
from stoker.train.state import TrainState


class Book:
    """The writer of one process's records. Only the first process writes metrics and talks."""

    def __init__(self, site: Site, *, task: Task, batches: Loader, allow_bad: float, screen: Screen, step: int) -> None:
        self.site, self.task, self.batches, self.allow_bad, self.screen = site, task, batches, allow_bad, screen
        self._step, self._samples = step, 0
        self._read = self._decode = 0.0
        self.samples = 0
        """samples that this start of the run has trained on, over all processes"""
        self._bad_told: set[str] = set()

    def open(
        self, state: TrainState, config: Config, pace: Pace, data: Dataset, *, notes: Iterable[str], threads: int
    ) -> None:
        """Say what is about to happen, before it takes hours."""
        peak, world = optim.peak_rate(config.optim, batch=pace.batch), self.site.world
        weights = sum(p.numel() for p in state.network.parameters())
        left_over = pace.count - pace.steps * pace.batch
        self.screen.say(f"run      {self.site.run.folder}")
        self.screen.say(
            f"data     {data.name}: {pace.count:,} training samples ({units.bytes_text(data.train.total_bytes)}), "
            f"{len(data.held_out):,} held out ({data.held_out_name}), {len(data.classes)} classes"
        )
        self.screen.say(
            f"model    {state.at.model}, {weights:,} weights, on {self.site.device}, amp {config.model.amp}"
        )
        self.screen.say(
            f"steps    {units.count_text(config.train.epochs, 'epoch')} x {units.count_text(pace.steps, 'step')}"
            f" x {units.count_text(pace.batch, 'sample')}"
            + (f" ({left_over} left over in each epoch)" if left_over > 0 else "")
            + f", {units.count_text(pace.atoms, 'atom')} on {units.count_text(world.size, 'process')}"
        )
        most = units.bytes_text(self.batches.most_bytes(-(-pace.batch // pace.atoms)))
        is_native = native.library() is not None and (data.train.codec != OTHER).mean() > 0.5
        decoder = native.built_with() if is_native else f"Pillow (at most {MOST_PILLOW_THREADS} of them at once)"
        self.screen.say(f"loader   {units.count_text(threads, 'decode thread')}, {decoder}, at most {most} of memory")
        self.screen.say(
            f"lr       {config.optim.lr:g} for {optim.BASE_BATCH} samples -> peak {peak:.4g} "
            f"({config.optim.optimizer}, {config.optim.schedule}, warm-up {config.optim.warmup_epochs:g} epochs)"
        )
        if native.library() is None:
            self.screen.say(f"note     {native.MISSING}; fix: {native.CURE}")
        if config.model.compile:
            self.screen.say("note     the network is compiled in the first step, which can take minutes")
        for note in notes:
            self.screen.say(f"note     {note}")
            if world.is_first:
                self.event("resume", note)
        self._ledger_row(state)

    def event(self, kind: str, what: str) -> None:
        """Enter something worth knowing later."""
        runs.append_line(self.site.run.events, Event(at=time.time(), kind=kind, what=what))

    def line(self, state: TrainState, sums: torch.Tensor, *, rate: float, epoch: int) -> None:
        """Write down the scores and the time since the last line, and start the next."""
        settle(self.site.device, self.site.clock)
        dist.add_up(sums, self.site.world)
        values = sums.tolist()
        sums.zero_()
        count = int(values[-1])
        scores = {n: v / count for n, v in zip(self.task.score_names, values[:-1], strict=True)}
        row = MetricRow(kind="train", epoch=epoch, step=state.at.step, samples=count, lr=rate, scores=scores)
        pulse = self._ledger_row(state)
        if self.site.world.is_first:
            runs.append_line(self.site.run.metrics, row)
            self.screen.line(row, pulse)
        self._check_bad()

    def _ledger_row(self, state: TrainState) -> Pulse:
        clock, loader, world = self.site.clock, self.batches, self.site.world
        seconds, steps, samples = clock.interval(), state.at.step - self._step, self.samples - self._samples
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
        )
        self._read, self._decode = loader.read_seconds, loader.decode_seconds
        runs.append_line(self.site.run.ledger_of(world.rank), row)
        return Pulse(steps=steps, seconds=seconds)

    def evaluation(self, state: TrainState, sums: torch.Tensor, *, bad: int) -> bool:
        """Write down the scores of an evaluation. Returns whether they are the best so far."""
        values = sums.tolist()
        count = int(values[-1])
        if not count or bad > self.allow_bad * (count + bad):
            raise Problem(
                f"{bad} of {count + bad} held-out samples can't be read; {units.percent_text(self.allow_bad)} may be",
                fix="see them all with: stoker inspect DATA; or allow more with --allow-bad",
            )
        scores = {n: v / count for n, v in zip(self.task.score_names, values[:-1], strict=True)}
        at = state.at
        row = MetricRow(kind="eval", epoch=at.epoch, step=at.step, samples=count, lr=None, scores=scores)
        is_best = at.best is None or scores["top1"] > at.best["top1"]
        if is_best:
            at.best = {**scores, "step": at.step, "epoch": at.epoch}
        at.evaluated = at.epoch
        if self.site.world.is_first:
            runs.append_line(self.site.run.metrics, row)
            self.screen.evaluation(row, is_best=is_best, bad=bad)
        return is_best

    def close(self, state: TrainState) -> None:
        """Write down the rest of the time, and show where all of it went."""
        self.screen.ledger(self.site.clock.so_far())
        self._ledger_row(state)

    def unreadable(self, batches: Loader, what_then: str) -> None:
        """Enter the samples that a loader could not read in the events, each once."""
        for sample, reason in batches.bad.items():
            path = batches.index.place(sample)
            if path not in self._bad_told:
                self._bad_told.add(path)
                self.event("unreadable", f"{path}: {reason}; {what_then}")
                self.screen.say(f"unreadable: {path}: {reason}; {what_then}")

    def _check_bad(self) -> None:
        """Enter new unreadable samples in the events, and stop when there are too many."""
        bad, index = self.batches.bad, self.batches.index
        self.unreadable(self.batches, "the next readable sample takes its place")
        if len(bad) > self.allow_bad * len(index):
            first = next(iter(bad))
            raise Problem(
                f"{len(bad)} of {len(index)} samples can't be read; {units.percent_text(self.allow_bad)} may be; "
                f"the first: {index.place(first)}: {bad[first]}",
                fix="see them all with: stoker inspect DATA; or allow more with --allow-bad",
            )
