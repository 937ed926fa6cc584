"""Memory: knowing when there was too little, taking less at a time, and finding out how much fits."""

import ctypes
import gc
import threading
import time
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from stoker import dist, progress, units
from stoker.config import OptimConfig, TuneConfig
from stoker.data.loader import Batch
from stoker.data.order import Plan
from stoker.errors import Problem
from stoker.machine import gauges
from stoker.tasks import Task
from stoker.train import optim as optimisers

# How torch, cuDNN and cuBLAS word it where they have no error class of their own for it.
OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "DefaultCPUAllocator",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
)
FIRST_BATCH = 8
# The rest is for gradients under way between processes, other shapes of the last step, and fragments.
GPU_SHARE = 0.9
# A CPU's memory is shared with the data, its cache and other programs.
CPU_SHARE = 0.5
MOST_ON_CPU = 1024
# A CPU's larger batches are reckoned once a try takes longer.
SLOW_SECONDS = 3.0
SAMPLE_SECONDS = 0.002


@dataclass(frozen=True, kw_only=True)
class Try:
    """What a step of one batch took."""

    batch: int
    peak_bytes: int | None
    """the most memory it took; None where it ran out"""
    seconds: float
    fits: bool


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The largest batch that fits into memory, for one process."""

    batch: int
    peak_bytes: int
    """memory that it takes: measured, or on a CPU reckoned from smaller ones"""
    budget_bytes: int
    tried: tuple[Try, ...]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of whichever kind, was not enough."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)


def smaller(*, batch: int, atoms: int, needs_two: bool) -> int | None:
    """Twice the atoms, for a step that ran out of memory; None where an atom would have too few samples."""
    least = 2 if needs_two else 1
    return 2 * atoms if batch >= 2 * atoms * least else None


def free(device: torch.device) -> None:
    """Give back the memory that nothing uses. Not inside of `except`: the error still holds on to what it met."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc has it, others may not
        trim(0)


def largest_batch(
    task: Task, *, classes: int, resolution: int, device: torch.device, optim: OptimConfig, most: int, show: bool
) -> Fit:
    """Measure how many samples of a step fit into memory. Nothing of it stays allocated."""
    sizes = candidates(most if device.type == "cuda" else min(most, MOST_ON_CPU))
    budget_bytes = budget(device)
    progress.say(f"batch    what fits into {units.bytes_text(budget_bytes)}?", show=show)
    # The run's own random numbers do not depend on what is drawn here.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        tried = tried_out(task, sizes, classes=classes, resolution=resolution, device=device, optim=optim,
                          budget_bytes=budget_bytes, show=show)  # fmt: skip
    free(device)
    fit = chosen(tried, sizes, budget_bytes=budget_bytes, reckons=device.type != "cuda")
    if fit is None:
        raise Problem(
            f"not even {sizes[0]} samples of {resolution} x {resolution} pixels fit into "
            f"{units.bytes_text(budget_bytes)} of memory",
            fix="give a smaller --resolution or --model, or end what else uses the memory",
        )
    progress.say(f"batch    {fit.batch} it is", show=show)
    return fit


def candidates(most: int) -> list[int]:
    """The sizes that are chosen from, smallest first: powers of two, and those with half as much again."""
    if most < 2:
        raise Problem(f"a batch of at most {most} leaves nothing to find out", fix="give more samples, or --batch 1")
    sizes = {size for power in range(1, most.bit_length()) for size in (2**power, 3 * 2 ** (power - 1))}
    return sorted(size for size in sizes if size <= most)


def budget(device: torch.device) -> int:
    """The memory that training may take: of the GPU what is free or ours, of the machine half of what is free."""
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        return int(GPU_SHARE * (free_bytes + torch.cuda.memory_reserved(device)))
    available_bytes = gauges.memory_allotted().available_bytes
    if available_bytes is None:
        raise Problem("how much memory is free can't be measured on this machine", fix="give a number: --batch 64")
    return int(CPU_SHARE * available_bytes / dist.world().local_size)


