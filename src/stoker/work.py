"""What `stoker work RUN` does: preflight -> train -> record. Every launcher starts this on a run folder."""

import contextlib
import dataclasses
import importlib.metadata
import json
import math
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import dist, doctor, locks, progress, records, runs, settings
from stoker.config import Config
from stoker.dist import World
from stoker.errors import Problem
from stoker.machine.interrupts import StopRequest
from stoker.machine.sampler import Sampler
from stoker.plan import history
from stoker.records import Attempt, Event, RunRecord, Status
from stoker.runs import Run
from stoker.train import track
from stoker.train.ledger import Ledger

if TYPE_CHECKING:
    import torch

    from stoker.data.sources import Dataset
    from stoker.train.site import Outcome

# Exit codes: done; stopped cleanly, start me again; anything else is a failure.
DONE, STOPPED = 0, 75
# So many pictures are decoded before training to see that the data is sound; a second or two.
TRIED = 256


def work(folder: Path, *, show: bool = True) -> RunRecord:
    """Bring a run to its end, from wherever it is, and return its record."""
    started_at = time.time()
    world = dist.world()
    # Whether a GPU waits for its work to come is not known before it was measured, and nothing on a CPU.
    clock = Ledger(unmeasured={"host"})
    run = runs.open_run(folder)
    record = records.read_record(run.record)
    if record.status == "done" and not has_more_to_do(record, runs.read_config(run)):
        dist.stop(world)
        return record
    with contextlib.ExitStack() as stack:
        if world.is_first:
            stack.enter_context(locks.held(run.lock))
            record = records.read_record(run.record)
            attempt = Attempt(started_at=started_at, host=socket.gethostname(), world=world.size)
            # Starts that were refused before the first step are not part of the run.
            before = record.attempts if run.ledger.exists() else ()
            record = runs.update_record(run, status="running", why=None, attempts=(*before, attempt))
        try:
            outcome = attempt_run(run, record, world, clock, started_at=started_at, show=show)
        except BaseException as error:
            status, what = verdict_on(error)
            with contextlib.suppress(OSError, Problem):
                # Where the folder itself is gone, the cause is what the user must see.
                if world.is_first:
                    ended(run, status=status, why=str(what) or type(what).__name__)
            raise what from (error if what is not error else None)
        if world.is_first:
            ended(run, status=outcome.status, why=outcome.why, result=outcome.result)
            if outcome.status == "done":
                with contextlib.suppress(OSError, Problem):  # the run is done, whether there is room to say so or not
                    history.finished(run)
        dist.barrier(world)
        dist.stop(world)
    return records.read_record(run.record)


def attempt_run(
    run: Run, record: RunRecord, world: World, clock: Ledger, *, started_at: float, show: bool
) -> "Outcome":
    """One start of a run: everything that must hold before training, and then training."""
    from stoker.data import sources

    if world.is_first:
        # What needs no torch comes first: a wrong path is refused at once.
        track.check(runs.read_config(run).save.track)
        sources.prepared(runs.read_config(run).data, show=show)
        progress.say(f"start    {run.folder}: loading libraries and data", show=show)
    from stoker.plan import preflight as preflights
    from stoker.tasks import classify
    from stoker.train import fixed as fixing
    from stoker.train import loop, marks, start
    from stoker.train.site import Site

    config = runs.read_config(run)
    device = dist.choose_device(config.model.device, world)
    dist.start(world, device)
    if device.type == "cuda":
        clock.follow(marks.Stream(device))
    fixed = record.fixed if runs.has_begun(run) else fixing.fixed_settings(config, world)
    config = settings.with_values(config, fixed)
    start.pin_arithmetic(config.model, device)
    data = start.opened_in_turn(classify.task_of(config), world, seed=config.train.seed, show=show)
    config = settled(run, config, fixed, data, world, device, show=show)
    if config.train.plan and record.resumed_from is None:
        preflights.looked_ahead(run, config, classify.task_of(config), data, world, device, show=show)
    attempts = records.read_record(run.record).attempts
    with (
        gauged(run, config, world, device),
        StopRequest(show=show and world.is_first, spot_address=dist.spot_notice_address()) as stop,
        dist.Watch(world, device, events=run.events if world.is_first else None) as watch,
    ):
        site = Site(
            run=run, world=world, device=device, clock=clock, stop=stop, watch=watch, attempt=len(attempts),
            started_at=started_at, first_started_at=attempts[0].started_at,
        )  # fmt: skip
        return loop.train(config, classify.task_of(config), data, site, resume=record.resumed_from, show=show)


def gauged(run: Run, config: Config, world: World, device: "torch.device") -> Sampler:
    """What reads the gauges beside training. They are the machine's, so its first process reads them for all."""
    seconds = config.save.gauge_seconds if world.local_rank == 0 else 0.0
    # A process on its own has one GPU, and the others are other people's.
    own = device.index if world.local_size == 1 else None
    return Sampler(run.gauges_of(world.rank), rank=world.rank, interval_seconds=seconds, gpu_index=own)


