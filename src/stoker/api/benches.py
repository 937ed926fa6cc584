"""What `stoker bench` measures, as functions that return values."""

from typing import TYPE_CHECKING

from stoker.errors import Problem
from stoker.machine import gauges

if TYPE_CHECKING:
    from stoker.bench.ledger import LedgerBench
    from stoker.bench.loader import LoaderBench
    from stoker.bench.resume import ResumeBench
    from stoker.bench.step import StepBench


def bench_loader(
    data: str = "dials:2000x256", *, resolution: int = 224, workers: int = 0, rounds: int = 5, repeat: int = 0,
    peers: str = "", show: bool = True,
) -> "LoaderBench":  # fmt: skip
    """How fast samples are made ready, against other loaders on the same files with as many cores."""
    from stoker.bench import loader

    allotted = gauges.cores_allotted().allotted
    if not 0 <= workers <= allotted:
        raise Problem(
            f"{workers} workers were asked for, and {allotted} cores are allotted", fix=f"give 1 to {allotted}, or 0"
        )
    if rounds < 1 or repeat < 0:
        raise Problem(f"rounds is {rounds} and repeat is {repeat}", fix="give 1 round or more, and 0 or more to repeat")
    cores = workers or allotted
    return loader.compare(
        data, resolution=resolution, workers=cores, rounds=rounds, repeat=repeat, keys=peers, show=show
    )


def bench_step(
    model: str = "resnet18", *, resolution: int = 0, batch: int = 0, rounds: int = 5, steps: int = 0,
    device: str = "auto", amp: str = "off", show: bool = True,
) -> "StepBench":  # fmt: skip
    """What the loop around the network costs, against one written by hand; 0 takes what suits the device."""
    from stoker.bench import step

    load = step.Load(model=model, resolution=resolution, batch=batch, device=device, amp=amp)
    return step.measure(load, rounds=rounds, steps=steps, show=show)


def bench_resume(
    model: str = "resnet50", *, resolution: int = 0, batch: int = 0, rounds: int = 5, device: str = "auto",
    amp: str = "off", show: bool = True,
) -> "ResumeBench":  # fmt: skip
    """What saving, stopping and going on cost, against bare copies and torch.save; 0 takes what suits the device."""
    from stoker.bench import resume

    load = resume.Load(model=model, resolution=resolution, batch=batch, device=device, amp=amp)
    return resume.measure(load, rounds=rounds, show=show)


def bench_ledger(
    model: str = "resnet18", *, resolution: int = 0, batch: int = 0, rounds: int = 5, device: str = "auto",
    amp: str = "off", show: bool = True,
) -> "LedgerBench":  # fmt: skip
    """What the ledger and the gauges cost: the same steps with and without them; 0 takes what suits the device."""
    from stoker.bench import ledger

    load = ledger.Load(model=model, resolution=resolution, batch=batch, device=device, amp=amp)
    return ledger.measure(load, rounds=rounds, show=show)
