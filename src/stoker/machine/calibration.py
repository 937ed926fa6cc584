"""Ledger -> the costs and the job of `predict`, so that its step comes out at the measured one. Pure."""

import dataclasses
import statistics
from dataclasses import dataclass

from stoker.machine import predict
from stoker.machine.evidence import Evidence, Pace, paces
from stoker.machine.links import Link, sent_share
from stoker.machine.predict import CROWDING, CROWDING_SCALING, Costs, Job

# What is below this share of the time is called no bottleneck (TensorFlow's profiler and TraceML draw the same line).
LEAST_SHARE = 0.05
# Cores that decode all the time make a network on other cores slower, because they share the machine's memory: by 5 and
# by 20 % on two ARM cores (docs/log.md, 2026-11-15).
BESIDE = 0.12
# Sixteen bits in the place of 32.
NARROW = ("bf16", "fp16")


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The process that the others wait for."""

    rank: int
    host: str
    extra_seconds: float
    """of a step, by which the others wait longer than it does"""
    bucket: str | None
    """in which it needs longer than the others; None where the ledger does not show it"""
    times: float | None
    """... and how many times as long"""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The model of a step that fits a run, and the pace that it was fitted to."""

    pace: Pace
    """of the processes, without the slow one where there is one"""
    costs: Costs
    job: Job
    straggler: Straggler | None


def model(evidence: Evidence) -> Model | None:
    """The model of a run's step; None where no step was written down."""
    every = paces(evidence)
    if not every:
        return None
    slow = straggler(every)
    mean = mean_pace([one for one in every if slow is None or one.rank != slow.rank])
    found = job_of(evidence, mean)
    return Model(pace=mean, costs=costs_of(mean, found, compress=compress(evidence)), job=found, straggler=slow)


def compress(evidence: Evidence) -> str:
    """How gradients are sent."""
    return evidence.config.many.compress if evidence.config is not None else "off"


def straggler(every: tuple[Pace, ...]) -> Straggler | None:
    """The process that waits least for others while they wait for it; None where no one is late every time."""
    if len(every) < 2 or any("peer_wait" not in one.seconds for one in every):
        return None
    slow = min(every, key=lambda one: one.seconds["peer_wait"])
    others = [one for one in every if one is not slow]
    extra = statistics.median(one.seconds["peer_wait"] for one in others) - slow.seconds["peer_wait"]
    if extra < LEAST_SHARE * slow.step_seconds:
        return None
    usual = {b: statistics.median(o.seconds.get(b, 0.0) for o in others) for b in slow.seconds if b != "peer_wait"}
    bucket = max(usual, key=lambda name: slow.seconds[name] - usual[name])
    # Where no bucket holds at least half of it, something else slows this process: nothing is better than a guess.
    is_seen = slow.seconds[bucket] - usual[bucket] >= extra / 2
    return Straggler(
        rank=slow.rank,
        host=slow.host,
        extra_seconds=extra,
        bucket=bucket if is_seen else None,
        times=slow.seconds[bucket] / usual[bucket] if is_seen and usual[bucket] > 0 else None,
    )


def mean_pace(every: list[Pace]) -> Pace:
    """What a step takes the processes on average."""

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    pure = [one.pure_seconds for one in every if one.pure_seconds is not None]
    buckets = [bucket for bucket in every[0].seconds if all(bucket in one.seconds for one in every)]
    return dataclasses.replace(
        every[0],
        seconds={bucket: mean([one.seconds[bucket] for one in every]) for bucket in buckets},
        now_and_then={b: mean([one.now_and_then[b] for one in every]) for b in every[0].now_and_then},
        read_seconds=mean([one.read_seconds for one in every]),
        decode_seconds=mean([one.decode_seconds for one in every]),
        pure_seconds=mean(pure) if pure else None,
    )


