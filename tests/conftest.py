from pathlib import Path
from typing import Any

import pytest

from stoker.data import dials
from tests.report.browser import browser

__all__ = ["browser"]
SLOW = ("tests/rules/test_docs.py", "tests/test_examples.py", "tests/whole/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: several processes share the tests, and none shall be left with it at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(SLOW))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every test runs in a folder of its own, so that runs/ and data/ are its own too."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _own_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is measured of the machine is kept where no other test finds it, and measured for no longer than needed."""
    monkeypatch.setattr("stoker.doctor.cache.folder", lambda: tmp_path / "figures of machines")
    monkeypatch.setattr("stoker.doctor.course.SECONDS", 0.01)


@pytest.fixture(scope="session")
def dial_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 dials of 40 pixels to train on and 24 held out. Copy it before changing anything in it."""
    dest = tmp_path_factory.mktemp("data") / "dials"
    list(dials.make(dest, count=120, size=40, seed=0, processes=1))
    return dest


@pytest.fixture(scope="session")
def quick() -> dict[str, Any]:
    """Settings with which a run on dial_folder takes a second."""
    return {
        "model": "timm/test_resnet",
        "resolution": 32,
        "batch": 16,
        "epochs": 2,
        "log_steps": 2,
        "crop_scale": (0.6, 1.0),
        "flip": 0.0,
        "device": "cpu",
        "compute_threads": 1,
        "threads": 2,
        "report": False,
    }
