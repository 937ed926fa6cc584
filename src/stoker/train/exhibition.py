"""What a run shows of its task: made before its first step and when it is done, and never a reason to end it."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from stoker import checkpoint, records, runs, settings
from stoker.checkpoint import EMA, MODEL, STATE
from stoker.config import Config
from stoker.data import order
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.dist import World
from stoker.errors import Problem
from stoker.runs import Run
from stoker.tasks import Shown, Task
from stoker.train import memory, start
from stoker.train import state as states
from stoker.train.site import Site, decode_threads

# Held-out samples that are looked at: enough for a picture of a thousand classes, and a few seconds on a GPU.
MOST = 5000
# And for so long at most: this share of the run's time, and where that is short, some seconds.
MOST_SHARE, SHORT_SECONDS = 0.05, 10.0
# A batch is not left halfway, so that on a CPU it has to be small.
LARGEST_BATCH = 64


def opening(config: Config, task: Task, data: Dataset, site: Site) -> str | None:
    """Show what the network is given in its first step. Returns why not, where it can't be shown."""
    if not (config.save.report and site.world.is_first) or runs.has_begun(site.run):
        return None
    try:
        with site.clock.into("eval"):
            hang(site.run, given(site.run, config, task, data, site.device))
    except Exception as error:  # whatever it is, training is worth more
        return why(error)
    return None


def closing(config: Config, task: Task, data: Dataset, site: Site) -> str | None:
    """Show where the best weights of a run go wrong on held-out samples. Returns why not, where it can't be shown."""
    if not (config.save.report and site.world.is_first):
        return None
    if site.stop.by is not None:
        return f"{site.stop.by} asks for an end"
    trained = sum(seconds or 0.0 for bucket, seconds in site.clock.so_far().items() if bucket != "down")
    ends = time.monotonic() + max(SHORT_SECONDS, MOST_SHARE * trained)

    def is_over() -> bool:
        return site.stop.by is not None or time.monotonic() > ends

    try:
        with site.clock.into("eval"):
            # What training has left on a GPU may fill it.
            memory.free(site.device)
            hang(site.run, learned(site.run, config, task, data, site.device, is_over=is_over))
    except Exception as error:  # whatever it is, the run is done
        return why(error)
    return None


def given(run: Run, config: Config, task: Task, data: Dataset, device: torch.device) -> tuple[Shown, ...]:
    """What a task shows of the samples that training begins with."""
    seed, at = config.train.seed, {"epoch": 0, "position": 0}
    if (origin := records.read_record(run.record).resumed_from) is not None:
        at = json.loads(checkpoint.read(checkpoint.find(run, origin), only=(STATE,))[STATE])
    plans = order.training_plans(
        start.route_of(config, data), seed=seed, epoch=at["epoch"], position=at["position"], rank=0, world=1,
        window=config.loader.window,
    )  # fmt: skip
    threads = decode_threads(config.loader.threads, World())
    with torch.no_grad():
        return task.exhibits(None, data, plans, seed=seed, threads=threads, device=device, of="", is_over=lambda: False)


def learned(
    run: Run, config: Config, task: Task, data: Dataset, device: torch.device, *, is_over: Callable[[], bool]
) -> tuple[Shown, ...]:
    """What a task shows of held-out samples and the best weights of a run."""
    # Memory may have run out on the way: then atoms are smaller than at first.
    config = settings.with_values(config, records.read_record(run.record).fixed)
    route, count = start.route_of(config, data), len(data.held_out)
    samples = np.arange(count) if count <= MOST else np.linspace(0, count - 1, MOST).round().astype(np.int64)
    place = checkpoint.find(run, "best")
    files = checkpoint.read(place, only=(MODEL, EMA, STATE))
    average = ", averaged over steps" if EMA in files else ""
    of = f"The best weights, of step {int(place.name):,}{average}"
    # A network of its own: that of the run stays as it is, and so do the random numbers that begin one.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        network = task.model(classes=len(data.classes))
    states.load_weights(network, files, where=str(place))
    del files
    network = network.to(device).eval()
    # In an order of chance: wherever it ends early, samples of all classes were seen.
    mixed = np.random.default_rng(0).permutation(samples)
    plans = cut(mixed, batch=min(LARGEST_BATCH, route.atom(route.epochs)))
    threads = decode_threads(config.loader.threads, World())
    with torch.no_grad():
        return task.exhibits(
            network, data, plans, seed=config.train.seed, threads=threads, device=device, of=of, is_over=is_over
        )


def cut(samples: NDArray[np.int64], *, batch: int) -> Iterator[Plan]:
    """Samples in batches, in their order."""
    for first in range(0, len(samples), batch):
        part = samples[first : first + batch]
        yield Plan(epoch=0, positions=part, samples=part)


def hang(run: Run, exhibits: Iterable[Shown]) -> None:
    """Write exhibits down. Pictures come first, so that each one that is spoken of is there."""
    run.exhibits.mkdir(exist_ok=True)
    for shown in exhibits:
        name = shown.exhibit.name
        for file, data in shown.files.items():
            # Not one by one through to the disk: that takes seconds where it is slow, and little is lost with one.
            (run.exhibits / file).write_bytes(data)
        runs.write_whole(run.exhibits / f"{name}.json", json.dumps(records.finite(dataclasses.asdict(shown.exhibit))))
        for old in run.exhibits.glob(f"{name}-*"):
            if old.name not in shown.files:
                old.unlink()


def why(error: Exception) -> str:
    """What an error says, in one line."""
    if memory.is_out_of_memory(error):
        return "out of memory"
    if isinstance(error, Problem):
        return error.what
    return f"{type(error).__name__}: {error}".splitlines()[0]
