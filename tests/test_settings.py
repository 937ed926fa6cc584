"""Settings from defaults < recipe < file < flags, refused where they make no sense."""

import json
from pathlib import Path
from typing import Any

import pytest

from stoker import api, settings
from stoker.config import Config
from stoker.errors import Problem


def written(text: str, name: str = "settings.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def test_a_file_goes_over_the_recipe_and_values_over_the_file() -> None:
    file = written("[train]\nepochs = 7\nbatch = 32\n[image]\ncrop_scale = [0.5, 1]\n")
    config = api.configured("demo", file=file, batch=48)
    assert config.train.epochs == 7
    assert config.train.batch == 48
    assert config.image.crop_scale == (0.5, 1.0)
    assert config.image.flip == api.configured("demo").image.flip


def test_the_written_config_reads_back_as_the_same_value() -> None:
    config = api.configured("demo", target_accuracy=90.0, drop_epochs=(1, 2, 3))
    file = written(settings.as_json(config), "config.json")
    assert settings.read_file(file, Config()) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[optim]\nlearning_rat = 1\n", "there is no setting optim.learning_rat"),
        ("[optim]\nmomentun = 0.9\n", "did you mean optim.momentum?"),
        ("[optimizer]\nlr = 0.1\n", "there is no setting optimizer"),
        ("lr = 0.1\n", "did you mean optim.lr?"),
        ("[train]\nepochs = 1.5\n", "train.epochs is 1.5"),
        ("[train]\nepochs = true\n", "give a value of type int"),
        ('[model]\namp = "fp8"\n', "one of off, bf16, fp16"),
        ("[image]\ncrop_scale = [0.5]\n", "image.crop_scale is [0.5]"),
        ("[train\n", "can't be parsed"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_the_way_out(text: str, said: str) -> None:
    with pytest.raises(Problem) as caught:
        settings.read_file(written(text), Config())
    assert said in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(Problem, match=r"nowhere\.toml can't be read"):
        settings.read_file(Path("nowhere.toml"), Config())


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"lr": -1.0}, {"flip": 1.5}, {"crop_scale": (0.9, 0.1)},
        {"momentum": 1.0}, {"nesterov": True, "momentum": 0.0}, {"threads": -1}, {"target_accuracy": 0.0},
        {"target_accuracy": 101.0}, {"log_steps": 0}, {"ahead": 0}, {"eval_crop": 0.0}, {"seed": -1},
        {"allow_bad": 2.0}, {"holdout": 0.0}, {"resolution": 2},
    ],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        api.configured(**values)
    assert caught.value.fix


def test_a_name_that_is_no_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(Problem, match="did you mean epochs"):
        api.configured(epoch=3)


def test_the_address_follows_from_identity_settings_that_are_not_at_their_defaults() -> None:
    plain = Config()
    assert settings.address(api.configured(threads=3, log_steps=7, device="cpu")) == settings.address(plain)
    assert settings.address(api.configured(lr=0.2)) != settings.address(plain)
    assert settings.address(api.configured(lr=0.1)) == settings.address(plain)


def test_only_identity_settings_count_as_a_difference() -> None:
    changed = settings.identity_differences(Config(), api.configured(lr=0.2, threads=3, seed=5))
    assert [(d.name, d.old, d.new) for d in changed] == [("lr", 0.1, 0.2), ("seed", 0, 5)]


def test_every_value_of_the_config_survives_json() -> None:
    assert json.loads(settings.as_json(Config()))["version"] == 1


def test_settings_of_another_version_are_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text(settings.as_json(Config()).replace('"version": 1', '"version": 2'))
    with pytest.raises(Problem) as caught:
        settings.read_file(tmp_path / "config.json", Config())
    assert "holds version 2 of its settings; this Stoker reads 1" in caught.value.what
