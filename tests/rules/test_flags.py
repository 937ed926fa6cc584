import ast
import inspect
import re
from dataclasses import fields

import pytest

from stoker import cli, plans
from stoker.config import Config
from stoker.settings import listed

OWN = ["config", "name", "resume", "extend", "auto_resume", "lr_find", "json"]
SETTINGS = [
    "data", "holdout", "cache", "allow_bad",
    "resolution", "eval_resolution", "eval_crop", "crop_scale", "crop_ratio", "flip", "test_flip", "mean", "std",
    "translate", "erase", "erase_area", "mixup", "mixup_probability", "cutmix", "cutmix_probability",
    "label_smoothing",
    "threads", "ahead", "window",
    "model", "blurpool", "amp", "channels_last", "compile", "exact", "compute_threads", "device",
    "weights", "head_rate", "layer_decay", "freeze_epochs",
    "optimizer", "lr", "peak_lr", "schedule", "warmup_epochs", "drop_epochs", "drop_factor", "momentum", "nesterov",
    "weight_decay", "norm_decay", "clip", "ema",
    "epochs", "batch", "stages", "atoms", "last_step", "seed", "eval_epochs", "target_accuracy", "plan",
    "anyway", "on_divergence",
    "sync_bn", "compress",
    "checkpoint_epochs", "checkpoint_steps", "checkpoint_minutes", "mtbf_hours", "keep_last", "keep_epochs", "mirror",
    "log_steps", "gauge_seconds", "dollars_per_hour", "report", "track",
]  # fmt: skip


@pytest.fixture
def help_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What `stoker COMMAND --help` prints, without the lines of its boxes."""
    monkeypatch.setenv("COLUMNS", "80")  # In a wider terminal the boxes stand side by side.

    def text(command: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "--help"])
        assert ended.value.code == 0
        return re.sub(r"[\u2500-\u257f]", "", capsys.readouterr().out)

    return text


def own_flags() -> list[str]:
    return [field.name for field in fields(cli.TrainFlags) if field.name != "settings"]


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def docstrings(text: str) -> dict[str, str]:
    """The string below each field of a module's classes, by the field's name; empty where there is none."""
    found = {}
    for owner in ast.walk(ast.parse(text)):
        if isinstance(owner, ast.ClassDef) and owner.name != "Config":
            for node, after in zip(owner.body, [*owner.body[1:], None], strict=True):
                if isinstance(node, ast.AnnAssign):
                    below = after.value if isinstance(after, ast.Expr) else None
                    found[node.target.id] = below.value if isinstance(below, ast.Constant) else ""
    return found


def parameters(command: str) -> list[str]:
    """What a command's help must name: flags as --name, positional parameters as NAME."""
    if command == "train":
        return ["RECIPE", *map(flag, own_flags() + [setting.name for setting in listed(Config())])]
    if command == "plan":
        own = [field.name for field in fields(plans.PlanFlags) if field.name != "settings"]
        return ["RECIPE", *map(flag, own + [setting.name for setting in listed(Config())])]
    if command == "pack":
        return ["SOURCE", "DEST", *(flag(field.name) for field in fields(cli.PackFlags)), "--json"]
    found = inspect.signature(cli.COMMANDS[command]).parameters.values()
    return [flag(p.name) if p.kind is p.KEYWORD_ONLY else p.name.upper() for p in found]


def test_train_has_these_flags_and_no_others():
    assert own_flags() == OWN
    assert [setting.name for setting in listed(Config())] == SETTINGS


def test_flag_names_are_unique_over_all_parts():
    names = own_flags() + [setting.name for setting in listed(Config())]
    assert [name for name in names if names.count(name) > 1] == []


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_help_of_a_command_names_every_parameter(command: str, help_of):
    words = re.findall(r"[\w-]+", help_of(command))
    assert [name for name in parameters(command) if name not in words] == []


def test_every_setting_is_explained_in_the_help(help_of, sources: dict[str, str]):
    explained = {**docstrings(sources["config/pictures.py"]), **docstrings(sources["config/learning.py"])}
    assert [name for name in SETTINGS if not explained[name]] == []
    shown = "".join(help_of("train").split())
    assert [name for name in SETTINGS if "".join(explained[name].split()) not in shown] == []


def test_every_setting_is_marked_identity_or_operational():
    marks = {f.name: f.metadata.get("identity") for part in fields(Config) for f in fields(part.default_factory)}
    assert [name for name, mark in marks.items() if not isinstance(mark, bool)] == []


def test_a_field_without_a_docstring_is_noticed():
    text = 'class Part:\n    one: int = 1\n    two: int = 2\n    """two of it"""\n    three: int = 3'
    assert docstrings(text) == {"one": "", "two": "two of it", "three": ""}
