"""The command line: parses, calls api, prints the value; catches Problem; nothing else."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import tyro

from stoker import api, benches, dist, machine_shown, plans, reports, settings, shown, usage, verdict_shown
from stoker.config import Config
from stoker.doctor import flows, network
from stoker.errors import Problem
from stoker.shown import answer
from stoker.work import DONE, STOPPED

RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True, kw_only=True)
class TrainFlags:
    """Train a run, or go on with it: the same command again is resume.

    Settings come from defaults < RECIPE < --config < flags. Recipes: demo, finetune, cifar10-rn20,
    imagenet-rn50, imagenet-rn50-16, imagenet-rn18-16, imagenet-mobilenetv2, places365-rn18.
    """

    config: Path | None = None
    """a TOML file of settings, or a run's config.json"""
    name: Path | None = None
    """name or folder of the run; without it, one that follows from the settings"""
    resume: str | None = None
    """begin a new run with the state of this checkpoint folder"""
    extend: Path | None = None
    """begin a new run with the settings and the state of this run, and what other flags change of them"""
    auto_resume: bool = True
    """go on with a run of the same name and settings where there is one"""
    lr_find: bool = False
    """train nothing: try rising learning rates for some steps, draw their losses as lr-find.png, and suggest a rate"""
    json: bool = False
    """print the run's record as JSON"""
    settings: tyro.conf.OmitArgPrefixes[Config] = field(default_factory=Config)


def train(words: list[str]) -> int:
    """Train a run, or go on with it"""
    recipe = words.pop(0) if words and not words[0].startswith("-") else None
    file = tyro.cli(
        Annotated[ConfigFlag, tyro.conf.arg(name="")], args=words, return_unknown_args=True, add_help=False
    )[0]
    if file.extend is not None and file.config is not None:
        raise Problem("--extend and --config both bring settings", fix="leave one of them out")
    base = api.extended(file.extend) if file.extend is not None else api.configured(recipe, file=file.config)
    flags = tyro.cli(TrainFlags, args=words, default=TrainFlags(settings=base), prog="stoker train [RECIPE]")
    config = settings.with_values(base, settings.differences(base, flags.settings))
    if flags.lr_find:
        return lr_find(flags, config)
    trained = api.train(
        recipe, config=config, name=flags.name, resume=flags.resume, extend=flags.extend,
        auto_resume=flags.auto_resume,
    )  # fmt: skip
    return answer(trained, json=flags.json, show=shown.trained, code=exit_code(trained.record.status))


def lr_find(flags: TrainFlags, config: Config) -> int:
    """Try rising learning rates in the place of training"""
    for name, value in (("resume", flags.resume), ("extend", flags.extend)):
        if value is not None:
            raise Problem(
                f"--lr-find tries rates on a run that begins, and --{name} {value} goes on with one",
                fix=f"leave --{name} out; --weights {value} begins with the weights of another run",
            )
    found = api.lr_find(config=config)
    return answer(found, json=flags.json, show=shown.range_test, code=STOPPED if found.is_interrupted else DONE)


@dataclass(frozen=True, kw_only=True)
class ConfigFlag:
    """The flags that others are laid over."""

    config: Path | None = None
    extend: Path | None = None


def work(run: RunFolder, /, *, json: bool = False) -> int:
    """Bring an existing run to its end; this is what launchers start

    Args:
        run: the run's folder
        json: print the run's record as JSON
    """
    trained = api.work(run)
    return answer(trained, json=json, show=shown.trained, code=exit_code(trained.record.status))


def exit_code(status: str) -> int:
    """0 for done, 75 for stopped cleanly, 1 for anything else."""
    return {"done": DONE, "stopped": STOPPED}.get(status, 1)


def inspect(
    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")],
    /,
    *,
    most: int = 10_000,
    sheet: Path = Path("contact-sheet.png"),
    json: bool = False,
) -> int:
    """Say what a source holds, and which of its files can't be read

    Args:
        data: a pack, a folder of class folders, tar, .rec, TFRecord, MNIST, CIFAR-10 or CSV files, or
            dials[:COUNT[xSIZE]]
        most: samples that are decoded at most, evenly spread
        sheet: where the contact sheet goes, a PNG with some samples of each class
        json: print the answer as JSON
    """
    return answer(api.inspect(data, most=most, sheet=sheet), json=json, show=shown.inspection)


