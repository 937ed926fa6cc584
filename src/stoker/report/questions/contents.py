"""What went into a run and what came out: its training set, its checkpoints. Answers with their evidence. Pure."""

from collections.abc import Sequence
from typing import Any

from stoker import units
from stoker.config import Config
from stoker.report.account import Account, Saved
from stoker.report.questions.question import Question, unknown

DATA = "What is the training set?"
CHECKPOINT = "What does a checkpoint consist of?"
# Paths of unreadable samples that are shown.
MOST_NAMED = 5
PARTS = {
    "model.safetensors": "the network's weights, and what its batch norms have counted",
    "ema.safetensors": "the average of the weights, which is evaluated and exported",
    "state.json": "where the run is: epoch, position, best scores, ledger so far",
    "manifest.json": "size and SHA-256 of every other file, to tell a whole checkpoint from a torn one",
}
MEMORY = {
    "adamw": "AdamW's two numbers a weight: means of its gradients and of their squares",
    "lamb": "LAMB's two numbers a weight: means of its gradients and of their squares",
    "sgd": "the momentum of SGD, a number a weight",
    "lars": "the momentum of LARS, a number a weight",
}


def data(account: Account) -> Question:
    """The size of the training set, its classes, and what is held out of it."""
    record = account.evidence.record
    found = record.data if record is not None else {}
    samples = number(found, "train_samples")
    if samples is None:
        return unknown(
            "data", DATA, "the run has not come to opening its data (record.json does not name it)",
            fix="stoker inspect DATA tells of it without a run.", evidence=source_lines(account),
        )  # fmt: skip
    size, classes, held = (number(found, name) for name in ("train_bytes", "classes", "held_out_samples"))
    bytes_said = f" ({megabytes(size)})" if size is not None else ""
    classes_said = f" of {units.count_text(classes, 'class')}" if classes is not None else ""
    held_said = f"; {held:,} more are held out to score it ({split_text(found)})" if held is not None else ""
    answer = f"{units.count_text(samples, 'sample')}{classes_said}{bytes_said}{held_said}. {bad_text(account)}"
    lines = list(source_lines(account))
    if size is not None and samples > 0:
        lines.append(f"a sample is {units.bytes_text(size / samples)} on average, as it is stored")
    if classes:
        lines.append(f"{samples / classes:,.0f} samples a class on average")
    if empty := number(found, "empty_files"):
        lines.append(f"{units.count_text(empty, 'empty file')} in it, which are no samples")
    if found.get("fingerprint"):
        lines.append(f"fingerprint {found['fingerprint']}")
    return Question(key="data", asked=DATA, answer=answer, evidence=(*lines, *bad_lines(account)))


def number(found: dict[str, Any], name: str) -> int | None:
    """A count of the record; None where it is not there."""
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def megabytes(size: int) -> str:
    """A size in the unit that people ask for; what is too small for it in the next one."""
    return f"{size / 1e6:,.1f} MB" if size >= 0.05e6 else f"{size / 1e3:.1f} kB"


def split_text(found: dict[str, Any]) -> str:
    """Where the held-out samples come from."""
    name = str(found.get("held_out") or "")
    if not name:
        return "how they were split is not written down"
    return f"{name} of the samples" if name.startswith("a seeded") else f"its own split: {name}"


def source_lines(account: Account) -> tuple[str, ...]:
    """Where the data comes from, and how it was packed."""
    config: Config | None = account.evidence.config
    lines = [f"data: {config.data.data}"] if config is not None else []
    if account.evidence.packed is not None:
        lines.append("it is a pack")
    return tuple(lines)


def unreadable(account: Account) -> list[str]:
    """What was said of samples that could not be read."""
    return [event.what for event in account.events if event.kind == "unreadable"]


def bad_text(account: Account) -> str:
    """How many samples could not be read, in a sentence."""
    bad = len(unreadable(account))
    least = "At least " if is_partial(account) else ""
    return f"{least}{units.count_text(bad, 'sample')} could not be read." if bad else all_text(account)


def all_text(account: Account) -> str:
    """That no sample was bad, as far as is known."""
    known = f"the last {len(account.events):,} of {account.event_count:,} events"
    return f"None that {known} tell of was unreadable." if is_partial(account) else "All that were tried could be read."


def is_partial(account: Account) -> bool:
    """Whether there are events that were not read."""
    return account.event_count > len(account.events)


def bad_lines(account: Account) -> tuple[str, ...]:
    """The first samples that could not be read."""
    bad = unreadable(account)
    more = [f"... and {len(bad) - MOST_NAMED:,} more (events.jsonl)"] if len(bad) > MOST_NAMED else []
    return (*(f"unreadable: {what}" for what in bad[:MOST_NAMED]), *more)


def checkpoint(account: Account) -> Question:
    """The parts of a checkpoint, their size, and how many are kept."""
    whole = [saved for saved in account.checkpoints if saved.parts and saved.torn is None]
    if not whole:
        torn = torn_lines(account.checkpoints)
        missing = "all of its checkpoints are torn" if torn else "there is no checkpoint in its folder"
        return unknown("checkpoint", CHECKPOINT, missing, fix="The run saves one after every epoch.", evidence=torn)
    last, config = whole[-1], account.evidence.config
    parts = sorted(last.parts.items(), key=lambda part: -part[1])
    total = sum(size for saved in account.checkpoints for size in saved.parts.values())
    kept = units.count_text(len(account.checkpoints), "checkpoint")
    answer = (
        f"{megabytes(sum(last.parts.values()))} in {units.count_text(len(parts), 'file')}: "
        f"{', '.join(f'{name} {megabytes(size)}' for name, size in parts)}. "
        f"{kept} {'is' if len(account.checkpoints) == 1 else 'are'} kept, {megabytes(total)} together."
    )
    optimizer = config.optim.optimizer if config is not None else ""
    lines = [f"{name}: {megabytes(size)}: {part_text(name, optimizer)}" for name, size in parts]
    if "manifest.json" not in last.parts:
        lines.append(f"manifest.json: {PARTS['manifest.json']}")
    lines += [f"step {saved.step:,}: {', '.join(saved.names) or 'among the newest'}" for saved in account.checkpoints]
    if config is not None:
        lines.append(f"the newest {config.save.keep_last} are kept, the best, and those with a name")
    return Question(
        key="checkpoint", asked=CHECKPOINT, answer=answer, evidence=(*lines, *torn_lines(account.checkpoints))
    )


def part_text(name: str, optimizer: str) -> str:
    """What a file of a checkpoint is."""
    if name == "optimizer.safetensors":
        return MEMORY.get(optimizer, "what the optimiser remembers of earlier steps")
    return PARTS.get(name, "not known to this Stoker")


def torn_lines(checkpoints: Sequence[Saved]) -> tuple[str, ...]:
    """Checkpoints that are not whole."""
    return tuple(f"step {saved.step:,} is torn: {saved.torn}" for saved in checkpoints if saved.torn is not None)
