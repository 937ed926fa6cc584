"""A verdict as people read it in a terminal."""

from rich.console import Console
from rich.markup import escape

from stoker import units
from stoker.machine.verdict import MEANING, Verdict
from stoker.shown import console, plain_table


def verdict(value: Verdict) -> None:
    """Where the time went, what limits the run, and what to do about it."""
    out = console()
    out.print(f"run      {value.state}; the ledger goes to step {value.step}", markup=False)
    table = plain_table("where the time went", "what it means", "time", "share", right=2)
    for share in value.shares:
        table.add_row(share.bucket, share.meaning, units.seconds_text(share.seconds), units.percent_text(share.share))
    table.add_row("together", "", units.seconds_text(value.wall_seconds), "", style="bold")
    out.print(table)
    for bucket in value.not_measured:
        out.print(f"not measured: {bucket} ({MEANING.get(bucket, 'of another Stoker')})")
    used(value, out)
    out.print(f"[bold]{value.sentence}[/]")
    if value.step_seconds is not None and value.step_gain is not None:
        step = units.seconds_text(value.step_seconds)
        out.print(f"step     takes {step}; without {value.limit} it would be {value.step_gain:.2f} times as fast")
    if value.straggler is not None:
        out.print(f"slow     {straggler_text(value)}", markup=False)
    if value.amp is not None:
        out.print(f"amp      {value.amp}", markup=False)
    remedies(value, out)
    if value.elsewhere is not None:
        out.print(f"plan     what other machines would take: {value.elsewhere}", markup=False, soft_wrap=True)
    for what in value.missing:
        out.print(f"missing  {what}", markup=False)


def used(value: Verdict, out: Console) -> None:
    """How much of the machine was used, each figure with what it means."""
    busy, mean = value.busy_percent, value.definitions
    out.print(f"useful   {units.percent_text(value.useful_share)} {mean['useful_share']}", markup=False)
    if busy is not None:
        spread = f"(least {busy.least:.0f}, most {busy.most:.0f})"
        out.print(f"busy     {busy.mean:.1f} % {spread} {mean['busy_percent']}", markup=False)
    if value.mfu is not None:
        out.print(f"MFU      {units.percent_text(value.mfu)} {mean['mfu']}", markup=False)


def straggler_text(value: Verdict) -> str:
    """Which process the others wait for, and what it does in that time."""
    slow = value.straggler
    assert slow is not None
    where = f" on {slow.host}" if slow.host else ""
    told = f"process {slow.rank}{where}: the others wait {units.seconds_text(slow.extra_seconds)} for it in every step"
    if slow.bucket is None:
        return f"{told}; its ledger does not show why"
    much = f", {slow.times:.2f} times as long as theirs" if slow.times is not None else ""
    return f"{told}; its {slow.bucket} takes longer{much}"


def remedies(value: Verdict, out: Console) -> None:
    """What to do, the greatest gain first. A command has a line of its own, whole, to be copied."""
    if value.limit is not None and not value.remedies:
        out.print("nothing that Stoker knows of would gain 3 % here")
    for number, remedy in enumerate(value.remedies, start=1):
        notes = ["changes what is learned"] * remedy.is_lossy + ["is a new run"] * remedy.needs_new_run
        noted = f" ({', '.join(notes)})" if notes else ""
        said = f"{remedy.gain:.2f} times as fast ({remedy.low:.2f} - {remedy.high:.2f}): {remedy.what}"
        out.print(f"[bold]{number}. {escape(said)}[/]{noted}")
        out.print(f"   because {remedy.why}", markup=False)
        out.print(f"   {remedy.command}", markup=False, soft_wrap=True)
