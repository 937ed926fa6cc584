"""Answers as people read them in a terminal. Takes values, prints them; knows nothing of how they came about."""

import difflib
import json as jsons
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from stoker import api, dist, units
from stoker.api import Inspection, Trained
from stoker.errors import Problem

MARKS = {"good": "[green]ok[/]  ", "warn": "[yellow]warn[/]", "bad": "[red]bad[/] "}
LONGEST_LIST = 20


def console() -> Console:
    """Where answers go."""
    out = Console(highlight=False)
    # Only a terminal has an edge to wrap at; a file or a pipe gets whole lines.
    return out if out.is_terminal else Console(highlight=False, soft_wrap=True)


def answer(value: Any, *, json: bool, show: Callable[[Any], None], code: int = 0) -> int:
    """Print a value, for people or for programs. Of many processes, only the first does."""
    if not dist.world().is_first:
        return code
    if json:
        plain = [api.as_json(item) for item in value] if isinstance(value, list) else api.as_json(value)
        print(jsons.dumps(plain, indent=1, default=str))
    else:
        show(value)
    return code


def plain_table(*columns: str, right: int = 0) -> Table:
    """A table without lines, whose last `right` columns are numbers."""
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for column in table.columns[len(columns) - right :] if right else []:
        column.justify = "right"
    return table


def overview(commands: Mapping[str, Callable[..., int]]) -> None:
    """What `stoker --help` says."""
    out = console()
    out.print("[bold]stoker[/] trains networks at the speed the hardware allows, and says what they wait for.\n")
    table = plain_table("command", "what it does")
    for name, function in commands.items():
        table.add_row(name, (function.__doc__ or "").split("\n")[0])
    out.print(table)
    out.print("\nstoker COMMAND --help says more. To begin: stoker train demo")


def unknown_command(name: str, commands: Mapping[str, object]) -> Problem:
    """What to say about a command that does not exist."""
    near = difflib.get_close_matches(name, commands, n=1)
    hint = f"did you mean stoker {near[0]}?" if near else f"commands are {', '.join(commands)}"
    return Problem(f"there is no command {name}", fix=hint)


def problem(found: Problem) -> None:
    """What happened and what to do next, on stderr."""
    out = Console(stderr=True, highlight=False)
    out.soft_wrap = not out.is_terminal
    out.print("[red]problem:[/] ", end="")
    out.print(found.what, markup=False)
    out.print("[bold]fix:[/] ", end="")
    out.print(found.fix, markup=False)


def trained(value: Trained) -> None:
    """How a run ended, and what to look at next."""
    out, record = console(), value.record
    best = record.result.get("best")
    if best:
        scores = f"top-1 {best['top1']:.2f} %, top-5 {best['top5']:.2f} %, loss {best['loss']:.4f}"
        out.print(f"best     {scores} (after {units.count_text(best['epoch'], 'epoch')})")
    speed = record.result.get("samples_per_second")
    if speed:
        memory = units.bytes_text(record.result["peak_memory_bytes"])
        out.print(f"speed    {speed:.0f} samples/s, evaluation included; {memory} of memory at most")
    again = f": {record.why}; the same command again goes on" if record.status != "done" else ""
    if record.status == "diverged":
        again = f": {record.why}; begin anew with another --name and a lower rate"
    already = ", and was so before: there was nothing to do" if value.was_done else ""
    out.print(f"status   {record.status}{again}{already}")
    if value.plan is not None:
        took, bounds = units.seconds_text(value.plan.actual_seconds), (value.plan.low_seconds, value.plan.high_seconds)
        low, high = (units.seconds_text(each) for each in bounds)
        planned = f"{units.seconds_text(value.plan.planned_seconds)} ({low} to {high}) after the setup"
        out.print(f"planned  {planned}, took {took}: {value.plan.error:+.1%}")
    out.print(f"verdict  {value.verdict.sentence}")
    if value.report is not None:
        out.print(f"report   {value.report}", markup=False)
    out.print(f"run      {value.folder}   (where the time went: stoker why {value.folder})")


def range_test(value: Any) -> None:
    """The rates that a range test suggests, beside those of the settings and of the rule."""
    out = console()
    by = "linear" if value.optimizer in ("sgd", "lars") else "square root"
    steps = units.count_text(len(value.rates), "step")
    out.print(f"tried    {steps} of {value.batch:,} samples with {value.optimizer} (--lr is for 256: {by} rule)")
    out.print(f"end      {value.ended}")
    table = plain_table("", "peak rate", "as --lr", "of setting", "meaning", right=4)
    table.columns[-1].justify = "left"
    for name, rate, meaning in (
        ("steepest", value.steepest, "where the loss falls fastest"),
        ("valley", value.valley, "the middle of its longest fall"),
        ("setting", value.setting, "of these settings"),
        ("rule", value.rule, "what people train with"),
    ):
        if rate is not None:
            table.add_row(name, f"{rate:.3g}", f"{rate / value.scale:.3g}", f"{rate / value.setting:.2f} x", meaning)
    out.print(table)
    if value.caution:
        out.print(f"[yellow]caution[/]  {value.caution}")
    if value.steepest and value.valley:
        low, high = sorted((value.steepest, value.valley))
        lrs, peaks = f"{low / value.scale:.2g} to {high / value.scale:.2g}", f"{low:.2g} to {high:.2g}"
        out.print(f"to try   --lr from {lrs}, or for this batch alone --peak-lr from {peaks}")
    out.print(f"picture  {value.picture}; nothing was trained or saved", markup=False)


