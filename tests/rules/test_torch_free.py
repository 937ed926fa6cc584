import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import runs
from stoker.config import Config
from stoker.records import LedgerRow

LIGHT = (
    "errors", "units", "records", "config", "settings", "recipes", "runs", "checkpoint", "progress", "machine/",
    "dist", "doctor/", "findings", "work", "api/", "cli", "usage", "benches", "shown", "machine_shown", "verdict_shown",
    "plans", "plan/probe", "plan/prospect", "plan/outlook", "plan/elsewhere", "plan/history", "plan/asking", "locks",
    "train/ledger", "train/rates", "train/track", "train/outlets",
    "lines", "report/", "watch/", "notebook/", "reports", "comparison_shown", "launch/", "sweep/grid",
)  # fmt: skip
IMPORT_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(name, *[heavy for heavy in ("torch", "torchvision", "timm", "numpy") if heavy in sys.modules])
"""
TRAP = """
import traceback
traceback.print_stack()
raise SystemExit("a light command imports " + __name__)
"""


@pytest.fixture
def trapped(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing torch, torchvision or timm ends the program."""
    for name in ("torch", "torchvision", "timm"):
        trap = tmp_path / "traps" / name / "__init__.py"
        trap.parent.mkdir(parents=True)
        trap.write_text(TRAP)
    before = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path / "traps"), before]))}


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """A run folder whose ledger tells of twenty steps."""
    run = runs.create(tmp_path / "run", Config(), resumed_from=None)
    seconds = {"compute": 3.0, "data_wait": 1.0, "host": None}
    row = LedgerRow(
        at=0.0, rank=0, world=1, attempt=1, step=20, steps=20, samples=80, seconds=seconds, totals=seconds,
        read_seconds=0.1, decode_seconds=0.5, device="cpu",
    )  # fmt: skip
    runs.append_line(run.ledger, row)
    return run.folder


def python(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=env)


def is_light(path: str) -> bool:
    return any(path.startswith(name) if name.endswith("/") else path == f"{name}.py" for name in LIGHT)


def test_light_modules_do_not_import_torch(sources: dict[str, str]):
    names = [f"stoker.{path[:-3].replace('/', '.').removesuffix('.__init__')}" for path in sources if is_light(path)]
    done = python("-c", IMPORT_EACH, *names)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == names
    assert [line for line in lines if {"torch", "torchvision", "timm"} & set(line[1:])] == []


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["why", "RUN"], ["why", "RUN", "--json"]])
def test_a_light_command_answers_without_torch(words: list[str], a_run: Path, trapped: dict[str, str]):
    done = python("-m", "stoker", *[str(a_run) if word == "RUN" else word for word in words], env=trapped)
    assert done.returncode == 0, done.stderr
    assert done.stdout and "a light command imports" not in done.stderr


def test_an_import_of_torch_would_be_noticed(trapped: dict[str, str]):
    done = python("-c", "try:\n    import torch\nexcept Exception:\n    pass", env=trapped)
    assert done.returncode == 1 and "a light command imports torch" in done.stderr
