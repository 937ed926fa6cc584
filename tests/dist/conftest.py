import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes got out of all they did together. One start serves all tests."""
    folder = tmp_path_factory.mktemp("pair")
    run_module("tests.dist.pair", folder)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def run_module(name: str, folder: Path, *words: str) -> None:
    """Run a module of the tests in a process of its own, because only a quiet one may fork."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", name, str(folder), *words], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr[-5000:]
