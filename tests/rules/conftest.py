import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """The package's modules: their text by their place under src/stoker, such as train/loop.py."""
    package = ROOT / "src" / "stoker"
    return {path.relative_to(package).as_posix(): path.read_text() for path in sorted(package.rglob("*.py"))}


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """The files that git tracks and that are there."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("only a git checkout says which files are tracked")
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
