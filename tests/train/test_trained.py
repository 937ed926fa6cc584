"""Networks put to use, from a run, an export or a weights file."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from stoker import api, cli
from stoker.errors import Problem
from stoker.runs import Run
from stoker.tasks import networks
from stoker.train import trained
from tests.train import finished


@pytest.fixture(scope="module")
def run(dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished.run_of(tmp_path_factory.mktemp("trained") / "run", data=dial_folder)


@pytest.fixture
def weights(run: Run, tmp_path: Path) -> Path:
    """The same network as a file that says nothing of itself."""
    return Path(shutil.copy(run.checkpoints / "00000007" / "model.safetensors", tmp_path / "weights.safetensors"))


def by_hand(run: Run, pictures: list[Path]) -> torch.Tensor:
    """The probabilities of a run's network, with nothing of Stoker but the network's name."""
    import timm
    from torchvision.transforms import functional

    network = timm.create_model("test_resnet", num_classes=10).eval()
    network.load_state_dict(load_file(run.checkpoints / "00000007" / "model.safetensors"))
    mean, std = map(list, (finished.FIXED["mean"], finished.FIXED["std"]))
    shown = []
    for path in pictures:
        resized = functional.resize(Image.open(path).convert("RGB"), 37)
        shown.append(functional.normalize(functional.to_tensor(functional.center_crop(resized, 32)), mean, std))
    with torch.no_grad():
        return network(torch.stack(shown)).softmax(1)


def test_a_prediction_is_that_of_the_plain_network(run: Run, dial_folder: Path) -> None:
    pictures = sorted((dial_folder / "val").rglob("*.jpg"))[:6]
    answers = api.predict(run.folder, pictures, show=False)
    wanted = by_hand(run, pictures)
    for answer, row in zip(answers, wanted, strict=True):
        given = {finished.CLASSES.index(name): p for name, p in zip(answer.classes, answer.probabilities, strict=True)}
        assert len(given) == 5 and [*answer.probabilities] == sorted(answer.probabilities, reverse=True)
        assert all(abs(float(row[place]) - chance) < 0.02 for place, chance in given.items())
    assert len({answer.probabilities for answer in answers}) == 6


def test_a_run_is_scored_on_its_own_held_out_samples(run: Run, dial_folder: Path) -> None:
    found = api.eval(run.folder, show=False)
    assert found.samples == 24 and found.resolution == 32 and found.model == "timm/test_resnet" and not found.average
    pictures = sorted((dial_folder / "val").rglob("*.jpg"))
    right = by_hand(run, pictures).argmax(1) == torch.tensor([int(p.parent.name[4:]) for p in pictures])
    assert found.scores["top1"] == pytest.approx(100 * float(right.double().mean()), abs=4.2)


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_the_batch_does_not_change_the_scores(run: Run, batch: int) -> None:
    scores = api.eval(run.folder, batch=batch, show=False).scores
    assert scores == pytest.approx(api.eval(run.folder, batch=24, show=False).scores)


def test_the_average_is_what_is_used_where_training_kept_one(dial_folder: Path, tmp_path: Path) -> None:
    both = finished.run_of(tmp_path / "both", data=dial_folder, average=True)
    net = trained.load(both.folder)
    wanted = load_file(both.checkpoints / "00000007" / "ema.safetensors")
    assert net.is_average and api.eval(both.folder, show=False).average
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in net.network.state_dict().items())


def test_a_weights_file_has_as_many_outputs_as_its_last_layer(weights: Path, dial_folder: Path) -> None:
    found = api.eval(weights, model="test_resnet", data=str(dial_folder), resolution=32, show=False)
    assert found.samples == 24 and found.checkpoint == str(weights)
    assert found.matched.startswith("by order"), "ten nameless outputs, and ten classes"


def test_a_pth_file_is_used_like_safetensors(weights: Path, dial_folder: Path) -> None:
    torch.save({"state_dict": load_file(weights)}, "weights.pth")
    one, other = (
        api.eval(what, model="timm/test_resnet", data=str(dial_folder), show=False) for what in (weights, "weights.pth")
    )
    assert one.scores == other.scores


def test_weights_of_an_old_file_without_counters_are_used(weights: Path, dial_folder: Path) -> None:
    save_file({n: t for n, t in load_file(weights).items() if not n.endswith("num_batches_tracked")}, "old.safetensors")
    one, other = (
        api.eval(what, model="test_resnet", data=str(dial_folder), show=False) for what in (weights, "old.safetensors")
    )
    assert one.scores == other.scores


def test_weights_made_with_a_blur_are_used_with_it(dial_folder: Path, tmp_path: Path) -> None:
    blurred = finished.run_of(tmp_path / "blurred", data=dial_folder, blurpool=True)
    shutil.copy(blurred.checkpoints / "00000007" / "model.safetensors", "w.safetensors")
    found, pixels = trained.load("w.safetensors", model="test_resnet"), torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(found.network(pixels), trained.load(blurred.folder).network(pixels))


def test_a_thousand_outputs_are_scored_by_the_rank_of_the_wordnet_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = networks.create("timm/test_resnet", classes=1000)
    # Whatever the picture: output 4, then 0.
    torch.nn.init.zeros_(network.fc.weight)
    network.fc.bias.data.copy_(torch.zeros(1000)).index_copy_(0, torch.tensor([4, 0]), torch.tensor([9.0, 8.0]))
    save_file(network.state_dict(), "w.safetensors")
    for name in ("n01494475_hammerhead", "n01440764"):
        (tmp_path / "d" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(tmp_path / "d" / name / "1.png")
    found = api.eval("w.safetensors", model="timm/test_resnet", data="d", show=False)
    assert found.scores["top1"] == 50 and found.scores["top5"] == 100
    (answer,) = api.predict("w.safetensors", [tmp_path / "d" / "n01440764"], model="timm/test_resnet", show=False)
    assert answer.classes[:2] == ("hammerhead", "tench")


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({}, "does not say which network it is of"),
        ({"model": "resnet81"}, "no network is called resnet81"),
        ({"model": "test_vit"}, "is not made for timm/test_vit"),
        ({"model": "test_resnet"}, "has no data of its own"),
        ({"model": "test_resnet", "data": "nowhere"}, "there is no folder nowhere"),
        ({"model": "test_resnet", "data": "d", "batch": 0}, "batch is 0"),
    ],
    ids=str,
)
def test_weights_that_can_not_be_scored_are_refused(weights: Path, values: dict[str, str], what: str) -> None:
    with pytest.raises(Problem, match=what):
        api.eval(weights, show=False, **values)


def test_weights_that_are_torn_or_absent_are_refused(weights: Path) -> None:
    Path("half.safetensors").write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    for name, what in (("half.safetensors", "half.safetensors is no whole"), ("none.pth", r"none\.pth can't be read")):
        with pytest.raises(Problem, match=what):
            api.eval(name, model="test_resnet", data="d", show=False)


def test_weights_without_a_last_layer_are_refused_by_its_name(weights: Path) -> None:
    save_file({name: t for name, t in load_file(weights).items() if not name.startswith("fc.")}, "body.safetensors")
    with pytest.raises(Problem, match=r"body\.safetensors holds no fc\.weight"):
        api.eval("body.safetensors", model="test_resnet", data="d", show=False)


def test_data_of_classes_that_a_run_does_not_know_is_refused(run: Run, tmp_path: Path) -> None:
    for name in ("bar-1", "spoon"):
        (tmp_path / "d" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(tmp_path / "d" / name / "1.png")
    with pytest.raises(Problem, match="d holds classes that the network does not know: spoon"):
        api.eval(run.folder, data="d", show=False)
    shutil.rmtree(tmp_path / "d" / "spoon")
    assert api.eval(run.folder, data="d", show=False).samples == 1


def test_a_folder_of_pictures_without_class_folders_is_not_scored(run: Run, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "d" / "1.png")
    with pytest.raises(Problem, match="no class folders"):
        api.eval(run.folder, data="d", show=False)


def test_another_model_than_the_runs_is_refused(run: Run) -> None:
    with pytest.raises(Problem, match="is a timm/test_resnet, not a resnet18"):
        trained.load(run.folder, model="resnet18")
    assert trained.load(run.folder, model="test_resnet").run == run


def test_a_resolution_that_the_network_can_not_take_is_refused(dial_folder: Path) -> None:
    save_file(networks.create("timm/test_vit3", classes=10).state_dict(), "vit.safetensors")
    with pytest.raises(Problem, match="timm/test_vit3 takes no pictures of 48 pixels"):
        api.eval("vit.safetensors", model="test_vit3", data=str(dial_folder), resolution=48, show=False)


def test_a_resolution_changes_what_the_network_sees(run: Run) -> None:
    assert api.eval(run.folder, resolution=40, show=False).resolution == 40
    assert api.eval(run.folder, resolution=40, show=False).scores != api.eval(run.folder, show=False).scores


def test_a_torn_checkpoint_is_refused(run: Run, tmp_path: Path) -> None:
    copy = Run(shutil.copytree(run.folder, tmp_path / "copy"))
    (copy.checkpoints / "00000007" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(Problem, match="this checkpoint is not whole"):
        api.eval(copy.folder, show=False)


def test_pictures_that_can_not_be_read_do_not_end_the_rest(
    run: Run, dial_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = next((dial_folder / "val").rglob("*.jpg"))
    Path("text.jpg").write_text("hello")
    Path("empty.png").touch()
    Path("half.jpg").write_bytes(good.read_bytes()[:300])
    words = ["predict", str(run.folder), "nowhere.jpg", str(good), "text.jpg", "empty.png", "half.jpg"]
    assert cli.main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "nowhere.jpg: can't be read: No such file or directory"
    assert lines[1].startswith(f"{good}: bar-") and lines[1].count("%") == 5
    assert lines[2].startswith("text.jpg: can't be read: not a picture")
    assert lines[3] == "empty.png: can't be read: the file is empty" and "half.jpg: can't be read" in lines[4]
    assert cli.main([*words, "--json"]) == 1
    answers = json.loads(capsys.readouterr().out)
    assert [answer.keys() for answer in answers] == [{"input", "classes", "probabilities", "unreadable"}] * 5
    assert [bool(answer["unreadable"]) for answer in answers] == [True, False, True, True, True]
    assert cli.main(["predict", str(run.folder), "nowhere.jpg"]) == 1


def test_all_pictures_of_a_folder_are_looked_at_in_the_order_of_their_names(run: Run, dial_folder: Path) -> None:
    # More than one batch of them.
    answers = api.predict(run.folder, [dial_folder / "train"], show=False)
    assert [answer.input for answer in answers] == sorted(map(str, (dial_folder / "train").rglob("*.jpg")))
    last = api.predict(run.folder, [answers[-1].input], show=False)[0]
    assert last.classes == answers[-1].classes and last.probabilities == pytest.approx(answers[-1].probabilities)


def test_a_folder_without_pictures_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(Problem, match="holds no pictures"):
        api.predict(run.folder, ["none"], show=False)
    with pytest.raises(Problem, match="no pictures were given"):
        api.predict(run.folder, [], show=False)


def test_the_scores_that_eval_prints_have_their_shape(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["eval", str(run.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {
        "model", "checkpoint", "average", "data", "resolution", "samples", "unreadable", "matched", "scores",
    }  # fmt: skip
