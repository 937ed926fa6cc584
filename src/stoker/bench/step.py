"""What Stoker's loop costs: its steps against those of a loop written by hand, in turn, in one process."""

import copy
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional

from stoker import progress, units
from stoker.bench import parts
from stoker.bench.ground import Ground, Load, refused_memory, settle
from stoker.bench.parts import Part
from stoker.bench.spread import Spread, spread
from stoker.errors import Problem
from stoker.tasks.classify import MEAN, STD

# Pixels and samples of a step where nobody says any, on a GPU and without one.
SUITED = {"cuda": (224, 64), "cpu": (224, 8)}
# A round of each takes about so long, with so many steps at most.
ROUND_SECONDS = 2.0
MOST_STEPS = 200
# What is neither data, forward, backward nor optimiser, of the ledger's buckets.
OWN = ("logging", "other", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class StepBench:
    """What a step benchmark found, and on what."""

    model: str
    device: str
    amp: str
    resolution: int
    batch: int
    steps: int
    """of each in a round"""
    ours_seconds: Spread
    """of a step, over the rounds"""
    peer_seconds: Spread
    ratio: Spread
    """our time by the peer's, of neighbouring rounds: 1.01 is 1 % slower"""
    overhead_seconds: Spread
    """what a step of ours takes longer"""
    shares: dict[str, float]
    """of our time, by the ledger's buckets that are neither data nor computing"""
    parts: tuple[Part, ...]
    """what Stoker does beside the network in a step, each measured on its own"""


class Plain:
    """The loop that one would write by hand: the same network, numbers and optimiser, and nothing else."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.device, optim = ground, ground.device, ground.config.optim
        self.network = copy.deepcopy(ground.state.network).train()
        is_fused = True if self.device.type == "cuda" else None
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=optim.peak_lr, momentum=optim.momentum, weight_decay=optim.weight_decay,
            fused=is_fused,
        )  # fmt: skip
        self.amp = ground.config.model.amp
        self.scaler = GradScaler(self.device.type, enabled=self.amp == "fp16")
        self.mean = torch.tensor(MEAN, device=self.device).mul_(255).view(1, 3, 1, 1)
        self.scale = torch.tensor(STD, device=self.device).mul_(255).reciprocal_().view(1, 3, 1, 1)

    def seconds(self, steps: int) -> float:
        """Take some steps; returns the time of one."""
        with refused_memory(self.ground.config):
            settle(self.device)
            began = time.perf_counter()
            for number in range(steps):
                self.step(self.ground.pixels[number % len(self.ground.pixels)], self.ground.labels)
            settle(self.device)
            return (time.perf_counter() - began) / steps

    def step(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        """One step, as in torch's tutorials."""
        pixels, labels = pixels.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
        pictures = pixels.permute(0, 3, 1, 2).float().sub_(self.mean).mul_(self.scale)
        dtype = torch.float16 if self.amp == "fp16" else torch.bfloat16
        with torch.autocast(self.device.type, dtype=dtype, enabled=self.amp != "off"):
            logits = self.network(pictures)
        loss = functional.cross_entropy(logits.float(), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def measure(load: Load, *, rounds: int, steps: int, show: bool) -> StepBench:
    """Take steps with Stoker's loop and with a plain one in turn, and set their times side by side."""
    if rounds < 1 or steps < 0:
        raise Problem(f"rounds is {rounds} and steps is {steps}", fix="give 1 round or more, and 0 or more steps")
    load = load.suited(SUITED)
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        ground = Ground(load, Path(folder), most_steps=max(steps, MOST_STEPS))
        plain = Plain(ground)
        with ground.opened():
            # The first steps choose kernels and get memory.
            for loop in (plain, ground):
                loop.seconds(1)
            count = steps or min(max(round(ROUND_SECONDS / plain.seconds(2)), 1), MOST_STEPS)
            ground.seconds(count)
            ground.ledger.clear()
            pairs = taken(ground, plain, rounds=rounds, steps=count, show=show)
            whole = sum(value or 0.0 for value in ground.ledger.values())
            shares = {name: (ground.ledger.get(name) or 0.0) / whole for name in OWN}
            found = parts.measured(ground)
    return StepBench(
        model=ground.config.model.model, device=str(ground.device), amp=load.amp,
        resolution=ground.config.image.resolution, batch=load.batch, steps=count,
        ours_seconds=spread(ours for ours, _ in pairs), peer_seconds=spread(peer for _, peer in pairs),
        ratio=spread(ours / peer for ours, peer in pairs),
        overhead_seconds=spread(ours - peer for ours, peer in pairs), shares=shares, parts=found,
    )  # fmt: skip


def taken(ground: Ground, plain: Plain, *, rounds: int, steps: int, show: bool) -> list[tuple[float, float]]:
    """Measure both in turn, with another one first each time: the times of a step, ours and the peer's."""
    pairs = []
    for number in range(rounds):
        # Lines between the rounds: a bar would be drawn beside one of the two.
        progress.say(f"round {number + 1} of {rounds}: {units.count_text(steps, 'step')} of each", show=show)
        if number % 2:
            peer, ours = plain.seconds(steps), ground.seconds(steps)
        else:
            ours, peer = ground.seconds(steps), plain.seconds(steps)
        pairs.append((ours, peer))
    return pairs