def tried_out(
    task: Task,
    sizes: list[int],
    *,
    classes: int,
    resolution: int,
    device: torch.device,
    optim: OptimConfig,
    budget_bytes: int,
    show: bool,
) -> list[Try]:
    """Steps of a fresh network with doubling batches until one does not fit, then with the size before that."""
    free(device)
    meter = Meter(device)
    trial = Trial(task, classes=classes, resolution=resolution, device=device, optim=optim)
    doubling = [size for size in sizes if size >= FIRST_BATCH and size & (size - 1) == 0] or [sizes[-1]]
    tried: list[Try] = []

    def fits(batch: int) -> bool:
        tried.append(measured(trial, batch, meter=meter, budget_bytes=budget_bytes))
        progress.say(f"batch    {told(tried[-1])}", show=show)
        return tried[-1].fits

    for batch in doubling:
        if not fits(batch) or (device.type == "cpu" and tried[-1].seconds > SLOW_SECONDS):
            break
    if not tried[0].fits:
        # Not even the first: downwards, one by one.
        for batch in reversed([size for size in sizes if size < tried[0].batch]):
            if fits(batch):
                break
    elif device.type == "cuda":
        largest = max(row.batch for row in tried if row.fits)
        if largest * 3 // 2 in sizes:
            fits(largest * 3 // 2)
    return tried


class Trial:
    """A fresh network that takes steps on made-up pictures, at a rate of zero."""

    def __init__(self, task: Task, *, classes: int, resolution: int, device: torch.device, optim: OptimConfig) -> None:
        self.task, self.classes, self.resolution, self.device, self.optim = task, classes, resolution, device, optim
        self.network = task.model(classes=classes).to(device).train()
        self.optimizer = optimisers.optimizer(optim, TuneConfig(), self.network)
        optimisers.rated(self.optimizer, 0.0)
        self.average = [p.detach().clone() for p in self.network.parameters()] if optim.ema else []
        self.has_stepped, self.output_bytes = False, 0
        for layer in self.network.modules():
            if next(layer.children(), None) is None:
                layer.register_forward_hook(self._count)

    def _count(self, _: object, __: object, output: object) -> None:
        self.output_bytes += output.nbytes if isinstance(output, torch.Tensor) else 0

    def step(self, batch: int) -> None:
        """Forward, backward and an update."""
        # The optimiser makes its own memory in its first step, which the second then has beside everything else.
        for _ in range(1 if self.has_stepped else 2):
            self.optimizer.zero_grad(set_to_none=True)
            self.output_bytes = 0
            inputs = self.task.moved(self.pictures(batch), self.device)
            loss, _ = self.task.loss(self.network, inputs)
            loss.backward()
            optimisers.clipped(self.optim, self.network)
            self.optimizer.step()
        self.has_stepped = True

    def pictures(self, batch: int) -> Batch:
        """Random bytes, made where they are needed."""
        shape, device = (batch, self.resolution, self.resolution, 3), self.device
        pixels = torch.randint(256, shape, dtype=torch.uint8, device=device)
        labels = torch.randint(self.classes, (batch,), device=device)
        places = np.arange(batch)
        plan = Plan(epoch=0, positions=places, samples=places, resolution=self.resolution)
        return Batch(plan=plan, pixels=pixels, labels=labels)


class Meter:
    """The most memory that is taken inside of `with`: of a GPU by torch, or by this process beyond its first."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.bytes = device, 0
        self._process = psutil.Process()
        self._first_bytes = self._process.memory_info().rss
        self._over = threading.Event()
        self._thread = threading.Thread()

    def __enter__(self) -> "Meter":
        self.bytes = 0
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._over.clear()
            self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.device.type == "cuda":
            self.bytes = torch.cuda.max_memory_reserved(self.device)
        else:
            self._over.set()
            self._thread.join()

    def _sample(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._over.wait(SAMPLE_SECONDS)
            self.bytes = max(self.bytes, self._process.memory_info().rss - self._first_bytes)


def measured(trial: Trial, batch: int, *, meter: Meter, budget_bytes: int) -> Try:
    """Take a step with a batch."""
    free(trial.device)
    began, peak_bytes = time.perf_counter(), None
    try:
        with meter:
            trial.step(batch)
            if trial.device.type == "cuda":
                torch.cuda.synchronize(trial.device)
        # Memory that a process has at hand from before is not seen to be taken; outputs are the most of it.
        peak_bytes = max(meter.bytes, trial.output_bytes)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        trial.optimizer.zero_grad(set_to_none=True)
    fits = peak_bytes is not None and peak_bytes <= budget_bytes
    return Try(batch=batch, peak_bytes=peak_bytes, seconds=time.perf_counter() - began, fits=fits)


def told(row: Try) -> str:
    """A try in words."""
    took = "runs out of memory" if row.peak_bytes is None else f"takes {units.bytes_text(row.peak_bytes)}"
    return f"{row.batch} {took}{'' if row.fits or row.peak_bytes is None else ', too much'}"


def chosen(tried: list[Try], sizes: list[int], *, budget_bytes: int, reckons: bool) -> Fit | None:
    """The largest size that fitted, or that a line through what was measured says will fit."""
    peaks = {row.batch: row.peak_bytes for row in tried if row.fits and row.peak_bytes is not None}
    if not peaks:
        return None
    too_large = min((row.batch for row in tried if not row.fits), default=sizes[-1] + 1)
    if reckons:
        peaks = {size: peaks.get(size, reckoned(peaks, size)) for size in sizes if size < too_large}
    batch = max((size for size, peak_bytes in peaks.items() if peak_bytes <= budget_bytes), default=None)
    if batch is None:
        return None
    return Fit(batch=batch, peak_bytes=peaks[batch], budget_bytes=budget_bytes, tried=tuple(tried))


def reckoned(peaks: dict[int, int], batch: int) -> int:
    """Memory of a batch that was not tried, on the line through the two largest that were."""
    *_, (last, last_bytes) = sorted(peaks.items())
    # One point alone, or a line that falls, says too little: then every byte counts as the samples'.
    slope = last_bytes / last
    if len(peaks) > 1:
        before, before_bytes = sorted(peaks.items())[-2]
        rise = (last_bytes - before_bytes) / (last - before)
        slope = rise if rise > 0 else slope
    return max(0, round(last_bytes + slope * (batch - last)))
