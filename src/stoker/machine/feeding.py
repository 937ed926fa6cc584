"""Remedies for samples that come too late: more threads, smaller pictures, faster disks. Pure."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path

from stoker import units
from stoker.machine import predict
from stoker.machine.calibration import LEAST_SHARE, Model
from stoker.machine.evidence import Evidence
from stoker.machine.remedy import LEAST_GAIN, Remedy, command, predicted, seconds_with

# Pictures packed at quality 90 take about this many bytes a pixel (docs/benchmarks.md: photos at short side 256).
PACKED_BYTES_A_PIXEL = 0.42
# What decoding to a picture of so many pixels costs beside each byte of its file, in bytes: 658 photos of 110 kB a
# second against 1,524 of 37 kB, both to 224 pixels (docs/benchmarks.md).
RESIZE_BYTES_A_PIXEL = 0.37
# A network sees so much of a picture's short side in evaluation, and a pack that keeps more is larger than needed.
SHORT_SIDE_SHARE = 7 / 8
# Decode threads that are busy for less of the time than this are not too few.
BUSY_SHARE = 0.6


def remedies(evidence: Evidence, model: Model) -> Iterator[Remedy]:
    """For samples that come too late."""
    costs, job = model.costs, model.job
    now = predict.step(costs, job)
    if now.exposed_input_seconds < (LEAST_GAIN - 1) * now.seconds:
        return
    yield from more_threads(evidence, model)
    yield from smaller_pictures(evidence, model)
    if costs.read_sample_seconds > costs.decode_sample_seconds and evidence.config is not None:
        data = evidence.config.data.data
        fast = f"FAST_DISK/{Path(data).name}"
        copy = shlex.join(["cp", "-r", data, fast]) + " && "
        yield predicted(
            model,
            seconds_with(model, costs={"read_sample_seconds": 0.0}),
            is_input=True,
            what="copy the data to a disk that answers at once: local NVMe, or memory",
            why=f"threads read for {units.seconds_text(costs.read_sample_seconds)} a sample, and decode for "
            f"{units.seconds_text(costs.decode_sample_seconds)}",
            command=copy + command(evidence, {"data": fast}, is_new=False),
            slow=seconds_with(model, costs={"read_sample_seconds": costs.read_sample_seconds / 5}),
        )


def more_threads(evidence: Evidence, model: Model) -> Iterator[Remedy]:
    """Decode threads on cores that have room for them."""
    job, busy = model.job, (model.pace.read_seconds + model.pace.decode_seconds) / model.pace.step_seconds
    if busy < BUSY_SHARE * job.threads:
        if model.pace.seconds.get("data_wait", 0.0) < LEAST_SHARE * model.pace.step_seconds:
            return
        # Threads rest although samples are waited for: they come in bursts.
        now = predict.step(model.costs, job).seconds
        free = seconds_with(model, costs={"decode_sample_seconds": 0.0, "read_sample_seconds": 0.0})
        ahead = 4 * (evidence.config.loader.ahead if evidence.config is not None else 4)
        yield predicted(
            model,
            (free + now) / 2,
            is_input=True,
            what=f"make {ahead} batches ahead",
            why=f"decode threads are busy only {units.percent_text(busy / job.threads)} of the time",
            command=command(evidence, {"ahead": ahead}, is_new=False),
            fast=free,
            slow=now,
        )
        return
    own = job.cores // job.local_world
    most = own if model.costs.device == "cpu" else own - 1
    # A disk that is slow for some threads is as slow for more, as far as the ledger can tell.
    read = model.costs.read_sample_seconds / job.threads
    tried = {
        threads: seconds_with(model, costs={"read_sample_seconds": read * threads}, job={"threads": threads})
        for threads in range(job.threads + 1, most + 1)
    }
    if not tried:
        return
    # The fewest that are almost as good as any: more only take memory.
    threads = min(count for count, seconds in tried.items() if seconds <= 1.02 * min(tried.values()))
    yield predicted(
        model,
        tried[threads],
        is_input=True,
        what=f"{threads} decode threads",
        why=f"{units.count_text(job.threads, 'thread')} on {units.count_text(own, 'core')} "
        "can't make samples as fast as they are used",
        command=command(evidence, {"threads": threads}, is_new=False),
        unsure=predict.UNSURE["threads"],
    )


def smaller_pictures(evidence: Evidence, model: Model) -> Iterator[Remedy]:
    """A pack of pictures no larger than the network needs."""
    config, data = evidence.config, evidence.record.data if evidence.record is not None else {}
    if config is None or not data.get("train_samples") or not data.get("train_bytes"):
        return
    largest = max(stage.resolution for stage in config.stages) if config.image.resolution else 224
    short_side = 32 * math.ceil(largest / SHORT_SIDE_SHARE / 32)
    stored = data["train_bytes"] / data["train_samples"]
    packed = short_side**2 * 4 / 3 * PACKED_BYTES_A_PIXEL
    is_small = evidence.packed is not None and evidence.packed.get("short_side", math.inf) <= short_side
    if is_small or stored < 1.5 * packed:
        return

    def seconds(packed_bytes: float) -> float:
        resize = RESIZE_BYTES_A_PIXEL * largest**2
        decode = (packed_bytes + resize) / (stored + resize)
        # What a disk takes for a sample is in part a matter of bytes, and in part of asking for them.
        return seconds_with(
            model,
            costs={
                "decode_sample_seconds": model.costs.decode_sample_seconds * decode,
                "read_sample_seconds": model.costs.read_sample_seconds * (1 + packed_bytes / stored) / 2,
            },
        )

    source = config.data.data
    # What follows a colon describes the built-in dataset.
    pack = f"{source.partition(':')[0].rstrip('/')}-{short_side}"
    first = shlex.join(["stoker", "pack", source, pack, "--short-side", str(short_side)])
    yield predicted(
        model,
        seconds(packed),
        is_input=True,
        what=f"pack the pictures at a short side of {short_side} pixels",
        why=f"a file has {units.bytes_text(stored)}; {units.bytes_text(packed)} are enough for {largest} pixels",
        command=f"{first} && " + command(evidence, {"data": pack}, is_new=True),
        fast=seconds(packed / 1.6),
        slow=seconds(packed * 1.6),
        is_lossy=True,
        needs_new_run=True,
    )
