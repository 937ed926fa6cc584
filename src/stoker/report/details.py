"""Account -> the details of a report: settings, starts, checkpoints, events, software, what is missing. Pure."""

from collections.abc import Iterator
from typing import Any

from stoker import settings, units
from stoker.report.account import Account, Saved
from stoker.report.blocks import Block, Folded, Group, Points, Quote, Table, Words
from stoker.report.summary import moment, state

MOST_EVENTS = 100
# Local changes of the code that are longer are in code.json.
MOST_DIFF = 20_000
# Of hundreds of packages, those that decide about speed and results.
FIRST_PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "safetensors", "stoker")


def shown(account: Account) -> tuple[Block, ...]:
    """All details, what is missing first."""
    return tuple(
        block
        for part in (missing, changed, starts, checkpoints, software, events)
        for block in part(account)
    )  # fmt: skip


def missing(account: Account) -> Iterator[Block]:
    """What could not be read or measured, and what to do about it."""
    lacking = tuple(dict.fromkeys((*account.missing, *account.verdict.missing)))
    if lacking:
        text = "Not measured, or not to be read."
        yield Group(title="What is missing", text=text, blocks=(Points(items=lacking),))


def value_text(value: Any) -> str:
    """The value of a setting as people type it."""
    if isinstance(value, tuple | list):
        return " ".join(map(value_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value not in ("", None) else "none"


def changed(account: Account) -> Iterator[Block]:
    """The settings that are not at their defaults, and behind them all."""
    config = account.evidence.config
    if config is None:
        return
    listed = list(settings.listed(config))
    columns = ("setting", "value", "default", "changes the result")
    rows = [
        (f"{s.part}.{s.name}", value_text(s.value), value_text(s.default), "yes" if s.is_identity else "no")
        for s in listed
    ]
    other = tuple(row for row, setting in zip(rows, listed) if setting.value != setting.default)
    yield Group(
        title="Settings other than the defaults",
        text=f"{len(other)} of {len(listed)}, those that were left to Stoker among them.",
        blocks=(
            Table(columns=columns, rows=other, code=(0, 1, 2)),
            Folded(title="All settings", blocks=(Table(columns=columns, rows=tuple(rows), code=(0, 1, 2)),)),
        ),
    )


def starts(account: Account) -> Iterator[Block]:
    """Each start of the run."""
    record = account.evidence.record
    attempts = record.attempts if record is not None else ()
    rows = []
    for number, attempt in enumerate(attempts, start=1):
        is_last = number == len(attempts)
        ended = moment(attempt.ended_at) if attempt.ended_at is not None else "no end was written"
        took = units.seconds_text(attempt.ended_at - attempt.started_at) if attempt.ended_at is not None else ""
        became: str = attempt.status
        if attempt.status == "running":
            became = "running" if is_last and state(account) == "running" else "killed"
        ended = "" if became == "running" else ended
        rows.append(
            (f"{number}", moment(attempt.started_at), ended, took, attempt.host, f"{attempt.world}", str(became))
        )
    if rows:
        columns = ("start", "began", "ended", "took", "host", "processes", "became")
        yield Group(
            title="Starts", text="", blocks=(Table(columns=columns, rows=tuple(rows), right=(0, 3, 5)),)
        )  # fmt: skip


def part_text(saved: Saved) -> str:
    """What a checkpoint consists of."""
    parts = [f"{name} {units.bytes_text(size)}" for name, size in saved.parts.items()]
    return ", ".join(parts) + (f"; {saved.torn}" if saved.torn else "")


def checkpoints(account: Account) -> Iterator[Block]:
    """The checkpoints that are there, the newest first."""
    if not account.checkpoints:
        return
    rows = tuple(
        (
            f"{saved.step:,}",
            ", ".join(saved.names),
            units.bytes_text(sum(saved.parts.values())) if saved.parts else "not known",
            f"{units.seconds_text(max(account.at - saved.at, 0.0))} ago",
            part_text(saved),
        )
        for saved in reversed(account.checkpoints)
    )
    columns = ("step", "called", "size", "written", "parts")
    yield Group(title="Checkpoints", text="", blocks=(Table(columns=columns, rows=rows, right=(0, 2)),))


def software(account: Account) -> Iterator[Block]:
    """Versions, commit and local changes of the last start, and the machine's."""
    code, profile = account.code, account.evidence.profile
    packages = code.get("packages") if isinstance(code.get("packages"), dict) else {}
    named = (("processor", "cpu"), ("platform", "platform"), ("container", "image"), ("Python", "python"),
             ("PyTorch", "torch"), ("CUDA of PyTorch", "torch_cuda"), ("cuDNN", "cudnn"), ("driver", "driver"),
             ("CUDA of the driver", "driver_cuda"))  # fmt: skip
    rows = [(name, str(profile[key])) for name, key in named if profile.get(key)]
    rows += [(name, str(code[key])) for name, key in (("Stoker", "version"), ("commit", "commit")) if code.get(key)]
    assert isinstance(packages, dict)
    rows += [(name, str(packages[name])) for name in FIRST_PACKAGES[1:-1] if packages.get(name)]
    diff = code.get("diff")
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(columns=("what", "version"), rows=tuple(rows), code=(1,)))
    if packages:
        every = tuple(
            (str(name), str(version)) for name, version in sorted(packages.items(), key=lambda p: p[0].lower())
        )
        blocks.append(
            Folded(title="All packages", blocks=(Table(columns=("package", "version"), rows=every, code=(0, 1)),))
        )
    if isinstance(diff, str) and diff:
        cut = diff[:MOST_DIFF] + ("\n... the rest is in code.json" if len(diff) > MOST_DIFF else "")
        blocks.append(Folded(title="Local changes of the code", blocks=(Quote(text=cut),)))
    if blocks:
        yield Group(title="Software", text="", blocks=tuple(blocks))


def events(account: Account) -> Iterator[Block]:
    """What happened on the way, the last first."""
    if not account.events:
        yield Group(title="Events", text="", blocks=(Words(text="None was written down."),))
        return
    last = account.events[: -MOST_EVENTS - 1 : -1]
    table = Table(
        columns=("when", "kind", "what"),
        rows=tuple((moment(event.at), event.kind, event.what) for event in last),
        note=f"the last {len(last)} of {account.event_count:,}" if account.event_count > len(last) else "",
    )
    count = units.count_text(len(last), "event")
    yield Group(title="Events", text="", blocks=(Folded(title=f"{count}, the last first", blocks=(table,)),))
