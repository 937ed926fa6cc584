"""The command that measures speed: parses, calls api and prints the value."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from stoker import api, units
from stoker.errors import Problem
from stoker.shown import answer, console, plain_table

What = Literal["loader", "step", "ledger", "resume"]
WIDE = 200


def bench(
    what: Annotated[tyro.conf.Positional[What], tyro.conf.arg(metavar="WHAT")],
    /,
    *,
    rounds: int = 5,
    data: str | None = None,
    resolution: int | None = None,
    workers: int | None = None,
    repeat: int | None = None,
    peers: str | None = None,
    model: str | None = None,
    batch: int | None = None,
    steps: int | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    amp: Literal["off", "bf16", "fp16"] | None = None,
    json: bool = False,
) -> int:
    """Measure speed against what one would use instead, side by side

    Args:
        what: loader (samples made ready), step (the loop), ledger (its accounting) or resume (saving, going on)
        rounds: measurements of each, taken in turn
        data: loader: a source that holds JPEGs: a folder of class folders, or dials[:COUNT[xSIZE]] (dials:2000x256)
        resolution: pixels a side (loader and step: 224; resume: 224 on a GPU, 64 without)
        workers: loader: threads or processes of each loader, and cores they run on; 0 takes the cores allotted
        repeat: loader: passes over the files in a round; 0 takes as many as make a round of some seconds
        peers: loader: which to compare with, as in pillow,dali; all without it
        model: step, ledger, resume: any name that train takes (resnet18; resume: resnet50)
        batch: step, ledger, resume: samples a step (64 on a GPU, 8 without)
        steps: step: steps of each in a round; 0 takes as many as make a round of some seconds
        device: step, ledger, resume: where to train; auto takes a GPU where one works
        amp: step, ledger, resume: mixed precision (off)
        json: print the answer as JSON
    """
    measure, show = KINDS[what]
    flags = {
        "data": data, "resolution": resolution, "workers": workers, "repeat": repeat, "peers": peers, "model": model,
        "batch": batch, "steps": steps, "device": device, "amp": amp,
    }  # fmt: skip
    given = {name: value for name, value in flags.items() if value is not None}
    own = [name for name in ("rounds", *flags) if name in inspect.signature(measure).parameters]
    for name in given.keys() - own:
        listed = ", ".join(f"--{flag}" for flag in own)
        raise Problem(f"bench {what} has no use for --{name}", fix=f"leave it out; it takes {listed}")
    return answer(measure(rounds=rounds, **given), json=json, show=show)


def loader_bench(value: Any) -> None:
    """Ratios with their spread."""
    out = console()
    out.print(
        f"{value.files:,} files of {value.data}, {value.samples:,} samples a round to {value.resolution} pixels, "
        f"{value.workers} workers and cores; Stoker's pixels differ by {value.difference:.2f} of 255 from Pillow's"
    )
    table = plain_table("against", "stoker/s", "peer/s", "ratio", "least - most", "n", "differs", "note", right=7)
    table.columns[-1].justify = "left"
    for row in value.rivals:
        cells = ["-"] * 6
        if row.ratio is not None:
            rates = f"{row.ours_per_second:.0f}", f"{row.peer_per_second:.0f}", f"{row.ratio:.2f}"
            spread = f"{row.ratio_least:.2f} - {row.ratio_most:.2f}"
            cells = [*rates, spread, str(row.rounds), f"{row.difference:.2f}"]
        table.add_row(row.name, *cells, row.note)
    print_table(table, out)
    best = next((row for row in value.rivals if row.peer == value.fastest), None)
    if best is not None:
        out.print(f"Stoker makes {best.ratio:.2f} x as many as the fastest peer of equal quality: {best.name}")


def step_bench(value: Any) -> None:
    """What Stoker's loop costs, as a whole and part by part."""
    out = console()
    out.print(
        f"{value.model} on {value.device}, {value.batch} x {value.resolution} pixels in memory, amp {value.amp}; "
        f"{units.count_text(value.steps, 'step')} a round, in turn"
    )
    table = plain_table("a step", "middle", "least - most", "n", right=3)
    for name, found in (("with Stoker", value.ours_seconds), ("a loop by hand", value.peer_seconds)):
        table.add_row(name, *seconds_cells(found))
    ratio = value.ratio
    table.add_row("ratio", f"{ratio.middle:.4f}", f"{ratio.least:.4f} - {ratio.most:.4f}", str(ratio.count))
    more = value.overhead_seconds
    table.add_row("more a step", *(f"{text} us" for text in (f"{more.middle * 1e6:.0f}", micro_range(more))), "")
    print_table(table, out)
    shares = ", ".join(f"{name} {share:.3%}" for name, share in value.shares.items())
    out.print(f"of Stoker's time, by its ledger: {shares}")
    table = plain_table("beside the network, each on its own", "a call", "least - most", "calls", "a step", right=4)
    for part in value.parts:
        call = part.seconds
        cells = f"{call.middle * 1e6:.1f} us", f"{micro_range(call)} us", f"{part.calls:g}"
        table.add_row(part.name, *cells, f"{part.step_seconds * 1e6:.1f} us")
    whole = sum(part.step_seconds for part in value.parts)
    table.add_row("together", "", "", "", f"{whole * 1e6:.1f} us", style="bold")
    print_table(table, out)
    out.print(
        f"Stoker's loop takes {ratio.middle - 1:+.2%} of a step by hand "
        f"({ratio.least - 1:+.2%} to {ratio.most - 1:+.2%}, n = {ratio.count}); "
        f"its parts add up to {whole / value.peer_seconds.middle:.2%} of one"
    )


