"""The command `stoker plan`: its flags, and its answer as people read it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from stoker import api, settings, shown, units
from stoker.config import Config
from stoker.errors import Problem
from stoker.machine.forecast import Forecast
from stoker.machine.predict import Interval
from stoker.plan.history import History
from stoker.plan.outlook import Plan
from stoker.plan.prospect import Ask

RATES = {"kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8}
NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
HOURS = {"m": 1 / 60, "min": 1 / 60, "h": 1.0, "hours": 1.0, "d": 24.0, "days": 24.0}


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """Predict what a run will take: time, dollars, memory and what limits it; from a probe of the recipe here.

    Settings come from defaults < RECIPE < --config < flags, as for train.
    """

    config: Path | None = None
    """a TOML file of settings, or a run's config.json"""
    machines: str = "this"
    """machines to compare, with commas: this, and names of the catalogue such as p4d.24xlarge"""
    gpus: int = 0
    """GPUs (or processes) of each machine; 0 takes all that a machine of the catalogue has, and those started here"""
    nodes: int = 1
    """machines that train together"""
    link: str = ""
    """link between processes, such as 100mbit or 10gbit; without it, what was measured or what the catalogue says"""
    target: str = ""
    """a limit to stay within, such as 8h or 20usd"""
    catalogue: Path | None = None
    """a CSV of machines or GPUs; its rows are laid over those that ship with Stoker"""
    record: bool = False
    """predict nothing: show the plans of all runs here against what came of them"""
    json: bool = False
    """print the answer as JSON"""
    settings: tyro.conf.OmitArgPrefixes[Config] = field(default_factory=Config)


@dataclass(frozen=True, kw_only=True)
class ConfigFlag:
    """The flag that others are laid over."""

    config: Path | None = None


def plan(words: list[str]) -> int:
    """Predict time, dollars and what limits a run, before it is started"""
    recipe = words.pop(0) if words and not words[0].startswith("-") else None
    file = tyro.cli(
        Annotated[ConfigFlag, tyro.conf.arg(name="")], args=words, return_unknown_args=True, add_help=False
    )[0]
    base = api.configured(recipe, file=file.config)
    flags = tyro.cli(PlanFlags, args=words, default=PlanFlags(settings=base), prog="stoker plan [RECIPE]")
    if flags.record:
        return shown.answer(api.plans(), json=flags.json, show=history)
    config = settings.with_values(base, settings.differences(base, flags.settings))
    seconds, dollars = target(flags.target)
    ask = Ask(
        machines=tuple(name.strip() for name in flags.machines.split(",") if name.strip()),
        gpus=flags.gpus,
        nodes=flags.nodes,
        link_bytes_per_second=rate(flags.link),
        target_seconds=seconds,
        target_dollars=dollars,
        catalogue=flags.catalogue,
    )
    return shown.answer(api.plan(config=config, ask=ask), json=flags.json, show=outlook)


