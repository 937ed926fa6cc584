"""The command line: parses, calls api, prints the value; catches Problem; nothing else."""

import json as jsons
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from stoker import api, dist, shown
from stoker.config import Config
from stoker.errors import Problem
from stoker.work import DONE, STOPPED

RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True, kw_only=True)
class TrainFlags:
    """Train a run, or go on with it: the same command again is resume.

    Settings come from defaults < RECIPE < --config < flags. Recipes: demo.
    """

    config: Path | None = None
    """a TOML file of settings, or a run's config.json"""
    name: Path | None = None
    """name or folder of the run; without it, one that follows from the settings"""
    resume: str | None = None
    """begin a new run with the state of this checkpoint folder"""
    auto_resume: bool = True
    """go on with a run of the same name and settings where there is one"""
    json: bool = False
    """print the run's record as JSON"""
    settings: tyro.conf.OmitArgPrefixes[Config] = field(default_factory=Config)


def train(words: list[str]) -> int:
    """Train a run, or go on with it"""
    recipe = words.pop(0) if words and not words[0].startswith("-") else None
    file = tyro.cli(
        Annotated[ConfigFlag, tyro.conf.arg(name="")], args=words, return_unknown_args=True, add_help=False
    )[0]
    base = api.configured(recipe, file=file.config)
    flags = tyro.cli(TrainFlags, args=words, default=TrainFlags(settings=base), prog="stoker train [RECIPE]")
    trained = api.train(
        recipe, config=flags.settings, name=flags.name, resume=flags.resume, auto_resume=flags.auto_resume
    )
    return answer(trained, json=flags.json, show=shown.trained, code=exit_code(trained.record.status))


@dataclass(frozen=True, kw_only=True)
class ConfigFlag:
    """The one flag that others are laid over."""

    config: Path | None = None


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


def doctor(*, disk: Path = Path(), json: bool = False) -> int:
    """Say what this machine is, what is wrong with it, and how to fix it

    Args:
        disk: the folder whose disk is looked at
        json: print the answer as JSON
    """
    profile = api.doctor(disk)
    is_ill = any(finding.level == "bad" for finding in profile.findings)
    return answer(profile, json=json, show=shown.profile, code=1 if is_ill else 0)


def why(run: RunFolder, /, *, json: bool = False) -> int:
    """Say where a run's time went, and what limits it

    Args:
        run: the run's folder or name
        json: print the answer as JSON
    """
    return answer(api.why(run), json=json, show=shown.verdict)


def eval_(run: RunFolder, /, *, data: str | None = None, checkpoint: str = "best", json: bool = False) -> int:
    """Score a run's network on held-out samples

    Args:
        run: the run's folder or name
        data: other data of the same classes
        checkpoint: best, latest, epoch_N, a step, or a checkpoint folder
        json: print the answer as JSON
    """
    return answer(api.eval(run, data=data, checkpoint=checkpoint), json=json, show=shown.scores)


def predict(
    run: RunFolder,
    inputs: Annotated[tyro.conf.Positional[list[Path]], tyro.conf.arg(metavar="INPUTS")],
    /,
    *,
    checkpoint: str = "best",
    json: bool = False,
) -> int:
    """Say what a run's network sees in pictures

    Args:
        run: the run's folder or name
        inputs: picture files
        checkpoint: best, latest, epoch_N, a step, or a checkpoint folder
        json: print the answer as JSON
    """
    return answer(api.predict(run, inputs, checkpoint=checkpoint), json=json, show=shown.answers)


def bench(
    what: Annotated[tyro.conf.Positional[Literal["loader"]], tyro.conf.arg(metavar="WHAT")],
    /,
    *,
    data: str = "dials:2000x256",
    resolution: int = 224,
    workers: int = 0,
    rounds: int = 5,
    repeat: int = 0,
    peers: str = "",
    json: bool = False,
) -> int:
    """Measure speed against what one would use instead, side by side

    Args:
        what: loader
        data: a source that holds JPEGs: a folder of class folders, or dials[:COUNT[xSIZE]], ...
        resolution: pixels a side
        workers: threads or processes of each loader, and cores they run on; 0 takes the cores allotted
        rounds: measurements of each, taken in turn
        repeat: passes over the files in a round; 0 takes as many as make a round of some seconds
        peers: which to compare with, as in pillow,dali; all without it
        json: print the answer as JSON
    """
    measured = {"loader": api.bench_loader}[what](
        data, resolution=resolution, workers=workers, rounds=rounds, repeat=repeat, peers=peers
    )
    return answer(measured, json=json, show=shown.loader_bench)


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


LOST = "what was not saved yet is lost"
COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "work": work,
    "pack": pack,
    "inspect": inspect,
    "doctor": doctor,
    "why": why,
    "eval": eval_,
    "predict": predict,
    "bench": bench,
}


def main(words: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if words is None else words)
    name = words.pop(0) if words else "--help"
    if name in ("-h", "--help"):
        shown.overview(COMMANDS)
        return 0
    try:
        if name not in COMMANDS:
            raise shown.unknown_command(name, COMMANDS)
        if name == "train":
            return train(words)
        return tyro.cli(COMMANDS[name], args=words, prog=f"stoker {name}")
    except Problem as problem:
        shown.problem(problem)
        return 2
    except KeyboardInterrupt:
        what = "whole shards are kept: the same command again goes on after them" if name == "pack" else LOST
        print(f"left at once; {what}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the answer has read enough; nothing more may be written, not even at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
