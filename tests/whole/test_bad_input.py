import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker import api, checkpoint, cli, locks, records, runs
from stoker.errors import Problem
from stoker.records import Event
from stoker.runs import Run

Settings = dict[str, Any]


@pytest.fixture
def data(dial_folder: Path, tmp_path: Path) -> Path:
    """A copy of the dials that may be spoiled."""
    return shutil.copytree(dial_folder, tmp_path / "pictures")


@pytest.fixture(scope="module")
def trained_once(dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    asked = {"model": "timm/test_resnet", "resolution": 32, "batch": 16, "epochs": 1, "device": "cpu"}
    api.train(name=folder, data=str(dial_folder), show=False, compute_threads=1, threads=2, **asked)
    return folder


@pytest.fixture
def unfinished(trained_once: Path, tmp_path: Path) -> Run:
    """A run that was stopped after its first epoch, of settings that `again` repeats."""
    run = Run(shutil.copytree(trained_once, tmp_path / "first"))
    runs.update_record(run, status="stopped")
    return run


def again(run: Run, **changes: Any) -> api.Trained:
    """Start a run once more, under the settings it has, but for some."""
    return api.train(name=run.folder, config=runs.read_config(run), show=False, **changes)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(**settings: Any) -> Problem:
    with pytest.raises(Problem) as found:
        api.train(show=False, **settings)
    assert found.value.fix
    return found.value


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of a command that a user can put right."""
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert "problem: " in said and "\nfix: " in said and "Traceback" not in said
    return said


def spoiled(folder: Path, how: str, *, count: int) -> list[Path]:
    """The first pictures below a folder, after each was spoiled."""
    paths = sorted(folder.rglob("*.jpg"))[:count]
    for path in paths:
        match how:
            case "empty":
                path.write_bytes(b"")
            case "truncated":
                path.write_bytes(path.read_bytes()[:400])
            case "text":
                path.write_text("<html>404 not found</html>")
    return paths


def unreadable(run: Path) -> str:
    """What the events of a run say of files that can't be read."""
    return "\n".join(e.what for e in records.read_lines(Run(run).events, Event) if e.kind == "unreadable")


def no_folder(_: Path) -> None:
    pass


def empty_folder(root: Path) -> None:
    root.mkdir()


def one_class(root: Path) -> None:
    (root / "cat").mkdir(parents=True)
    Image.new("RGB", (32, 32)).save(root / "cat" / "1.png")


def a_file(root: Path) -> None:
    root.write_text("no folder")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (no_folder, "there is no folder"),
        (empty_folder, "no class folders"),
        (one_class, "one class folder, cat"),
        (a_file, "is a file"),
    ],
)
def test_data_that_nothing_can_be_learned_from_is_refused(
    make: Callable[[Path], None], what: str, quick: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    make(tmp_path / "data")
    problem = refused(data=str(tmp_path / "data"), **quick)
    assert what in problem.what
    said = told(["train", "--data", str(tmp_path / "data"), "--device", "cpu"], capsys)
    assert problem.what in said and problem.fix in said


@pytest.mark.parametrize("how", ["empty", "truncated", "text"])
def test_too_many_unreadable_files_stop_a_run_before_it_trains(how: str, data: Path, quick: Settings):
    first, *_ = spoiled(data / "train", how, count=3)
    problem = refused(data=str(data), name="r", **quick)
    assert f"the first: {first}" in problem.what
    assert "--allow-bad" in problem.fix
    assert not Path("runs/r").exists(), "a run that was refused leaves no folder behind"


def test_too_many_unreadable_held_out_files_stop_a_run_before_it_trains(data: Path, quick: Settings):
    first, *_ = spoiled(data / "val", "text", count=1)
    assert f"1 of 24 samples tried can't be read, the first: {first}" in refused(data=str(data), name="r", **quick).what
    assert not Path("runs/r").exists()


def test_unreadable_training_files_that_are_allowed_are_listed_and_the_run_ends_well(data: Path, quick: Settings):
    bad = [*spoiled(data / "train/bar-3", "truncated", count=4), *spoiled(data / "train/bar-5", "text", count=3)]
    trained = api.train(data=str(data), show=False, allow_bad=0.5, last_step="keep", **quick)
    assert trained.record.status == "done"
    listed = unreadable(trained.folder)
    assert [path for path in bad if str(path) not in listed] == []
    assert len(listed.splitlines()) == 7


def test_empty_files_that_are_allowed_are_listed_and_the_run_ends_well(data: Path, quick: Settings):
    bad = spoiled(data / "train/bar-3", "empty", count=4)
    trained = api.train(data=str(data), show=False, allow_bad=0.5, **quick)
    assert trained.record.status == "done" and trained.record.data["empty_files"] == 4
    listed = Run(trained.folder).events.read_text() if Run(trained.folder).events.exists() else ""
    assert [path for path in bad if str(path) not in listed] == []


def test_unreadable_held_out_files_that_are_allowed_are_listed_and_the_run_ends_well(data: Path, quick: Settings):
    bad = spoiled(data / "val", "text", count=4)
    trained = api.train(data=str(data), show=False, allow_bad=0.5, **quick)
    rows = [json.loads(line) for line in Run(trained.folder).metrics.read_text().splitlines()]
    assert trained.record.status == "done"
    assert {row["samples"] for row in rows if row["kind"] == "eval"} == {20}
    listed = Run(trained.folder).events.read_text() if Run(trained.folder).events.exists() else ""
    assert [path for path in bad if str(path) not in listed] == []


def test_held_out_files_of_which_none_can_be_read_are_refused_even_if_all_may_be_bad(data: Path, quick: Settings):
    spoiled(data / "val", "text", count=24)
    assert "can't be read" in refused(data=str(data), allow_bad=1.0, **quick).what


def test_grey_cmyk_palette_and_16_bit_files_are_trained_on(data: Path, quick: Settings):
    for number, path in enumerate(sorted((data / "train").rglob("*.jpg"))):
        picture = Image.open(io.BytesIO(path.read_bytes()))
        match number % 5:
            case 0:
                picture.convert("L").save(path)
            case 1:
                picture.convert("CMYK").save(path)
            case 2:
                picture.quantize(16).save(path.with_suffix(".png"))
            case 3:
                grey = np.asarray(picture.convert("L")).astype(np.uint16) * 257
                Image.fromarray(grey).save(path.with_suffix(".png"))
        if number % 5 in (2, 3):
            path.unlink()
    trained = api.train(data=str(data), show=False, allow_bad=0.0, **quick)
    assert trained.record.status == "done" and trained.record.data["train_samples"] == 120


def test_an_unknown_model_is_refused_with_the_nearest_names(
    dial_folder: Path, quick: Settings, capsys: pytest.CaptureFixture[str]
):
    problem = refused(data=str(dial_folder), **quick | {"model": "resnet81"})
    assert problem.what == "no network is called resnet81"
    assert "resnet18" in problem.fix
    assert "resnet18" in told(["train", "--data", str(dial_folder), "--model", "resnet81"], capsys)


def test_a_batch_larger_than_the_data_is_refused(dial_folder: Path, quick: Settings):
    problem = refused(data=str(dial_folder), **quick | {"batch": 121})
    assert problem.what == "a batch of 121 is larger than the 120 training samples"


@pytest.mark.parametrize("wrong", [{"batch": 121}, {"model": "timm/test_resnot"}], ids=str)
def test_a_run_that_never_trained_may_be_put_right_under_its_own_name(
    wrong: Settings, dial_folder: Path, quick: Settings
):
    refused(data=str(dial_folder), name="r", **quick | wrong)
    assert api.train(data=str(dial_folder), name="r", show=False, **quick).record.status == "done"


def test_atoms_of_one_sample_which_batch_norm_cannot_work_with_are_refused(dial_folder: Path, quick: Settings):
    assert "atoms" in str(refused(data=str(dial_folder), **quick | {"atoms": 16}))


def test_a_run_started_with_other_settings_is_refused_and_left_as_it_is(unfinished: Run):
    before = contents(unfinished.folder)
    with pytest.raises(Problem) as found:
        again(unfinished, lr=0.3, epochs=5, crop_scale=(0.5, 1.0), log_steps=7)
    listed = [line.strip() for line in found.value.what.splitlines()[1:]]
    assert sorted(listed) == ["crop_scale: (0.08, 1.0) -> (0.5, 1.0)", "epochs: 1 -> 5", "lr: 0.1 -> 0.3"]
    assert contents(unfinished.folder) == before


def test_a_run_is_not_started_in_a_folder_of_other_things(dial_folder: Path, quick: Settings):
    Path("runs/thesis").mkdir(parents=True)
    Path("runs/thesis/chapter.tex").write_text("years of work")
    assert "is not empty and is no run" in refused(data=str(dial_folder), name="thesis", **quick).what
    assert contents(Path("runs/thesis")) == {"chapter.tex": b"years of work"}


def test_data_that_changed_since_a_run_was_stopped_is_refused(unfinished: Run, data: Path):
    shutil.copy(data / "val/bar-2/0000122.jpg", data / "train/bar-2/new.jpg")
    checkpoints = contents(unfinished.checkpoints)
    with pytest.raises(Problem, match="train_samples: 120 -> 121"):
        again(unfinished, data=str(data))
    assert contents(unfinished.checkpoints) == checkpoints


def test_a_run_goes_on_once_its_data_is_what_it_was_even_if_it_was_moved(unfinished: Run, data: Path):
    extra = Path(shutil.copy(data / "val/bar-2/0000122.jpg", data / "train/bar-2/new.jpg"))
    with pytest.raises(Problem):
        again(unfinished, data=str(data))
    extra.unlink()
    assert again(unfinished, data=str(data)).record.status == "done"


def test_a_checkpoint_of_another_model_is_refused(trained_once: Path, dial_folder: Path, quick: Settings):
    place = checkpoint.find(Run(trained_once), "latest")
    problem = refused(data=str(dial_folder), resume=str(place), **quick | {"model": "timm/test_efficientnet"})
    assert f"{place} holds timm/test_resnet with 10 classes, which is not the network of this run" in problem.what
    assert "absent" in problem.what


def test_a_checkpoint_for_other_classes_is_refused(trained_once: Path, data: Path, quick: Settings):
    for split in ("train", "val"):
        shutil.rmtree(data / split / "bar-9")
    place = checkpoint.find(Run(trained_once), "latest")
    assert "(10,) -> (9,)" in refused(data=str(data), resume=str(place), **quick).what


def test_a_checkpoint_made_with_another_batch_is_refused_or_trained_on_with_whole_epochs(
    trained_once: Path, dial_folder: Path, quick: Settings
):
    place = checkpoint.find(Run(trained_once), "latest")
    try:
        trained = api.train(data=str(dial_folder), resume=str(place), show=False, **quick | {"batch": 40})
    except Problem:
        pass
    else:
        rows = [json.loads(line) for line in Run(trained.folder).metrics.read_text().splitlines()]
        assert sum(row["samples"] for row in rows if row["kind"] == "train" and row["epoch"] == 1) == 120


@pytest.mark.parametrize("spoil", ["missing", "torn"])
def test_a_checkpoint_that_is_not_whole_is_refused(spoil: str, unfinished: Run, dial_folder: Path, quick: Settings):
    place = checkpoint.find(unfinished, "latest")
    if spoil == "missing":
        place = place.with_name("99999999")
    else:
        (place / "model.safetensors").write_bytes(b"torn")
    assert str(place) in refused(data=str(dial_folder), resume=str(place), **quick).what


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("[optim]\nlearning_rate = 1", "there is no setting optim.learning_rate", "optim.peak_lr"),
        ("[optim]\nmomentun = 0.8", "there is no setting optim.momentun", "did you mean optim.momentum?"),
        ("epochs = 3", "there is no setting epochs", "did you mean train.epochs?"),
        ("[trian]\nepochs = 3", "there is no setting trian", "did you mean train?"),
        ('[train]\nepochs = "three"', "train.epochs is 'three'", "type int"),
        ("[train]\nepochs = 2.5", "train.epochs is 2.5", "type int"),
        ("[image]\ncrop_scale = 0.5", "image.crop_scale is 0.5", "tuple[float, float]"),
        ('[optim]\noptimizer = "adam"', "optim.optimizer is 'adam'", "one of sgd, adamw"),
        ("[optim]\nmomentum = 0.0\nnesterov = true", "nesterov needs momentum", "--momentum 0.9"),
        ("[train]\nepochs = 0", "epochs is 0", "give at least 1"),
        ("epochs: 3", "can't be parsed", "correct the file"),
    ],
    ids=lambda value: value.replace("\n", " "),
)
def test_a_wrong_settings_file_is_refused_before_anything_is_written(
    text: str, what: str, fix: str, capsys: pytest.CaptureFixture[str]
):
    Path("wrong.toml").write_text(text)
    said = told(["train", "--config", "wrong.toml"], capsys)
    problem, _, advice = said.partition("\nfix: ")
    assert what in problem and fix in advice
    assert [path.name for path in Path().iterdir()] == ["wrong.toml"]