def ledger_bench(value: Any) -> None:
    """What the ledger and the gauges cost."""
    out, ratio = console(), value.ratio
    out.print(
        f"{value.model} on {value.device}, {value.batch} x {value.resolution} pixels in memory, amp {value.amp}; "
        f"{units.count_text(value.steps, 'step')} a round, in turn"
    )
    table = plain_table("a step", "middle", "least - most", "n", right=3)
    table.add_row("with ledger and gauges", *seconds_cells(value.with_seconds))
    table.add_row("without", *seconds_cells(value.without_seconds))
    print_table(table, out)
    ends = f"{ratio.least - 1:+.2%} to {ratio.most - 1:+.2%}, n = {ratio.count}"
    out.print(f"ledger and gauges cost {ratio.middle - 1:+.2%} of a step ({ends})")


def resume_bench(value: Any) -> None:
    """What saving, stopping and going on cost."""
    out = console()
    size = units.bytes_text(value.state_bytes)
    out.print(
        f"{value.model} on {value.device}, {size} a checkpoint; steps of {value.batch} x {value.resolution} pixels, "
        f"amp {value.amp}"
    )
    table = plain_table("what", "middle", "least - most", "n", "against", "peer", "ratio", "least - most", right=7)
    table.columns[4].justify = "left"
    for row in value.rows:
        cells = ["", "", "", ""]
        if row.peer is not None:
            spread = f"{row.ratio.least:.2f} - {row.ratio.most:.2f}"
            cells = [row.against, units.seconds_text(row.peer.middle), f"{row.ratio.middle:.2f}", spread]
        table.add_row(row.what, *seconds_cells(row.seconds), *cells)
    print_table(table, out)
    out.print(f"a checkpoint is written with {value.write_bytes_per_second / 1e6:.0f} MB/s")
    out.print(
        f"with one every minute, saving takes {value.blocked_share:.2%} of a run's time, and writing beside training "
        f"slows it by another {value.slowed_share:.2%}"
    )


def print_table(table: Table, out: Console) -> None:
    """A table as wide as the terminal, and as wide as it needs to be in a file or a pipe."""
    if not out.is_terminal:
        out.width = WIDE
    out.print(table)


def seconds_cells(found: Any) -> tuple[str, str, str]:
    """Middle, spread and number of some times."""
    ends = f"{units.seconds_text(found.least)} - {units.seconds_text(found.most)}"
    return units.seconds_text(found.middle), ends, str(found.count)


def micro_range(found: Any) -> str:
    """The spread of times in microseconds."""
    return f"{found.least * 1e6:.1f} - {found.most * 1e6:.1f}"


KINDS: dict[str, tuple[Callable[..., Any], Callable[[Any], None]]] = {
    "loader": (api.bench_loader, loader_bench),
    "step": (api.bench_step, step_bench),
    "ledger": (api.bench_ledger, ledger_bench),
    "resume": (api.bench_resume, resume_bench),
}
