"""What it costs never to lose work: saving against bare copies and torch.save, and stopping and going on."""

import contextlib
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import torch

from stoker import checkpoint, progress
from stoker.bench import restarts
from stoker.bench.ground import Ground, Load, settle
from stoker.bench.spread import Spread, spread
from stoker.errors import Problem
from stoker.train import state as states

# Pixels and samples of a step where nobody says any, on a GPU and without one.
SUITED = {"cuda": (224, 64), "cpu": (64, 8)}
# A round of steps takes about so long, with so many steps at most.
ROUND_SECONDS, MOST_STEPS = 2.0, 200
MINUTE = 60.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was measured, in seconds, and what it was measured against."""

    what: str
    seconds: Spread
    against: str = ""
    peer: Spread | None = None
    ratio: Spread | None = None
    """our time by the peer's, of neighbouring measurements"""


@dataclass(frozen=True, kw_only=True)
class ResumeBench:
    """What a benchmark of saving and resuming found, and on what."""

    model: str
    device: str
    amp: str
    resolution: int
    batch: int
    state_bytes: int
    """of a checkpoint"""
    rows: tuple[Row, ...]
    write_bytes_per_second: float
    blocked_share: float
    """of a run's time that saves hold training up, with one every minute"""
    slowed_share: float
    """of a run's time that is lost because they are written beside training"""


@dataclass(frozen=True, kw_only=True)
class Round:
    """The seconds of one save and of what one would do instead."""

    blocked: float
    """training, by a save"""
    snapshot: float
    to_cpu: float
    into_ready: float
    write: float
    torch_save: float


def measure(load: Load, *, rounds: int, show: bool) -> ResumeBench:
    """Save a state and copy it barely in turn, train beside a writer and without one, and stop and restart a run."""
    if rounds < 1:
        raise Problem(f"rounds is {rounds}", fix="give 1 round or more")
    load = load.suited(SUITED)
    # Here, because runs are here: what is measured is their disk.
    with tempfile.TemporaryDirectory(prefix=".stoker-bench-", dir=".") as name:
        folder = Path(name).absolute()
        ground = Ground(load, folder / "ground", most_steps=MOST_STEPS)
        with ground.opened():
            # An optimiser has a memory after its first step.
            ground.seconds(2)
            progress.say(f"saves and copies, {rounds} of each", show=show)
            found = [saved(ground, folder / "peer.pt") for _ in range(rounds + 1)][1:]
            size = checkpoint.folder_bytes(checkpoint.folder(ground.site.run, ground.state.at.step))
            progress.say(f"steps beside a writer and without one, {rounds} rounds of each", show=show)
            slowed, free = zip(*steps_taken(ground, rounds=rounds), strict=True)
        children = restarts.measured(load, folder, rounds=rounds, show=show)
    rows = (*saving_rows(found), versus("a step while one is written", slowed, "a step without", free))
    write = statistics.median(one.write for one in found)
    ratio = rows[-1].ratio
    assert ratio is not None
    return ResumeBench(
        model=ground.config.model.model, device=str(ground.device), amp=load.amp, resolution=load.resolution,
        batch=load.batch, state_bytes=size, write_bytes_per_second=size / write,
        blocked_share=statistics.median(one.blocked for one in found) / MINUTE,
        slowed_share=max(0.0, write * (1 - 1 / ratio.middle)) / MINUTE,
        rows=(
            *rows,
            Row(what="from SIGTERM to a whole checkpoint", seconds=children.saved),
            Row(what="from SIGTERM to the end of the process", seconds=children.ended),
            Row(what="from its start to the first step it goes on with", seconds=children.resumed),
        ),
    )  # fmt: skip


def saving_rows(found: list[Round]) -> list[Row]:
    """The saves and what each is compared with."""
    snapshots = [one.snapshot for one in found]
    into_ready = [one.into_ready for one in found]
    return [
        versus("training held up by a save", [one.blocked for one in found], "copies into memory that is there",
               into_ready),
        versus("of it the snapshot", snapshots, "copies into memory that is there", into_ready),
        versus("of it the snapshot", snapshots, "copies into new memory", [one.to_cpu for one in found]),
        versus("a checkpoint on disk, beside training", [one.write for one in found], "torch.save and fsync",
               [one.torch_save for one in found]),
    ]  # fmt: skip


def versus(
    what: str, ours: "list[float] | tuple[float, ...]", against: str, peer: "list[float] | tuple[float, ...]"
) -> Row:
    """Two things that were measured in turn, and their ratios."""
    ratios = spread(mine / other for mine, other in zip(ours, peer, strict=True))
    return Row(what=what, seconds=spread(ours), against=against, peer=spread(peer), ratio=ratios)


def saved(ground: Ground, path: Path) -> Round:
    """Save a state once as a run does, and once in each of the other ways."""
    state, saves = ground.state, ground.saves
    state.at.step += 1
    sums = torch.zeros(len(ground.task.score_names) + 1, dtype=torch.float64, device=ground.device)
    settle(ground.device)
    began = time.perf_counter()
    saves.save(state, sums)
    blocked = time.perf_counter() - began
    saves.finish()
    assert saves.keeper is not None and saves.keeper.write_seconds is not None
    tensors = {**state.network.state_dict(), **states.optimizer_tensors(state)}
    is_pinned = ground.device.type == "cuda"
    ready = {name: torch.empty_like(t, device="cpu", pin_memory=is_pinned) for name, t in tensors.items()}
    for place in ready.values():
        place.zero_()  # memory is there only once it was written to
    return Round(
        blocked=blocked, snapshot=saves.blocked_seconds, to_cpu=copied(tensors, ground.device),
        into_ready=copied(tensors, ground.device, ready=ready), write=saves.keeper.write_seconds,
        torch_save=written(ready, path),
    )  # fmt: skip


def copied(
    tensors: dict[str, torch.Tensor], device: torch.device, *, ready: dict[str, torch.Tensor] | None = None
) -> float:
    """Seconds to copy tensors to main memory, one after another, with nothing else around it."""
    settle(device)
    began = time.perf_counter()
    if ready is None:
        kept = [tensor.to("cpu", copy=True) for tensor in tensors.values()]
        assert len(kept) == len(tensors)
    else:
        for name, tensor in tensors.items():
            ready[name].copy_(tensor.detach(), non_blocking=True)
        settle(device)
    return time.perf_counter() - began


def written(tensors: dict[str, torch.Tensor], path: Path) -> float:
    """Seconds to write tensors, which are in main memory, as one does with torch alone, until they are on the disk."""
    began = time.perf_counter()
    with open(path, "wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - began


def steps_taken(ground: Ground, *, rounds: int) -> Iterator[tuple[float, float]]:
    """Seconds of a step beside a writer and without one, in turn, another one first each time."""
    count = min(max(round(ROUND_SECONDS / ground.seconds(3)), 3), MOST_STEPS)
    for number in range(rounds):
        if number % 2:
            free = ground.seconds(count)
        with writing(ground):
            slowed = ground.seconds(count)
        if not number % 2:
            free = ground.seconds(count)
        yield slowed, free


@contextlib.contextmanager
def writing(ground: Ground) -> Iterator[None]:
    """Have checkpoints written beside whatever is done inside, one after another without a pause."""
    keeper, taken, over = ground.saves.keeper, states.snapshot(ground.state), Event()
    assert keeper is not None

    def feed() -> None:
        for step in itertools.count(max(checkpoint.steps(ground.site.run), default=0) + 1):
            keeper.save(taken, step)
            keeper.wait()
            if over.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        fed = pool.submit(feed)
        try:
            yield
        finally:
            over.set()
        fed.result()
