"""Exports: what is written, that others can use it, and that nothing wrong is handed out."""

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from stoker import api, cli
from stoker.data import decode
from stoker.errors import Problem
from stoker.runs import Run
from stoker.tasks import exported
from stoker.train import export, trained
from tests.train import finished


@pytest.fixture(scope="module")
def run(dial_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished.run_of(tmp_path_factory.mktemp("export") / "first", data=dial_folder, epochs=3, lr=0.25)


@pytest.fixture(scope="module")
def written(run: Run, tmp_path_factory: pytest.TempPathFactory) -> export.Export:
    """An export with everything."""
    return api.export(run.folder, tmp_path_factory.mktemp("written") / "out", onnx=True)


def blocks(card: str) -> list[str]:
    """The Python of a card."""
    return re.findall(r"```python\n(.*?)```", card, re.S)


def executed(folder: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What a card's Python leaves behind, run where the card says, with a picture beside it."""
    place = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    shutil.copy(picture, place / "picture.jpg")
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    for block in blocks((place / "README.md").read_text()):
        exec(block, names)
    return names


def test_the_cards_python_gives_the_same_network_and_the_same_answer(
    written: export.Export,
    run: Run,
    dial_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    picture = next((dial_folder / "val").rglob("*.jpg"))
    names = executed(written.folder, picture, monkeypatch, tmp_path)
    assert len(blocks((written.folder / "README.md").read_text())) == 2
    net, pixels = trained.load(run.folder), torch.randn(3, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(names["network"](pixels), net.network(pixels))
    ours = torch.from_numpy(decode.evaluation_pixels(picture.read_bytes(), config=net.config.image).copy())[None]
    seen = names["view"](Image.open(io.BytesIO(picture.read_bytes())))[None]
    # Two resizes of one picture, in units of a standard deviation.
    assert float((seen - net.task.normalised(ours)).abs().mean()) < 0.02
    (answer,) = api.predict(run.folder, [picture], show=False)
    likely = names["logits"].softmax(1)[0]
    assert float(likely.max()) == pytest.approx(answer.probabilities[0], abs=0.02)
    assert capsys.readouterr().out.strip() == answer.classes[0]


@pytest.mark.parametrize(
    "values",
    [{"model": "torchvision/shufflenet_v2_x0_5"}, {"model": "stoker/resnet20"}, {"blurpool": True}],
    ids=str,
)
def test_the_cards_python_works_for_networks_of_every_library(
    values: dict[str, Any], dial_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = finished.run_of(tmp_path / "other", data=dial_folder, **values)
    api.export(other.folder, "out")
    names = executed(Path("out").absolute(), next((dial_folder / "val").rglob("*.jpg")), monkeypatch, tmp_path)
    net, pixels = trained.load(other.folder), torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(names["network"](pixels), net.network(pixels))
    assert api.eval(tmp_path / "out", data=str(dial_folder), show=False).scores == pytest.approx(
        api.eval(other.folder, show=False).scores
    )


def test_an_export_is_evaluated_and_predicted_with_like_its_run(
    written: export.Export, run: Run, dial_folder: Path
) -> None:
    wanted = api.eval(run.folder, show=False).scores
    for what in (written.folder, written.folder / "model.safetensors"):
        assert api.eval(what, data=str(dial_folder), show=False).scores == pytest.approx(wanted)
    picture = next((dial_folder / "val").rglob("*.jpg"))
    one, other = (api.predict(what, [picture], show=False)[0] for what in (written.folder, run.folder))
    assert one.classes == other.classes and one.probabilities == pytest.approx(other.probabilities)


def test_the_config_says_all_that_is_needed(written: export.Export) -> None:
    values = json.loads((written.folder / "config.json").read_text())
    assert values["model"] == "timm/test_resnet" and values["classes"] == [*finished.CLASSES]
    assert (values["mean"], values["std"]) == ([0.5, 0.4, 0.3], [0.25, 0.2, 0.3])
    assert (values["resolution"], values["crop"]) == (32, 0.875)


def test_the_card_says_where_the_network_comes_from_and_what_it_reaches(written: export.Export) -> None:
    card = (written.folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: timm\npipeline_tag: image-classification\n")
    for fact in (
        "| Samples | 24 (the held-out part of the data) |", "| After | 2 epochs |", "| Top-1 (%) | 12.5000 |",
        "| Name | dials |", "| Training samples | 1,200 |", "| Held-out samples | 24 |", "| Fingerprint | f00d |",
        "| Began with | random weights |", "| Epochs | 2 of 3 |", "| Hardware | 2 x NVIDIA H200, 16 CPU cores |",
        "| Processes | 2 |", "| Time | 1 h 02 min in 1 start |", "| Stoker | 9.9 abc |", "| Software | torch 2.10.0 |",
        "| `epochs` | 3 |", "| `lr` | 0.25 |", "| License | not stated |",
    ):  # fmt: skip
        assert fact in card, fact
    assert "`momentum`" not in card, "a setting at its default"
    assert str(Path(finished.__file__).parents[2]) not in card and "/tmp" not in card, "places on a disk are private"


def test_what_a_run_does_not_say_is_not_stated(run: Run, tmp_path: Path) -> None:
    bare = Run(shutil.copytree(run.folder, tmp_path / "bare"))
    for path in (bare.machine, bare.code, bare.metrics):
        path.unlink()
    api.export(bare.folder, "out")
    card = Path("out/README.md").read_text()
    assert "On held-out samples: not stated." in card
    assert "| Hardware | not stated |" in card and "| Software | not stated |" in card


def test_onnx_answers_like_pytorch_for_any_number_of_pictures(written: export.Export, run: Run) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(written.folder / "model.onnx", providers=["CPUExecutionProvider"])
    network = trained.load(run.folder).network
    for count in (1, 2, 7):
        pixels = torch.randn(count, 3, 32, 32)
        (given,) = session.run(["logits"], {"pixels": pixels.numpy()})
        with torch.inference_mode():
            np.testing.assert_allclose(given, network(pixels).numpy(), atol=1e-4)
    assert written.onnx_difference is not None and 0 <= written.onnx_difference < 1e-4
    assert f"by {written.onnx_difference:.1e} at most" in (written.folder / "README.md").read_text()
    assert set(written.files) == {path.name for path in written.folder.iterdir()}


def test_onnx_that_answers_differently_is_refused_and_nothing_is_written(
    written: export.Export, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (written.folder / "model.onnx").read_bytes()
    net = trained.load(run.folder)
    with torch.no_grad():
        net.network.fc.bias[3] += 0.1
    monkeypatch.setattr(export, "onnx_bytes", lambda *_, **__: other)
    with pytest.raises(Problem, match=r"answers differently: by 0\.1, "):
        export.export(net, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()


def test_without_the_packages_onnx_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = export.importlib.util.find_spec
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name))
    with pytest.raises(Problem, match="ONNX needs onnxruntime") as problem:
        api.export("no run", "out", onnx=True)
    assert problem.value.fix == "pip install 'stoker[onnx]'" and not Path("out").exists()


def test_a_network_that_can_not_be_onnx_is_a_problem_in_words() -> None:
    class Stubborn(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels if float(pixels.sum()) > 0 else -pixels

    with pytest.raises(Problem, match="odd/net can't be written as ONNX: "):
        export.onnx_bytes(Stubborn(), 8, model="odd/net")


def test_a_folder_of_other_things_is_not_written_to(run: Run) -> None:
    Path("thesis").mkdir()
    Path("thesis/config.json").write_text('{"years": 4}')
    with pytest.raises(Problem, match="thesis is not empty, and holds no earlier export"):
        api.export(run.folder, "thesis")
    assert [path.name for path in Path("thesis").iterdir()] == ["config.json"]
    with pytest.raises(Problem, match=r"config\.json is a file"):
        api.export(run.folder, "thesis/config.json")
    with pytest.raises(Problem, match="is not empty"):
        api.export(run.folder, run.folder)


def test_an_earlier_export_is_written_over_and_its_onnx_does_not_stay(
    written: export.Export, run: Run, tmp_path: Path
) -> None:
    shutil.copytree(written.folder, "out")
    Path("out/notes.txt").write_text("mine")
    api.export(run.folder, "out")
    assert {path.name for path in Path("out").iterdir()} == {
        "config.json", "model.safetensors", "README.md", "notes.txt",
    }  # fmt: skip
    assert "model.onnx" not in Path("out/README.md").read_text()


@pytest.mark.parametrize("harm", ["cut", "flipped"])
def test_exported_weights_that_are_torn_are_refused(written: export.Export, harm: str, dial_folder: Path) -> None:
    shutil.copytree(written.folder, "out")
    raw = bytearray(Path("out/model.safetensors").read_bytes())
    raw[-100] ^= 1
    Path("out/model.safetensors").write_bytes(raw[:-100] if harm == "cut" else raw)
    with pytest.raises(Problem, match="is not the file that was exported"):
        api.eval("out", data=str(dial_folder), show=False)


def test_the_average_is_exported_and_said_to_be(dial_folder: Path, tmp_path: Path) -> None:
    both = finished.run_of(tmp_path / "both", data=dial_folder, average=True)
    found = api.export(both.folder, "out")
    wanted = load_file(both.checkpoints / "00000007" / "ema.safetensors")
    given = load_file("out/model.safetensors")
    assert found.is_average and given.keys() == wanted.keys()
    assert all(torch.equal(given[name], wanted[name]) for name in wanted)
    assert "the average of the weights that training kept" in Path("out/README.md").read_text()


def test_a_weights_file_is_exported_too(run: Run) -> None:
    shutil.copy(run.checkpoints / "00000007" / "model.safetensors", "w.safetensors")
    api.export("w.safetensors", "out", model="test_resnet")
    said = exported.beside(Path("out"))
    assert said is not None and said.classes == tuple(map(str, range(10)))
    assert "On held-out samples: not stated." in Path("out/README.md").read_text()


def test_an_export_of_another_version_is_refused(written: export.Export) -> None:
    shutil.copytree(written.folder, "out")
    text = Path("out/config.json").read_text()
    Path("out/config.json").write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(Problem, match="another version"):
        trained.load("out")
    Path("out/config.json").write_text(text.replace('"crop"', '"crap"'))
    with pytest.raises(Problem, match=r"config\.json can't be used"):
        trained.load("out")


def test_export_prints_what_it_wrote(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(run.folder), "out"]) == 0
    told = capsys.readouterr().out
    assert "wrote    out/model.safetensors" in told and "stoker predict out" in told
    assert cli.main(["export", str(run.folder), "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {
        "folder", "source", "is_average", "files", "onnx_difference",
    }  # fmt: skip