def test_a_settings_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]):
    assert "nowhere.toml can't be read" in told(["train", "--config", "nowhere.toml"], capsys)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nesterov": True, "momentum": 0.0},
        {"epochs": 0},
        {"batch": 0},
        {"lr": -0.1},
        {"lr": float("nan")},
        {"lr": "fast"},
        {"seed": -1},
        {"crop_scale": (1.0, 0.5)},
        {"flip": 1.5},
        {"resolution": 4},
        {"amp": "fp8"},
        {"mean": (0.5, 0.5)},
        {"std": (0.0, 0.5, 0.5)},
        {"translate": -1},
        {"erase": 1.1},
        {"erase_area": (0.5, 0.1)},
        {"mixup": -0.2},
        {"mixup": float("inf")},
        {"mixup_probability": 2.0},
        {"mixup": 0.2, "cutmix": 1.0, "cutmix_probability": 1.0},
        {"label_smoothing": 1.0},
        {"weights": "nowhere.pth"},
        {"head_rate": 0.0},
        {"layer_decay": 1.5},
        {"freeze_epochs": 1},
        {"optimizer": "adam"},
        {"nesterov": True, "optimizer": "adamw"},
        {"peak_lr": -1.0},
        {"clip": float("nan")},
        {"ema": 1.0},
        {"lr": float("inf")},
        {"batch": "all"},
        {"stages": "32@16"},
        {"stages": "32@16 x 1, 40@16 x 2"},
        {"on_divergence": "ignore"},
        {"exact": True, "compress": "powersgd"},
        {"compress": "int8"},
        {"sync_bn": True, "atoms": 2},
        {"checkpoint_minutes": -1.0},
        {"mtbf_hours": 0.0},
        {"keep_last": 1},
        {"mirror": "nowhere/at/all"},
        {"blurpool": True, "model": "timm/vit_tiny_patch16_224"},
        {"learning_rate": 0.1},
    ],
    ids=str,
)
def test_wrong_settings_leave_no_run_folder_behind(wrong: Settings, dial_folder: Path, quick: Settings):
    problem = refused(data=str(dial_folder), **quick | wrong)
    assert next(iter(wrong)) in str(problem) and problem.fix
    assert list(Path().glob("runs/*")) == [] and {path.name for path in Path().iterdir()} <= {"runs"}


