"""Account -> the first screen of a report: what, where, result, time, cost, state and verdict. Pure."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from stoker import units
from stoker.machine import remedy
from stoker.machine.remedy import Remedy
from stoker.machine.verdict import Verdict
from stoker.records import MetricRow, RunRecord
from stoker.report import remainder, surroundings
from stoker.report.account import Account
from stoker.report.blocks import Block, Card, Command, Facts, Part, Shares, Tone, Words

State = Literal["running", "killed", "done", "stopped", "diverged", "oom", "timeout", "failed", "not known"]
TONES: dict[str, Tone] = {
    "running": "busy", "starting": "busy", "done": "good", "stopped": "plain", "new": "plain", "not known": "plain",
}  # fmt: skip
"""of a state; any other is bad"""
WORDS = {"oom": "out of memory", "timeout": "out of time"}
NAMES = {"top1": "top-1", "top5": "top-5"}
# Parts of a bar below this share are drawn together.
LEAST_SHARE = 0.015


def state(account: Account) -> State:
    """What a run is doing, in one word."""
    record = account.evidence.record
    if record is None:
        return "not known"
    if record.status == "running":
        return "running" if account.evidence.state == "running" else "killed"
    return record.status


def state_text(account: Account) -> str:
    """... as it is shown."""
    return WORDS.get(state(account), state(account))


def tone(account: Account) -> Tone:
    """Whether that is good."""
    return TONES.get(state(account), "bad")


def told(account: Account) -> str:
    """How far a run is, and why it ended."""
    step, steps, record = account.verdict.step, account.steps, account.evidence.record
    parts = []
    if steps:
        share = "" if step >= steps else f" ({units.percent_text(step / steps)})"
        parts.append(f"step {step:,} of {steps:,}{share}")
    elif step:
        parts.append(f"step {step:,}")
    starts = len(record.attempts) if record is not None else 0
    if starts > 1:
        parts.append(units.count_text(starts, "start"))
    if record is not None and record.why and record.status != "done":
        parts.append(record.why)
    return "; ".join(parts)


def next_command(account: Account) -> Command | None:
    """What goes on with a run that is not at its end and that nobody trains."""
    now = state(account)
    if now in ("running", "done", "not known"):
        return None
    if now == "diverged":
        again = remedy.command(account.evidence, {"lr": "LR"}, is_new=True)
        return Command(what="Begin anew with a lower rate", text=again)
    again = remedy.command(account.evidence, {}, is_new=False)
    return Command(what="The same command again goes on from the last checkpoint", text=again)


def cards(account: Account) -> tuple[Card, ...]:
    """Result, time and cost."""
    return result(account), duration(account), price(account)


def best(account: Account) -> dict[str, Any]:
    """The best scores so far, with their epoch; empty where there are none."""
    return best_of(account.evidence.record, account.evaluations)


def best_of(record: RunRecord | None, evaluations: Iterable[MetricRow]) -> dict[str, Any]:
    """The best scores, as the record of a run that has ended has them, or of these evaluations."""
    found = record.result.get("best") if record is not None and record.status != "running" else None
    if isinstance(found, dict):
        return found
    top = max((row for row in evaluations if numbers(row.scores)), key=rank, default=None)
    return {**top.scores, "epoch": top.epoch} if top is not None else {}


def rank(row: MetricRow) -> tuple[float, float]:
    """How good an evaluation is: as training itself compares them."""
    scores = numbers(row.scores)
    return scores.get("top1", float("-inf")), -scores.get("loss", float("inf"))


def numbers(scores: dict[str, Any]) -> dict[str, float]:
    """The scores that are numbers; what was not finite is None in a file."""
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}


def score_texts(scores: dict[str, Any]) -> dict[str, str]:
    """Scores as people read them, by what people call them; those in percent first."""
    known = {name: value for name, value in numbers(scores).items() if name not in ("epoch", "step")}
    ordered = sorted(known, key=lambda name: (name not in NAMES, name))
    return {NAMES.get(n, n): f"{known[n]:.2f} %" if n in NAMES else f"{known[n]:.4g}" for n in ordered}


def result(account: Account) -> Card:
    """The best scores on held-out samples."""
    found = best(account)
    scores = score_texts(found)
    if not scores:
        return Card(title="Result", value="none yet", lines=("no evaluation was written down",), is_known=False)
    main = next((name for name in ("top-1", "loss") if name in scores), next(iter(scores)))
    others = [f"{name} {text}" for name, text in scores.items() if name != main]
    config, epoch = account.evidence.config, found.get("epoch")
    of = f" of {config.train.epochs}" if config is not None else ""
    lines = [", ".join(others)] if others else []
    if isinstance(epoch, int):
        lines.append(f"held out, after epoch {epoch}{of}")
    return Card(title=f"Best {main}", value=scores[main], lines=tuple(lines))


def duration(account: Account) -> Card:
    """How long it took, what is left, and what was lost."""
    cost, record = account.cost, account.evidence.record
    lines = []
    if cost.left_seconds:
        lines.append(f"about {units.seconds_text(cost.left_seconds)} to go at this pace")
    elif unmeasured := unmeasured_text(account):
        lines.append(f"what is left is not known: {unmeasured}")
    starts = len(record.attempts) if record is not None else 0
    if starts > 1 and cost.down_seconds is not None:
        lines.append(f"and {units.seconds_text(cost.down_seconds)} down between {starts} starts")
    if cost.lost_seconds:
        lines.append(f"of it {units.seconds_text(cost.lost_seconds)} lost work")
    rate = record.result.get("samples_per_second") if record is not None else None
    if isinstance(rate, int | float):
        lines.append(f"{rate:,.0f} samples/s, evaluation included" + (", in its last start" if starts > 1 else ""))
    if cost.run_seconds is None:
        return Card(title="Time", value="not known", lines=("no start was written down",), is_known=False)
    return Card(title="Time", value=units.seconds_text(cost.run_seconds), lines=tuple(lines))


def unmeasured_text(account: Account) -> str | None:
    """Why the time left of a run that may go on is not known, where that is for want of measured steps."""
    found = account.evidence
    if found.record is None or found.record.status not in remainder.HOPEFUL or not found.rows:
        return None
    sizes = remainder.unmeasured(remainder.route(found.config, found.record), found.rows[min(found.rows)])
    return f"no step at {' or '.join(map(str, sizes))} pixels was measured yet" if sizes else None


def price(account: Account) -> Card:
    """What it has cost, and what it will."""
    cost = account.cost
    if cost.dollars_per_hour is None:
        how = "give stoker report --dollars-per-hour"
        return Card(title="Cost", value="not known", lines=("no price an hour was given;", how), is_known=False)
    if cost.so_far_dollars is None:
        return Card(title="Cost", value="not known", lines=("its time is not known",), is_known=False)
    lines = []
    if cost.in_all_dollars is not None and cost.left_seconds:
        lines.append(f"{units.dollars_text(cost.in_all_dollars)} when it is done")
    shares = [("for lost work", cost.lost_dollars), ("for packing the data", cost.pack_dollars)]
    lines += [f"of it {units.dollars_text(value)} {what}" for what, value in shares if value]
    lines.append(f"at {units.dollars_text(cost.dollars_per_hour)} an hour")
    return Card(title="Cost", value=units.dollars_text(cost.so_far_dollars), lines=tuple(lines))


def facts(account: Account) -> tuple[Facts, ...]:
    """What was trained, and where."""
    return (
        Facts(title="What", pairs=tuple((name, value) for name, value in what(account) if value)),
        Facts(title="Where", pairs=tuple((name, value) for name, value in where(account) if value)),
    )


def data_name(account: Account) -> str:
    """The data by its last name."""
    config = account.evidence.config
    given = config.data.data if config is not None else ""
    return (given if ":" in given else Path(given).name) or given


def data_texts(account: Account) -> Iterator[str]:
    """What the data was, as far as the record says."""
    record = account.evidence.record
    found = record.data if record is not None else {}
    for key, words in (("train_samples", "training samples"), ("held_out_samples", "held out"), ("classes", "classes")):
        if isinstance(found.get(key), int):
            yield f"{found[key]:,} {words}"
    if isinstance(found.get("train_bytes"), int):
        yield units.bytes_text(found["train_bytes"])


def what(account: Account) -> Iterator[tuple[str, str]]:
    """Model, data and how it is trained."""
    config = account.evidence.config
    if config is None:
        yield "Settings", "can't be read"
        return
    begun = f", from {config.tune.weights}" if config.tune.weights else ", from scratch"
    yield "Model", config.model.model + begun
    yield "Data", config.data.data
    yield "Samples", ", ".join(data_texts(account))
    yield "Epochs", f"{config.train.epochs:,}" + (f" ({config.train.stages})" if config.train.stages else "")
    size = f" of {config.image.resolution} pixels a side" if config.image.resolution else ""
    yield "Batch", f"{config.train.batch} samples{size}"
    precision = {"off": "32 bits", "bf16": "bf16 mixed precision", "fp16": "fp16 mixed precision"}[config.model.amp]
    yield "Learning", f"{config.optim.optimizer}, {config.optim.schedule} schedule, {precision}"


def where(account: Account) -> Iterator[tuple[str, str]]:
    """The machine of the last start."""
    found, profile = account.evidence, account.evidence.profile
    last = found.record.attempts[-1] if found.record is not None and found.record.attempts else None
    gpus, cores, memory = profile.get("gpus"), profile.get("cores"), profile.get("memory")
    rows = found.rows[min(found.rows)] if found.rows else ()
    used = rows[-1].device if rows else ""
    if isinstance(gpus, list) and gpus:
        yield "GPU", surroundings.gpus_text(gpus) + ("" if not used or used.startswith("cuda") else ", not used")
    elif used:
        yield "Device", "CPU" if used == "cpu" else used
    if isinstance(cores, dict) and isinstance(cores.get("allotted"), int):
        total = memory.get("total_bytes") if isinstance(memory, dict) else None
        held = f", {units.bytes_text(total)} of memory" if isinstance(total, int) else ""
        yield "CPU", units.count_text(cores["allotted"], "core") + held
    hosts = sorted({row.host for mine in found.rows.values() for row in mine[-1:] if row.host})
    yield "Host", ", ".join(hosts) or (last.host if last is not None else "")
    world = last.world if last is not None else found.world
    yield "Processes", f"{world}" + (f" on {units.count_text(len(hosts), 'host')}" if hosts and world > 1 else "")
    yield "Software", ", ".join(software(account))
    yield "Started", moment(found.record.attempts[0].started_at) if last is not None and found.record else ""
    yield "Folder", str(account.folder)


def software(account: Account) -> Iterator[str]:
    """The versions that matter most."""
    profile = account.evidence.profile
    for key, name in (("torch", "PyTorch"), ("torch_cuda", "CUDA"), ("cudnn", "cuDNN"), ("driver", "driver")):
        if isinstance(profile.get(key), str):
            yield f"{name} {profile[key]}"
    if isinstance(account.code.get("version"), str):
        yield f"Stoker {account.code['version']}"


def moment(at: float) -> str:
    """A time as people read it, in the zone of whoever writes the report."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "at no time that can be read"