def rate(text: str) -> float | None:
    """Bytes a second of a link by its label."""
    if not text:
        return None
    found = re.fullmatch(NUMBER + r"\s*(kbit|mbit|gbit)(/s|ps)?", text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise Problem(f"--link {text} can't be understood", fix="write it as 100mbit or 10gbit")
    return float(found[1]) * RATES[found[2]]


def target(text: str) -> tuple[float | None, float | None]:
    """Seconds or dollars of a limit."""
    if not text:
        return None, None
    plain = text.strip().lower().replace(" ", "")
    money = re.fullmatch(rf"\${NUMBER}|{NUMBER}(usd|dollars|\$)", plain)
    if money:
        return None, float(money[1] or money[2])
    time = re.fullmatch(NUMBER + r"(m|min|h|hours|d|days)", plain)
    if time is None:
        raise Problem(f"--target {text} can't be understood", fix="write it as 8h, 90min, 20usd or $20")
    return float(time[1]) * HOURS[time[2]] * 3600, None


def outlook(value: Plan) -> None:
    """A plan: each machine with its times, dollars and what they rest on, and which to choose."""
    out = shown.console()
    out.print(
        f"plan     {value.model} on {value.data}: {units.count_text(value.epochs, 'epoch')}, "
        f"{units.count_text(value.steps, 'step')} of {value.batch:,} samples; probed here for "
        f"{units.count_text(value.probe.steps, 'step')} in {units.seconds_text(value.probe.seconds)}"
    )
    for one in value.forecasts:
        machine(one)
    for name, why in value.unknown.items():
        out.print(f"\n[bold]{name}[/]\n  not known: {why}")
    out.print()
    for name, faster in value.probe.tried.items():
        if faster > 1.05:
            out.print(f"faster   with {name} a step here would be {faster:.2f} times as fast (measured)")
    table = shown.plain_table("machine", "time", "on demand", "spot", "target", right=4)
    for one in value.forecasts:
        prices = ("-" if each is None else f"${each.likely:.2f}" for each in (one.on_demand_dollars, one.spot_dollars))
        table.add_row(titled(one), units.seconds_text(one.total.likely), *prices, value.meets.get(one.machine, "-"))
    out.print(table)
    choose = [f"fastest: {value.fastest}"] if value.fastest else []
    choose += [f"cheapest: {value.cheapest}"] if value.cheapest else []
    out.print(f"[bold]{'; '.join(choose)}[/]")


def titled(one: Forecast) -> str:
    """A machine by name and number."""
    name = one.machine if one.machines == 1 else f"{one.machines} x {one.machine}"
    return f"{name}, {units.count_text(one.processes, 'process')}"


def machine(one: Forecast) -> None:
    """What a run takes on a machine, by its parts, and what that rests on."""
    out, parts = shown.console(), one.parts
    fits = {True: ", which fits", False: ", which does not fit", None: ""}[one.fits]
    slow = f", {one.slowdown:.1f} times slower than without it" if one.limit != "compute" else ""
    named = {
        "compute": parts.compute_seconds,
        "optimizer": parts.optimizer_seconds,
        "copies": parts.transfer_seconds,
        "network": parts.comm_seconds,
        "decoding and reading": parts.input_seconds,
        "between them": parts.host_seconds,
    }
    listed = ", ".join(f"{name} {units.seconds_text(each)}" for name, each in named.items() if each > 0)
    lines = {
        "time": f"{span(one.total)}; an epoch {span(one.epoch)}; a step {span(one.step)}",
        "limit": f"{one.limit}{slow}",
        "parts": f"of a step, each alone: {listed}",
    }
    if one.memory_bytes is not None:
        lines["memory"] = f"{units.bytes_text(one.memory_bytes)} a process{fits}"
    if one.on_demand_dollars is not None or one.spot_dollars is not None:
        lines["dollars"] = f"{dollars(one.on_demand_dollars)} on demand, {dollars(one.spot_dollars)} spot"
    out.print(f"\n[bold]{titled(one)}[/]")
    for name, text in lines.items():
        out.print(f"  {name:<8} {text}", markup=False)
    for note in one.notes:
        out.print(f"  note     {note}", markup=False)


def span(value: Interval) -> str:
    """A time with its bounds."""
    low, likely, high = (units.seconds_text(each) for each in (value.low, value.likely, value.high))
    return f"{likely} ({low} to {high})"


def dollars(value: Interval | None) -> str:
    """An amount with its bounds."""
    return "not known" if value is None else f"${value.likely:.2f} (${value.low:.2f} to ${value.high:.2f})"


def history(value: History) -> None:
    """Plans against what came of them."""
    out = shown.console()
    if not value.runs:
        out.print("no run here is done and had a plan; runs of fewer than 100 steps have none")
        return
    table = shown.plain_table("run", "limited by", "planned", "bounds", "took", "error", "held", right=5)
    for one in value.runs:
        planned, low, high, took = (
            units.seconds_text(each)
            for each in (one.planned_seconds, one.low_seconds, one.high_seconds, one.actual_seconds)
        )
        held = "yes" if one.held else "no"
        table.add_row(one.run, one.limit, planned, f"{low} - {high}", took, f"{one.error:+.1%}", held)
    out.print(table)
    assert value.median_error is not None and value.worst_error is not None and value.held_share is not None
    out.print(
        f"median error {value.median_error:.1%}, worst {value.worst_error:.1%}; "
        f"{value.held_share:.0%} of {len(value.runs)} within their bounds"
    )