def test_contradictory_flags_are_refused_in_words(dial_folder: Path, capsys: pytest.CaptureFixture[str]):
    words = ["train", "--data", str(dial_folder), "--nesterov", "--momentum", "0"]
    assert "nesterov needs momentum" in told(words, capsys)
    assert not Path("runs").exists()


@pytest.mark.parametrize("changed", [{}, {"log_steps": 7}], ids=["same settings", "other log_steps"])
def test_a_run_that_another_process_trains_is_refused_and_left_as_it_is(changed: Settings, unfinished: Run):
    before = contents(unfinished.folder)
    with locks.held(unfinished.lock), pytest.raises(Problem, match="is being trained by another process"):
        again(unfinished, **changed)
    assert contents(unfinished.folder) == before


def test_a_run_may_be_trained_once_the_other_process_let_go(unfinished: Run):
    with locks.held(unfinished.lock):
        pass
    assert again(unfinished).record.status == "done"


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["trian"], "there is no command trian", "did you mean stoker train?"),
        (["train", "dmeo"], "no recipe is called dmeo", "did you mean demo?"),
        (["why", "nowhere"], "nowhere is no run", "stoker train demo"),
        (["inspect", "nowhere"], "there is no folder nowhere", "check the path"),
    ],
    ids=str,
)
def test_a_wrong_command_is_refused_in_words(words: list[str], what: str, fix: str, capsys: pytest.CaptureFixture[str]):
    problem, _, advice = told(words, capsys).partition("\nfix: ")
    assert what in problem and fix in advice