def verdict(account: Account, colours: dict[str, str]) -> tuple[Block, ...]:
    """Where the time went as one bar, and the first thing to do about it."""
    blocks: list[Block] = []
    if found := parts(account.verdict, colours):
        whole = f"{units.seconds_text(account.verdict.wall_seconds)} in all, the start included"
        blocks.append(Shares(of=whole, parts=found))
    if account.verdict.remedies:
        blocks.append(first(account.verdict.remedies[0]))
    elif account.verdict.limit is not None:
        blocks.append(Words(text="Nothing that Stoker knows of would gain 3 % here."))
    return tuple(blocks)


def parts(judged: Verdict, colours: dict[str, str]) -> tuple[Part, ...]:
    """Where the time went as the parts of a bar; the small ones together."""
    found = [
        Part(name=share.bucket, share=share.share, text=units.percent_text(share.share), colour=colours[share.bucket])
        for share in judged.shares
        if share.share >= LEAST_SHARE and share.bucket in colours
    ]
    rest = 1.0 - sum(part.share for part in found)
    if found and rest > 0.0005:
        found.append(Part(name="the rest", share=rest, text=units.percent_text(rest), colour=colours["other"]))
    return tuple(found)


def first(found: Remedy) -> Command:
    """A remedy as something to type."""
    notes = ["changes what is learned"] * found.is_lossy + ["is a new run"] * found.needs_new_run
    noted = f" ({', '.join(notes)})" if notes else ""
    gain = f"{found.gain:.2f} times as fast ({found.low:.2f} to {found.high:.2f})"
    what = found.what[:1].upper() + found.what[1:]
    return Command(what=f"{what}: {gain}, because {found.why}{noted}", text=found.command)
