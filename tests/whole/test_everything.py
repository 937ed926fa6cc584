"""Exact resume with everything on at once: two processes, killed at random points, end with the same bits."""

import dataclasses
import hashlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from stoker import api, checkpoint, records, runs
from stoker.config import Config
from stoker.runs import Run

from . import doomed
from .doomed import Start

# 120 samples: 7 steps of 16 in the first three epochs, 5 of 24 in the others.
STAGES = "24@16 x 3, 32@24 x 3"
EVERYTHING: dict[str, Any] = {
    "mixup": 0.2, "cutmix": 1.0, "erase": 0.3, "translate": 2, "label_smoothing": 0.1, "ema": 0.9, "amp": "bf16",
    "stages": STAGES, "atoms": 4, "clip": 1.0, "nesterov": True, "norm_decay": False, "head_rate": 5.0,
    "layer_decay": 0.9, "freeze_epochs": 1, "test_flip": True, "blurpool": True, "schedule": "onecycle",
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(quick: dict[str, Any], dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Settings of a run with everything on, and a checkpoint every 3 steps."""
    import timm

    weights = tmp_path_factory.mktemp("weights") / "pretrained.safetensors"
    save_file(timm.create_model("test_resnet", num_classes=7).state_dict(), weights)
    base = {name: value for name, value in quick.items() if name not in ("resolution", "batch", "epochs")}
    return api.configured(**base, **EVERYTHING, data=str(dial_folder), weights=str(weights), checkpoint_steps=3)


@pytest.fixture(scope="module")
def whole(asked: Config, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the run comes to on two processes when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.create(folder, asked, resumed_from=None)
    assert started([Start(folder=str(folder), processes=2)]) == [[0, 0]]
    return digests(Run(folder))


def digests(run: Run) -> dict[str, str]:
    """What must be the same, bit for bit: weights, their average, optimiser state, metrics, and what is best."""
    last = checkpoint.find(run, "latest")
    names = (checkpoint.MODEL, checkpoint.EMA, checkpoint.OPTIMIZER)
    files = [*(last / name for name in names), run.metrics, run.pointer("best"), run.pointer("latest")]
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return {**found, "best scores": json.dumps(records.read_record(run.record).result["best"])}


def started(starts: list[Start]) -> list[list[int]]:
    """The exit codes of the processes of each start."""
    asked = Path(starts[0].folder).parent / "starts.json"
    asked.write_text(json.dumps([dataclasses.asdict(one) for one in starts]))
    words = [sys.executable, doomed.__file__, str(asked)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(starts), done.stderr[-3000:]
    return [row["codes"] for row in rows]


def twenty_ends(folder: Path, dice: random.Random) -> list[Start]:
    """Twenty starts that end in the middle of something; progress is made in about half of them."""
    fixed = [
        ("in-snapshot", 1), ("in-step", 9), ("in-checkpoint-file", 2), ("at-new-gear", 2), ("in-evaluation", 1),
        ("before-checkpoint-rename", 1), ("after-update", 4), ("in-line", dice.randint(1, 3)), ("before-pointer", 1),
        ("after-evaluation", 1), ("at-epoch", 3), ("after-restore", 1), ("after-gradients", dice.randint(1, 4)),
        ("in-data", dice.randint(5, 12)), ("after-checkpoint-rename", 1), ("in-pruning", 1), ("in-evaluation", 2),
        ("after-update", dice.randint(1, 4)), ("in-checkpoint-file", dice.randint(2, 5)),
        ("after-update", 3),
    ]  # fmt: skip
    # What only the first process does can only kill the first.
    alone = ("in-snapshot", "in-checkpoint-file", "before-checkpoint-rename", "before-pointer", "in-pruning")
    alone += ("after-checkpoint-rename",)
    return [
        Start(
            folder=str(folder), moment=moment, count=count, threads=dice.choice((1, 2)), processes=2,
            rank=0 if moment in alone else dice.randint(0, 1),
        )
        for moment, count in fixed
    ]  # fmt: skip


@pytest.mark.parametrize(
    "some", [(0, 3, 6, 9, 10, 12, 15, 18), pytest.param(range(20), marks=pytest.mark.long)], ids=len
)
def test_two_processes_with_everything_on_and_killed_again_and_again_end_with_the_same_bits(
    asked: Config, whole: dict[str, str], tmp_path: Path, some: Sequence[int]
) -> None:
    dice = random.Random(int.from_bytes(hashlib.sha256(str(tmp_path).encode()).digest()[:4]))
    folder = tmp_path / "killed"
    runs.create(folder, asked, resumed_from=None)
    starts = [one for number, one in enumerate(twenty_ends(folder, dice)) if number in some]
    ends = started([*starts, Start(folder=str(folder), processes=2)])
    for one, codes in zip(starts, ends[:-1], strict=True):
        assert codes[one.rank] == -signal.SIGKILL and 0 not in codes, (one, codes)
    assert ends[-1] == [0, 0]
    assert digests(Run(folder)) == whole