@dataclass(frozen=True, kw_only=True)
class PackFlags:
    """How a source becomes a pack."""

    short_side: int = 256
    """pixels of the short side of pictures that are larger"""
    quality: int = 90
    """JPEG quality of pictures that are made smaller"""
    keep: bool = False
    """leave the bytes of all pictures as they are"""
    holdout: float = 0.1
    """share of the samples kept for evaluation where the source has no split of its own; 0 keeps none"""
    seed: int = 0
    """the number that the order and the held-out share come from"""
    shard_samples: int = 1024
    """samples in a tar"""
    allow_bad: float = 0.01
    """share of unreadable samples that is tolerated"""
    workers: int = 0
    """processes that encode; 0 takes the cores allotted"""
    cache: str = "data"
    """folder in which the built-in dataset is made"""


def pack(
    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")],
    dest: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DEST")],
    /,
    *,
    packing: tyro.conf.OmitArgPrefixes[PackFlags] = PackFlags(),  # noqa: B008
    json: bool = False,
) -> int:
    """Store any source as tar shards with an index; the same command again goes on

    Args:
        source: any data that train takes, Parquet, a CSV of addresses, an http(s) address of a tar, or - for a tar on
            standard input
        dest: the folder of the pack
        packing: how it is made
        json: print the answer as JSON
    """
    return answer(api.pack(source, dest, **vars(packing)), json=json, show=shown.packed)


def doctor(
    *,
    disk: Path | None = None,
    data: str | None = None,
    peer: str | None = None,
    serve: bool = False,
    port: int = flows.PORT,
    again: bool = False,
    json: bool = False,
) -> int:
    """Measure this machine, say what is wrong with it, and how to fix it

    Args:
        disk: the folder whose disk is measured; without it that of the data, or the current folder
        data: the data whose files are listed and whose pictures are decoded; without it some are drawn
        peer: measure the network to this HOST or HOST:PORT, where stoker doctor --serve runs
        serve: let other hosts measure the network to this one, until Ctrl-C
        port: where --serve listens
        again: measure anew what was measured in the last week
        json: print the answer as JSON
    """
    if serve:
        network.serve(port=port, show=True)
        return 0
    profile = api.doctor(disk, data=data, peer=peer, again=again)
    # A launcher would take an error for a crash, and bury the answer under it.
    is_ill = any(finding.level == "bad" for finding in profile.findings) and dist.world().size == 1
    return answer(profile, json=json, show=machine_shown.profile, code=1 if is_ill else 0)


def why(run: RunFolder, /, *, json: bool = False) -> int:
    """Say where a run's time went, and what limits it

    Args:
        run: the run's folder or name
        json: print the answer as JSON
    """
    return answer(api.why(run), json=json, show=verdict_shown.verdict)


LOST = "what was not saved yet is lost"
COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "work": work,
    "pack": pack,
    "inspect": inspect,
    "doctor": doctor,
    "why": why,
    "plan": plans.plan,
    "report": reports.report,
    "compare": reports.compare,
    "watch": reports.watch,
    "eval": usage.eval_,
    "predict": usage.predict,
    "export": usage.export,
    "bench": benches.bench,
}


def main(words: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if words is None else words)
    name = words.pop(0) if words else "--help"
    if name in ("-h", "--help"):
        shown.overview(COMMANDS)
        return 0
    if name == "--version":
        print(f"stoker {version('stoker')}")
        return 0
    try:
        if name not in COMMANDS:
            raise shown.unknown_command(name, COMMANDS)
        if name in ("train", "plan"):
            # Their settings come from a recipe or a file before flags are laid over them.
            return COMMANDS[name](words)
        return tyro.cli(COMMANDS[name], args=words, prog=f"stoker {name}")
    except Problem as problem:
        shown.problem(problem)
        return STOPPED if problem.goes_on else 2
    except KeyboardInterrupt:
        what = "whole shards are kept: the same command again goes on after them" if name == "pack" else LOST
        print(f"left at once; {what}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the answer has read enough; nothing more may be written, not even at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
