"""What must hold before training."""

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stoker import api, work
from stoker.data import sources
from stoker.errors import Problem


def test_code_is_known_also_where_there_is_no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    assert work.code()["version"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert work.code()["commit"] is None


def test_a_sample_of_the_data_is_judged_with_the_slack_a_sample_needs(
    monkeypatch: pytest.MonkeyPatch, dial_folder: Path
) -> None:
    config = api.configured(data=str(dial_folder))
    data = sources.open_source(config.data, seed=0, show=False)
    # Two thousand samples over the same files; one of which only ten bytes are read is no picture.
    many = data.train.taken(np.arange(2000) % 120)
    monkeypatch.setattr(work, "TRIED", 100)
    spoiled = replace(data, train=many)
    work.try_samples(config, spoiled)
    tried = np.linspace(0, 1999, 100).round().astype(int)
    for count, fine in ((3, True), (12, False)):
        length = many.length.copy()
        length[tried[:count]] = 10
        cut = replace(spoiled, train=replace(many, length=length))
        if fine:
            work.try_samples(config, cut)
        else:
            with pytest.raises(Problem, match="12 of 100 samples tried"):
                work.try_samples(config, cut)


def test_packages_are_listed_with_the_versions_that_are_imported() -> None:
    found = work.installed()
    for name in ("torch", "numpy", "pillow", "typing-extensions", "stoker"):
        assert found[name] == importlib.metadata.version(name)