def job_of(evidence: Evidence, pace: Pace) -> Job:
    """How the run takes its steps, with the link that explains its exchanges."""
    config, world = evidence.config, evidence.world
    hosts = [rows[-1].host for rows in evidence.rows.values()]
    local_world = max(hosts.count(host) for host in hosts) if all(hosts) and len(hosts) == world else world
    is_cpu = not pace.device.startswith("cuda")
    asked = config.model.compute_threads if config is not None else 0
    allotted = (evidence.profile.get("cores") or {}).get("allotted")
    # Where nobody says how many cores there are, none is taken to be free.
    cores = allotted or ((asked or 1) if is_cpu else pace.threads + 1) * local_world
    compute_threads = asked or max(1, cores // local_world)
    threads = pace.threads or max(1, cores // local_world - 1)
    atoms = (config.train.atoms if config is not None else 0) or world
    is_overlapped = world > 1 and not is_cpu and not (config is not None and config.model.exact)
    exposed = pace.seconds.get("comm", 0.0)
    # An exchange that is seen at all has lasted longer than the backward pass beside it.
    hidden = predict.BACKWARD_SHARE * pace.seconds.get("compute", 0.0) / -(-atoms // world) if is_overlapped else 0.0
    link = None
    if world > 1 and exposed > 0:
        rate = sent_share(world) * max(pace.sent_bytes, 1) / (exposed + hidden)
        link = Link(latency_seconds=0.0, bytes_per_second=rate)
    return Job(
        batch=max(1, round(pace.batch)),
        atoms=atoms,
        world=world,
        local_world=local_world,
        threads=threads,
        compute_threads=compute_threads,
        cores=cores,
        link=link,
        sent_bytes=max(pace.sent_bytes, 1) if world > 1 else None,
        is_overlapped=is_overlapped,
    )


def costs_of(pace: Pace, job: Job, *, compress: str) -> Costs:
    """The costs with which a step of this job takes as long as it did; waiting for a slow process is no part of it."""
    samples = job.batch / job.atoms * -(-job.atoms // job.world)
    part = {bucket: pace.seconds.get(bucket, 0.0) for bucket in ("compute", "transfer", "optimizer")}
    plain = Costs(
        device="cuda" if pace.device.startswith("cuda") else "cpu",
        atom_seconds=0.0,
        sample_seconds=part["compute"] / samples,
        compute_threads=job.compute_threads,
        optimizer_seconds=part["optimizer"],
        transfer_sample_seconds=part["transfer"] / samples,
        decode_sample_seconds=pace.decode_seconds / samples,
        read_sample_seconds=pace.read_seconds / samples,
        host_seconds=0.0,
        gradient_bytes=max(pace.sent_bytes, 1) * (2 if compress in NARROW else 1),
    )
    measured = pace.step_seconds - pace.seconds.get("peer_wait", 0.0)
    fed = crowded(plain, job, pace, samples) if plain.device == "cpu" else fed_apart(plain, job, pace)
    left = measured - predict.step(fed, job).seconds
    if left >= 0:
        return dataclasses.replace(fed, host_seconds=left)
    # The parts explain more than the whole: they overlap in ways that the model does not know.
    return shrunk(fed, job, measured)


def shrunk(costs: Costs, job: Job, measured: float) -> Costs:
    """The same costs, the network's and the input's made smaller until a step takes no longer than it did."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if predict.step(scaled(costs, middle), job).seconds <= measured else (low, middle)
    found = scaled(costs, low)
    return dataclasses.replace(found, host_seconds=max(0.0, measured - predict.step(found, job).seconds))


def scaled(costs: Costs, factor: float) -> Costs:
    """The network's and the input's costs multiplied."""
    names = ("sample_seconds", "decode_sample_seconds", "read_sample_seconds")
    return dataclasses.replace(costs, **{name: getattr(costs, name) * factor for name in names})


def fed_apart(costs: Costs, job: Job, pace: Pace) -> Costs:
    """Costs of input that is made beside a GPU: as slow as the wait for it says, or fast enough to hide."""
    wait, busy = pace.seconds.get("data_wait", 0.0), (pace.read_seconds + pace.decode_seconds) / predict.hands(job)
    beside = sum(pace.seconds.get(bucket, 0.0) for bucket in ("transfer", "compute", "optimizer", "comm"))
    if costs.device == "cpu":
        decoding = min(1.0, pace.decode_seconds / predict.hands(job) / pace.step_seconds)
        costs = dataclasses.replace(costs, sample_seconds=costs.sample_seconds / (1 + BESIDE * decoding))
    if wait < LEAST_SHARE * pace.step_seconds:
        return with_input(costs, min(1.0, beside / busy)) if busy else costs
    return with_input(costs, (beside + wait) / busy) if busy else unexplained(costs, job, beside + wait)


def unexplained(costs: Costs, job: Job, seconds: float) -> Costs:
    """A wait for samples of which the loader does not say what it was for counts as decoding."""
    samples = job.batch / job.atoms * -(-job.atoms // job.world)
    return dataclasses.replace(costs, decode_sample_seconds=seconds * predict.hands(job) / samples)


def with_input(costs: Costs, factor: float) -> Costs:
    """The same with reading and decoding multiplied."""
    return dataclasses.replace(
        costs,
        decode_sample_seconds=costs.decode_sample_seconds * factor,
        read_sample_seconds=costs.read_sample_seconds * factor,
    )


def crowded(costs: Costs, job: Job, pace: Pace, samples: float) -> Costs:
    """Costs on a CPU whose cores the network and the decode threads share.

    The loader's clock runs on while a thread waits for a core, and so does the network's. Decoding is taken to have
    been slower by as many threads as there were for a core, for as long as the network computed.
    """
    step, wait, compute = pace.step_seconds, pace.seconds.get("data_wait", 0.0), pace.seconds.get("compute", 0.0)
    spent = pace.read_seconds + pace.decode_seconds
    pressure = (job.compute_threads + job.threads) / max(1.0, job.cores / job.local_world)
    if spent == 0 or pressure <= 1:
        return fed_apart(costs, job, pace)
    idle = wait + pace.seconds.get("comm", 0.0) + pace.seconds.get("peer_wait", 0.0)
    computing = 1 - min(1.0, idle / step)
    decode_seconds = pace.decode_seconds * (1 - computing + computing / pressure)
    decoding = pace.decode_seconds / spent
    if wait < LEAST_SHARE * step:
        # What decoding has taken from the network is in the network's time.
        alone = compute - min(CROWDING * decode_seconds / predict.hands(job) ** CROWDING_SCALING, compute / 2)
    else:
        # Decode threads never rest, and the network has had its share of the cores.
        alone = compute / (1 + (pressure - 1) * decoding)
    shared = dataclasses.replace(
        costs, sample_seconds=alone / samples, decode_sample_seconds=decode_seconds / samples, crowding=0.0
    )
    target = sum(pace.seconds.get(name, 0.0) for name in ("data_wait", "transfer", "compute", "optimizer", "comm"))
    most = crowding_of(shared, job, target)
    # Where the threads alone explain the wait, only those that decode crowd the network: the others wait for a disk.
    is_explained = predict.step(shared, job).seconds >= 0.97 * target
    return dataclasses.replace(shared, crowding=min(most, CROWDING * decoding) if is_explained else most)


def crowding_of(costs: Costs, job: Job, target: float) -> float:
    """The crowding with which a step takes that long; 0 where it takes longer without any."""
    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        is_short = predict.step(dataclasses.replace(costs, crowding=middle), job).seconds <= target
        low, high = (middle, high) if is_short else (low, middle)
    return low