def inspection(value: Inspection) -> None:
    """What a source holds."""
    out, look = console(), value.look
    out.print(
        f"{value.data}: {value.train_samples:,} training samples, {value.held_out_samples:,} held out "
        f"({value.held_out}), {len(value.classes)} classes, {units.bytes_text(value.total_bytes)}"
    )
    out.print(f"decoded  {look.looked_at:,}: {listed(look.formats)}; colours {listed(look.modes)}")
    for name, sizes in (("width", look.widths), ("height", look.heights)):
        out.print(f"{name:<8} {sizes[0]} - {sizes[1]} - {sizes[2]} pixels (least - middle - largest)")
    histogram(value.classes, out)
    if value.ignored_files:
        out.print(f"ignored  {value.ignored_files} files whose names are no picture's")
    bad = {**dict.fromkeys(value.empty, "the file is empty or not there"), **look.bad}
    out.print(f"bad      {len(bad)} files can't be read" if bad else "bad      none")
    for path, reason in list(bad.items())[:LONGEST_LIST]:
        out.print(f"         {path}: {reason}", markup=False)
    if len(bad) > LONGEST_LIST:
        out.print(f"         ... and {len(bad) - LONGEST_LIST} more; all of them with --json")
    if value.sheet:
        out.print(f"sheet    {value.sheet}", markup=False)


def packed(value: Any) -> None:
    """What a pack holds, what it saved, and what to do with it."""
    out, record = console(), value.record
    for name, split in record.splits.items():
        held = f"{split.samples:,} samples in {units.count_text(len(split.shards), 'shard')}"
        sizes = f"{units.bytes_text(split.source_bytes)} before, {units.bytes_text(split.bytes)} now"
        out.print(f"{name:<8} {held}, {sizes}", markup=False)
    out.print(f"classes  {len(record.classes):,}")
    where = f", listed with their reasons in {value.folder / 'bad.csv'}" if record.bad else ""
    out.print(f"bad      {units.count_text(record.bad, 'sample')}{where}", markup=False)
    already = ", finished before: there was nothing to do" if value.was_done else ""
    out.print(f"pack     {value.folder}{already}", markup=False)
    if value.note:
        out.print(f"note     {value.note}", markup=False)
    use = "stoker train" if "train" in record.splits else "stoker eval RUN"
    out.print(f"next     {use} --data {value.folder}", markup=False)


def histogram(classes: Mapping[str, int], out: Console) -> None:
    """Samples a class, as bars; the middle of a long list is left out."""
    most = max(classes.values())
    width = min(32, max(len(name) for name in classes))
    rows = list(classes.items())
    for name, count in rows[:LONGEST_LIST]:
        out.print(f"  {name[:width]:<{width}} {count:>8,} {'#' * max(1, round(30 * count / most))}", markup=False)
    if len(rows) > LONGEST_LIST:
        out.print(f"  ... and {len(rows) - LONGEST_LIST} more classes")


def listed(counts: Mapping[str, int]) -> str:
    """Names with their counts, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count:,}" for name, count in ordered) or "none"


def scores(value: Any) -> None:
    """Scores on held-out samples."""
    out = console()
    text = "  ".join(f"{name} {number:.4f}" for name, number in value.scores.items())
    out.print(f"{text}  ({value.samples:,} samples, {value.unreadable} unreadable)")
    out.print(f"data       {value.data}, classes {value.matched}", markup=False)
    out.print(f"model      {value.model} at {value.resolution} pixels", markup=False)
    out.print(f"checkpoint {value.checkpoint}{averaged(value.average)}", markup=False)


def averaged(is_average: bool) -> str:
    """What weights these are, where a checkpoint has two kinds."""
    return " (the average of the weights that training kept)" if is_average else ""


def export(value: Any) -> None:
    """What was written, and what to do with it."""
    out = console()
    out.print(f"from     {value.source}{averaged(value.is_average)}", markup=False)
    for name, size in value.files.items():
        out.print(f"wrote    {value.folder / name}  {units.bytes_text(size)}", markup=False)
    if value.onnx_difference is not None:
        out.print(f"onnx     logits differ from PyTorch's by {value.onnx_difference:.1e} at most")
    out.print(f"next     stoker predict {value.folder} PICTURE ...", markup=False)


def answers(values: list[Any]) -> None:
    """A line a picture: the likeliest classes, or why it can't be read."""
    out = console()
    for value in values:
        pairs = zip(value.classes, value.probabilities, strict=True)
        told = ", ".join(f"{name} {chance:.1%}" for name, chance in pairs)
        out.print(
            f"{value.input}: " + (f"can't be read: {value.unreadable}" if value.unreadable else told), markup=False
        )
