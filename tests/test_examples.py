"""The notebooks of examples/ run as they are, and are kept without what a run leaves in them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
CELL_SECONDS = 600
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# In a process of its own, which takes the threads and sockets of the client with it.
EXECUTE = """
import sys
from pathlib import Path
import nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
client = NotebookClient(book, timeout=int(sys.argv[2]), kernel_name="python3")
try:
    client.execute()
finally:
    nbformat.write(book, "executed.ipynb")
"""


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_there_are_examples():
    assert [path.stem for path in EXAMPLES] == ["finetune", "quickstart"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path):
    threads = {"OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(path), str(CELL_SECONDS)], capture_output=True, text=True, check=False,
        env=os.environ | threads,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    outputs = [output for cell in nbformat.read("executed.ipynb", as_version=4).cells
               for output in cell.get("outputs", ())]  # fmt: skip
    assert [output for output in outputs if output.output_type == "error"] == []
    shown = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert len(shown) >= 4 and all('class="stoker"' in text for text in shown), "values show themselves"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(path, "code"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_notebook_is_kept_in_one_form(path: Path):
    """So that a change of a cell is all that a comparison of two versions shows."""
    found = json.loads(path.read_text())
    assert found["metadata"] == METADATA and (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert [cell["id"] for cell in found["cells"]] == [f"cell-{n:02d}" for n in range(1, len(found["cells"]) + 1)]
    assert all(cell["metadata"] == {} for cell in found["cells"])
    assert path.read_text() == json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    nbformat.validate(nbformat.read(path, as_version=4))
