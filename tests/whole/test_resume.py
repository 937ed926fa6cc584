"""A run that is killed and started again ends as if nothing had happened."""

import dataclasses
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stoker import api, checkpoint, records, runs, settings
from stoker.config import Config
from stoker.records import LedgerRow
from stoker.runs import Run

from . import doomed
from .doomed import Start

STEPS_AN_EPOCH, EPOCHS = 7, 3


@pytest.fixture(scope="module")
def asked(quick: dict[str, Any], dial_folder: Path) -> Config:
    """Settings of a run of 21 steps with a checkpoint every 3."""
    return api.configured(**{**quick, "data": str(dial_folder), "epochs": EPOCHS, "checkpoint_steps": 3})


@pytest.fixture(scope="module")
def whole(asked: Config, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the run comes to when nothing disturbs it."""
    return undisturbed(tmp_path_factory.mktemp("whole") / "run", asked)


@pytest.fixture(scope="module")
def killed_once(asked: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, killed in its second epoch, between two checkpoints."""
    return stopped_in_the_middle(tmp_path_factory.mktemp("middle") / "run", asked).folder


@pytest.fixture
def middle(killed_once: Path, tmp_path: Path) -> Run:
    """A copy of the killed run."""
    return Run(shutil.copytree(killed_once, tmp_path / "middle"))


def digests(run: Run) -> dict[str, str]:
    """What must be the same, bit for bit: weights, optimiser state, metrics, and what is best."""
    last = checkpoint.find(run, "latest")
    files = [
        last / checkpoint.MODEL,
        last / checkpoint.OPTIMIZER,
        run.metrics,
        run.pointer("best"),
        run.pointer("latest"),
    ]
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    record = records.read_record(run.record)
    return {**found, "best": json.dumps(record.result["best"])}


def started(*starts: Start) -> list[int]:
    """The exit codes of some starts of runs, one after another; each in a process of its own."""
    asked = Path(starts[0].folder).parent / "starts.json"
    asked.write_text(json.dumps([dataclasses.asdict(one) for one in starts]))
    words = [sys.executable, doomed.__file__, str(asked)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(starts), done.stderr[-3000:]
    return [code for row in rows for code in row["codes"]]


def undisturbed(folder: Path, config: Config) -> dict[str, str]:
    run = runs.create(folder, config, resumed_from=None)
    assert api.work(folder, show=False).record.status == "done"
    return digests(run)


def test_a_run_killed_ten_times_ends_with_the_same_weights_optimiser_and_metrics(
    asked: Config, whole: dict[str, str], tmp_path: Path
) -> None:
    dice = random.Random(int.from_bytes(hashlib.sha256(str(tmp_path).encode()).digest()[:4]))
    folder = tmp_path / "killed"
    runs.create(folder, asked, resumed_from=None)
    ends = [
        ("in-step", dice.randint(1, 6)),
        ("in-checkpoint-file", 2),
        ("before-checkpoint-rename", dice.randint(1, 2)),
        ("in-evaluation", dice.randint(1, 2)),
        ("after-update", dice.randint(1, 5)),
        ("before-pointer", 1),
        ("after-evaluation", 1),
        ("in-line", dice.randint(2, 6)),
        ("in-data", dice.randint(2, 8)),
        ("after", dice.randint(0, 300)),
    ]
    starts = [
        Start(folder=str(folder), moment=moment, count=count, threads=(1, 2, 4)[number % 3])
        for number, (moment, count) in enumerate(ends)
    ]
    codes = started(*starts, Start(folder=str(folder), threads=4))
    assert codes[:-2] == [-signal.SIGKILL] * (len(ends) - 1) and codes[-1] == 0
    assert digests(Run(folder)) == whole
    assert_the_ledger_is_the_wall_clock(Run(folder))


def assert_the_ledger_is_the_wall_clock(run: Run) -> None:
    """Over all starts, the buckets sum to the time from the first start to the last line."""
    last = records.read_lines(run.ledger, LedgerRow)[-1]
    wall = last.at - records.read_record(run.record).attempts[0].started_at
    assert sum(value or 0.0 for value in last.totals.values()) == pytest.approx(wall, rel=0.01)
    assert all(value is None or value >= 0 for value in last.totals.values())
    assert (last.totals["lost"] or 0) > 0 and (last.totals["down"] or 0) > 0


@pytest.mark.parametrize("threads", [1, 4])
def test_the_number_of_decode_threads_changes_nothing(
    asked: Config, whole: dict[str, str], tmp_path: Path, threads: int
) -> None:
    assert undisturbed(tmp_path / "other", settings.with_values(asked, {"threads": threads})) == whole


def stopped_in_the_middle(folder: Path, config: Config) -> Run:
    """A run whose process was killed in its second epoch, between two checkpoints."""
    runs.create(folder, config, resumed_from=None)
    assert started(Start(folder=str(folder), moment="after-update", count=STEPS_AN_EPOCH + 3)) == [-signal.SIGKILL]
    return Run(folder)


def with_changed_state(run: Run, **changes: Any) -> None:
    """Write other values into the newest checkpoint, with a manifest that fits."""
    step = checkpoint.steps(run)[0]
    files = checkpoint.read(checkpoint.folder(run, step))
    plain = {**json.loads(files[checkpoint.STATE]), **changes}
    checkpoint.write(run, step, {**files, checkpoint.STATE: json.dumps(plain).encode()})


@pytest.mark.parametrize(("name", "value"), [("position", 0), ("seed", 1)])
def test_a_state_without_its_position_or_its_seed_would_not_pass(
    whole: dict[str, str], middle: Run, name: str, value: int
) -> None:
    with_changed_state(middle, **{name: value})
    assert completed(middle)[checkpoint.MODEL] != whole[checkpoint.MODEL], f"{name} does not matter"


def test_with_all_of_its_state_it_does(whole: dict[str, str], middle: Run) -> None:
    assert completed(middle) == whole


def completed(run: Run) -> dict[str, str]:
    """What a run comes to when it goes on in this process."""
    assert api.work(run.folder, show=False).record.status == "done"
    return digests(run)


def test_dropout_is_the_same_after_a_resume(asked: Config, tmp_path: Path) -> None:
    with_dropout = settings.with_values(asked, {"model": "torchvision/squeezenet1_1", "epochs": 2, "resolution": 40})
    whole = undisturbed(tmp_path / "whole", with_dropout)
    assert completed(stopped_in_the_middle(tmp_path / "middle", with_dropout)) == whole


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no manifest", "half a folder"])
def test_a_torn_checkpoint_is_skipped_for_the_one_before(whole: dict[str, str], middle: Run, damage: str) -> None:
    newest = checkpoint.folder(middle, checkpoint.steps(middle)[0])
    weights = newest / checkpoint.MODEL
    raw = bytearray(weights.read_bytes())
    raw[len(raw) // 2] ^= 1
    {
        "truncated": lambda: weights.write_bytes(raw[:1000]),
        "flipped": lambda: weights.write_bytes(raw),
        "no manifest": (newest / checkpoint.MANIFEST).unlink,
        "half a folder": weights.unlink,
    }[damage]()
    assert completed(middle) == whole
    events = [event.what for event in records.read_lines(middle.events, records.Event)]
    assert any("skipped a torn checkpoint" in what and newest.name in what for what in events)


def test_a_signal_saves_and_stops_and_the_same_command_goes_on(
    asked: Config, whole: dict[str, str], tmp_path: Path
) -> None:
    config = dataclasses.replace(asked, save=dataclasses.replace(asked.save, checkpoint_steps=0))
    run = runs.create(tmp_path / "run", config, resumed_from=None)
    command = [sys.executable, "-m", "stoker", "work", str(run.folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not records.read_lines(run.metrics, records.MetricRow):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 75
    record = records.read_record(run.record)
    assert record.status == "stopped" and "SIGTERM" in (record.why or "")
    assert checkpoint.steps(run)[0] == record.result["step"] < STEPS_AN_EPOCH * EPOCHS
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert {**digests(run), "latest": ""} == {**whole, "latest": ""}


@pytest.mark.long
def test_a_run_killed_a_hundred_times_ends_with_the_same_weights(asked: Config, tmp_path: Path) -> None:
    dice = random.Random(0)
    config = settings.with_values(asked, {"epochs": 120})
    whole = undisturbed(tmp_path / "whole", config)
    folder = tmp_path / "killed"
    runs.create(folder, config, resumed_from=None)
    starts = []
    for _ in range(100):
        threads = dice.choice((1, 2, 4))
        moment, count = "after", dice.randint(0, 400)
        if dice.random() < 0.5:
            moment = dice.choice(list(doomed.MOMENTS))
            # A process restores once, and the other moments come again and again.
            count = 1 if moment in ("after-restore", "at-new-gear") else dice.randint(1, 2)
        starts.append(Start(folder=str(folder), moment=moment, count=count, threads=threads))
    started(*starts)
    assert records.read_record(Run(folder).record).status == "running", "it got to its end before the last kill"
    assert started(Start(folder=str(folder))) == [0]
    assert digests(Run(folder)) == whole
    assert_the_ledger_is_the_wall_clock(Run(folder))


def test_a_run_killed_before_its_first_line_may_begin_again_with_other_settings(asked: Config, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.create(folder, settings.with_values(asked, {"seed": 5}), resumed_from=None)
    assert started(Start(folder=str(folder), moment="after-update", count=2)) == [-signal.SIGKILL]
    assert checkpoint.steps(Run(folder)) == [0], "the beginning was saved"
    runs.create(folder, asked, resumed_from=None)
    whole = undisturbed(tmp_path / "whole", asked)
    assert completed(Run(folder)) == whole
    last = records.read_lines(Run(folder).ledger, LedgerRow)[-1]
    wall = last.at - records.read_record(Run(folder).record).attempts[0].started_at
    assert sum(value or 0.0 for value in last.totals.values()) == pytest.approx(wall, rel=0.01)
