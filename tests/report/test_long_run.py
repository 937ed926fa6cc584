"""A report of a very long run is made of a bounded part of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker import api
from stoker.runs import Run
from tests.report.test_account import grown

# Prints the most memory that a command took, in bytes, after what it printed itself.
MEASURED = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "stoker", *sys.argv[1:]], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


@pytest.mark.parametrize("count", [6000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_the_report_of_a_long_run_is_small_and_takes_little_memory(
    tmp_path: Path, dial_folder: Path, quick: dict[str, Any], count: int
) -> None:
    folder = api.train(name=tmp_path / "long", show=False, **{**quick, "data": str(dial_folder), "epochs": 1}).folder
    grown(Run(folder), count=count)
    words = [sys.executable, "-c", MEASURED, "report", str(folder), "--json"]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    *said, most_bytes = printed.strip().splitlines()
    written = json.loads("\n".join(said))
    assert written["html_bytes"] < 5e6
    assert int(most_bytes) < 500e6
    assert f"{4 * (count - 1):,}" in Path(written["html"]).read_text(), "the step that it came to"
