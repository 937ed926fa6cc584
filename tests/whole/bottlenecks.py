"""Each bottleneck made for real, and its first remedy applied. By hand: python -m tests.whole.bottlenecks FOLDER [NAME]

Prints what `why` says of each, what it promises for its first remedy, and what that then gains.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stoker import api, records
from stoker.data import dials
from stoker.machine.verdict import Verdict
from stoker.records import LedgerRow
from stoker.runs import Run
from tests.whole import hosts

TINY = ["--model", "timm/test_resnet", "--resolution", "32", "--flip", "0", "--no-plan", "--log-steps", "4"]
MOBILE = ["--model", "timm/mobilenetv2_100", "--resolution", "32", "--flip", "0", "--no-plan", "--log-steps", "4"]
ONE_CORE = ["--compute-threads", "1", "--threads", "1"]
# What is started in the place of stoker in the process that is slowed.
SLOWED = """
import sys, time
from stoker import cli, dist
from stoker.tasks.classify import Classify
loss = Classify.loss
if dist.world().rank == 1:
    Classify.loss = lambda self, model, inputs: time.sleep(0.2) or loss(self, model, inputs)
sys.exit(cli.main(sys.argv[1:]))
"""


def alone(words: list[str]) -> None:
    """Run stoker in a process of its own."""
    subprocess.run([sys.executable, "-m", "stoker", *words], check=True, capture_output=True)


def together(words: list[str], *, mbit: float, program: list[str] | None = None) -> None:
    """Run stoker on two hosts over a link."""
    with hosts.joined(2) as joined:
        joined.rate(mbit)
        ended = joined.torchrun([*(program or ["-m", "stoker"]), *words], timeout=900)
        assert all(one.returncode == 0 for one in ended), ended


def rate(run: Path) -> float:
    """Samples a second of a run under way, checkpoints included. PowerSGD leaves the first 10 steps alone."""
    rows = [row for row in records.read_lines(Run(run).ledger, LedgerRow) if row.steps][3:]
    seconds = sum(value or 0.0 for row in rows for value in row.seconds.values())
    return sum(row.samples for row in rows) / seconds


def as_told(verdict: Verdict, before: Path) -> Path:
    """Do what the first remedy says, word for word; returns the run it makes."""
    command = verdict.remedies[0].command.replace("FAST_DISK", str(before.parent / "fast"))
    (before.parent / "fast").mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, shell=True, check=True, capture_output=True, env={**os.environ, "PATH": path})
    words = command.replace("'", "").split()
    return Path(words[len(words) - 1 - words[::-1].index("--name") + 1])


def decode(root: Path) -> tuple[Path, Callable[[Verdict, Path], Path]]:
    """One decode thread on large photos."""
    run = root / "decode"
    alone(["train", "--name", str(run), "--data", str(root / "large"), *TINY, "--resolution", "16", "--batch", "32",
           *ONE_CORE, "--epochs", "12", "--eval-epochs", "99"])  # fmt: skip
    return run, as_told


def checkpoints(root: Path) -> tuple[Path, Callable[[Verdict, Path], Path]]:
    """A checkpoint after every second step."""
    run = root / "checkpoints"
    alone(["train", "--name", str(run), "--data", str(root / "packed"), "--model", "timm/resnet18", "--resolution",
           "32", "--no-plan", "--log-steps", "4", "--batch", "4", "--epochs", "1", "--checkpoint-steps", "1",
           "--eval-epochs", "9"])  # fmt: skip
    return run, as_told


def network(root: Path, mbit: float) -> tuple[Path, Callable[[Verdict, Path], Path]]:
    """Two hosts and a slow link between them."""
    run, words = root / f"network-{mbit:g}", ["--data", str(root / "packed"), *MOBILE, "--batch", "16", *ONE_CORE]

    def faster(verdict: Verdict, before: Path) -> Path:
        after = before.with_name(f"{before.name}-first")
        first = verdict.remedies[0]
        if "link" in first.what:
            together(["train", "--name", str(after), *words, "--epochs", "4", "--eval-epochs", "9"], mbit=10 * mbit)
        else:
            flags = first.command.split("config.json")[1].split()[2:]
            together(["train", "--name", str(after), *words, "--epochs", "4", "--eval-epochs", "9", *flags], mbit=mbit)
        return after

    together(["train", "--name", str(run), *words, "--epochs", "3", "--eval-epochs", "9"], mbit=mbit)
    return run, faster


def straggler(root: Path) -> tuple[Path, Callable[[Verdict, Path], Path]]:
    """One of two hosts slowed by 0.2 s a step."""
    run, words = root / "straggler", ["--data", str(root / "packed"), *MOBILE, "--batch", "16", *ONE_CORE]
    program = root / "slowed.py"
    program.write_text(SLOWED)
    base = ["train", *words, "--epochs", "2", "--eval-epochs", "9", "--name"]
    together([*base, str(run)], mbit=10_000, program=[str(program)])

    def replaced(_: Verdict, before: Path) -> Path:
        after = before.with_name(f"{before.name}-first")
        together([*base, str(after)], mbit=10_000)
        return after

    return run, replaced


def disk(root: Path) -> tuple[Path, Callable[[Verdict, Path], Path]]:
    """Photos on a file system that hands out few megabytes a second: mounted at FOLDER/slow by hand."""
    run = root / "disk"
    alone(["train", "--name", str(run), "--data", str(root / "slow"), *TINY, "--batch", "8", "--epochs", "1",
           "--eval-epochs", "9"])  # fmt: skip
    return run, as_told


def arithmetic(root: Path) -> tuple[Path, Callable[[Verdict, Path], Path]]:
    """A network that is large for its data."""
    run = root / "arithmetic"
    alone(["train", "--name", str(run), "--data", str(root / "packed"), "--model", "timm/resnet18", "--resolution",
           "64", "--batch", "16", "--epochs", "2", "--log-steps", "4", "--eval-epochs", "9"])  # fmt: skip
    return run, as_told


CASES: dict[str, Callable[[Path], tuple[Path, Callable[[Verdict, Path], Path]]]] = {
    "decode": decode,
    "checkpoints": checkpoints,
    "network-100": lambda root: network(root, 100),
    "network-1000": lambda root: network(root, 1000),
    "straggler": straggler,
    "arithmetic": arithmetic,
    "disk": disk,
}


def main() -> None:
    """Make the data and the bottlenecks that were named, or all."""
    root, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(CASES)
    for name, count, size in (("small", 1600, 320), ("large", 320, 1600)):
        for _ in dials.make(root / name, count=count, size=size, seed=0, processes=2):
            pass
    api.pack(root / "large", root / "packed", show=False)
    for name in wanted:
        began = time.monotonic()
        run, remedied = CASES[name](root)
        verdict = api.why(run)
        first = verdict.remedies[0] if verdict.remedies else None
        row = {"case": name, "limit": verdict.limit, "gain": verdict.gain, "sentence": verdict.sentence}
        if first is not None:
            after = remedied(verdict, run)
            row |= {"first": first.what, "command": first.command, "promised": [first.low, first.gain, first.high],
                    "gained": rate(after) / rate(run)}  # fmt: skip
            row["off"] = row["gained"] / first.gain - 1
        row["straggler"] = str(verdict.straggler)
        row["remedies"] = [(one.what, round(one.gain, 2)) for one in verdict.remedies]
        row["took"] = time.monotonic() - began
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