def settled(
    run: Run,
    config: Config,
    fixed: dict[str, Any],
    data: "Dataset",
    world: World,
    device: "torch.device",
    *,
    show: bool,
) -> Config:
    """The settings of a run with nothing left open, after everything that must hold before training was seen to."""
    from stoker.tasks import classify
    from stoker.train import fixed as fixing

    if config.train.batch == "auto":
        batch = fixing.batch_that_fits(config, classify.task_of(config), data, world, device, show=show)
        fixed = {**fixed, "batch": batch}
        config = settings.with_values(config, fixed)
    fixing.check_atoms(config, world)
    if world.is_first:
        fixing.check_batches(config, data)
        preflight(config, data, run)
        runs.update_record(run, fixed=fixed)
    dist.barrier(world)
    return config


def has_more_to_do(record: RunRecord, config: Config) -> bool:
    """Whether a run that ended at its target, before its last epoch, was given a higher one since."""
    target, best = config.train.target_accuracy, record.result.get("best") or {"top1": 0.0}
    return record.result.get("epoch", 0) < config.train.epochs and (target is None or best["top1"] < target)


def preflight(config: Config, data: "Dataset", run: Run) -> None:
    """Refuse what would fail hours later, and write down what is trained on, where, and with which code."""
    facts = {
        "fingerprint": data.fingerprint(),
        "train_samples": len(data.train),
        "held_out_samples": len(data.held_out),
        "held_out": data.held_out_name,
        "classes": len(data.classes),
        "train_bytes": data.train.total_bytes,
        "empty_files": len(data.empty),
    }
    before = records.read_record(run.record).data if runs.has_begun(run) else {}
    if before and before["fingerprint"] != facts["fingerprint"]:
        listed = "\n".join(f"    {k}: {before.get(k)} -> {v}" for k, v in facts.items() if before.get(k) != v)
        raise Problem(
            f"the data in {config.data.data} is not what {run.folder} was trained on:\n{listed}",
            fix="bring the old data back, or give another name with --name",
        )
    try_samples(config, data)
    if not before:
        for path in data.empty:
            left_out = Event(at=time.time(), kind="unreadable", what=f"{path}: the file is empty; it is left out")
            runs.append_line(run.events, left_out)
    runs.update_record(run, data=facts)
    runs.write_whole(run.classes, json.dumps(data.classes))
    runs.write_whole(run.machine, json.dumps(dataclasses.asdict(doctor.examine(run.folder)), indent=1))
    runs.write_whole(run.code, json.dumps(code(), indent=1))


def try_samples(config: Config, data: "Dataset") -> None:
    """Decode some samples of each index, evenly spread, and refuse data of which too much is unreadable."""
    from stoker.data import survey

    for index in (data.train, data.held_out):
        found = survey.look(index, most=TRIED, threads=4)
        expected = config.data.allow_bad * found.looked_at
        # A sample may hold more bad ones than the whole by chance: three standard deviations are no chance.
        slack = 0.0 if found.looked_at == len(index) else 3 * math.sqrt(expected) + 1
        if len(found.bad) > expected + slack:
            path, reason = next(iter(found.bad.items()))
            raise Problem(
                f"{len(found.bad)} of {found.looked_at} samples tried can't be read, the first: {path}: {reason}",
                fix=f"see them all with: stoker inspect {config.data.data}; or allow more with --allow-bad",
            )


def code() -> dict[str, Any]:
    """What code this is: version, commit, local changes and packages."""
    here = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)
        except OSError:
            return None  # not every machine has git
        return done.stdout.strip() if done.returncode == 0 else None

    is_ours = git("ls-files", "--error-unmatch", "work.py") is not None
    return {
        "version": importlib.metadata.version("stoker"),
        "commit": git("rev-parse", "HEAD") if is_ours else None,
        "diff": git("diff", "HEAD") if is_ours else None,
        "packages": installed(),
    }


def installed() -> dict[str, str]:
    """Packages and their versions, by the names of their folders: to read what is in hundreds takes half a second."""
    found: dict[str, str] = {}
    for place in reversed(sys.path):
        folder = Path(place)
        for path in (*folder.glob("*.egg-info"), *folder.glob("*.dist-info")):
            name, *version = path.stem.split("-")
            if version:
                found[name.replace("_", "-").lower()] = version[0]
    return dict(sorted(found.items()))


def verdict_on(error: BaseException) -> tuple[Status, BaseException]:
    """What an error makes of a run, and what the user is told."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", error  # perhaps in the middle of an import, which can't be begun again
    from stoker.train import memory

    if memory.is_out_of_memory(error):
        what = f"out of memory with the smallest atoms that this network takes: {error}"
        return "oom", Problem(what, fix="give a smaller --resolution or --model; both begin a new run")
    told = dist.told(error) or error
    goes_on = isinstance(told, Problem) and told.goes_on
    return "stopped" if goes_on else "failed", told


def ended(run: Run, *, status: Status, why: str | None, result: dict[str, Any] | None = None) -> RunRecord:
    """Write down how this start of a run ended."""
    record = records.read_record(run.record)
    last = dataclasses.replace(record.attempts[-1], ended_at=time.time(), status=status)
    updated = runs.update_record(
        run,
        status=status,
        why=why,
        attempts=(*record.attempts[:-1], last),
        result=record.result if result is None else result,
    )
    save = runs.read_config(run).save
    if save.mirror:
        from stoker.train import mirror as mirrors

        with contextlib.suppress(Problem):  # it was told of each checkpoint that could not be mirrored
            mirrors.to_mirror(run, Path(save.mirror), None, keep=save.keep_last)
    return updated
