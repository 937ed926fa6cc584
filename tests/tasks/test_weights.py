"""Where a network's first weights come from, and which of them fit."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save as bytes_of
from safetensors.torch import save_file
from torch import Tensor, nn

from stoker import checkpoint, records, runs
from stoker.config import Config
from stoker.errors import Problem
from stoker.runs import Run
from stoker.settings import with_values
from stoker.tasks import exported, matching, networks, weights
from stoker.tasks.blurpool import blurred
from stoker.tasks.matching import Pretrained
from stoker.tasks.weights import Traits

TINY = "timm/test_resnet"


def network(model: str = TINY, *, classes: int = 10, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return networks.create(model, classes=classes)


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def run_with(state: dict[str, Tensor], *, step: int = 5, ema: dict[str, Tensor] | None = None, **values: Any) -> Run:
    """A run under runs/ that has a checkpoint."""
    run = runs.create(Path("runs/old"), with_values(Config(), {"model": TINY, **values}), resumed_from=None)
    files = {"model.safetensors": bytes_of(state)} | ({"ema.safetensors": bytes_of(ema)} if ema else {})
    checkpoint.write(run, step, files)
    checkpoint.point(run, "latest", step)
    runs.write_whole(run.classes, json.dumps([f"class {i}" for i in range(10)]))
    return run


# Reading


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt", "w.bin"])
def test_a_file_of_weights_is_read(name: str) -> None:
    state = network().state_dict()
    save_file(state, name) if name.endswith("safetensors") else torch.save(state, name)
    found = weights.read(name, model=TINY)
    assert equal(found.tensors, state)
    assert (found.source, found.classes, found.is_blurred) == (name, None, False)


@pytest.mark.parametrize(
    ("wrap", "prefix"),
    [
        (lambda s: {"state_dict": s, "epoch": 3, "args": argparse.Namespace(lr=0.1)}, "module."),
        (lambda s: {"model": s, "optimizer": {"state": {}}}, "_orig_mod."),
        (lambda s: {"model": {"x": torch.zeros(1)}, "model_ema": s}, "module._orig_mod."),
        (lambda s: s, "module."),
    ],
)
def test_weights_are_found_inside_of_what_training_programs_save(wrap: Any, prefix: str) -> None:
    state = network().state_dict()
    torch.save(wrap({f"{prefix}{name}": tensor for name, tensor in state.items()}), "w.pth")
    assert equal(weights.read("w.pth", model=TINY).tensors, state)


def test_a_name_in_which_module_stands_elsewhere_stays() -> None:
    torch.save({"a.module.weight": torch.zeros(1)}, "w.pth")
    assert list(weights.read("w.pth", model=TINY).tensors) == ["a.module.weight"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty file"),
        (b"hello, I am no weights", "no whole"),
        ("missing", "can't be read"),
        ("truncated", "no whole"),
    ],
)
@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_bad_file_is_refused(name: str, content: bytes | str, said: str) -> None:
    path = Path(name)
    if content == "truncated":
        state = network().state_dict()
        save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
        path.write_bytes(path.read_bytes()[:-1000])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(Problem, match=rf"{name}.*{said}"):
        weights.read(name, model=TINY)


def test_a_saved_model_is_refused_and_how_to_save_weights_is_said() -> None:
    torch.save(network(), "w.pth")
    with pytest.raises(Problem, match=r"would run code(.|\n)*state_dict\(\)"):
        weights.read("w.pth", model=TINY)


@pytest.mark.parametrize("held", [{}, {"epoch": 3}, [torch.zeros(1)], torch.zeros(3), {"state_dict": {}}])
def test_a_file_without_weights_is_refused(held: Any) -> None:
    torch.save(held, "w.pth")
    with pytest.raises(Problem, match=r"w.pth holds no weights"):
        weights.read("w.pth", model=TINY)


def test_weights_that_are_not_finite_are_refused() -> None:
    torch.save({"a": torch.ones(2), "b": torch.tensor([1.0, float("nan")])}, "w.pth")
    with pytest.raises(Problem, match=r"not finite, in 1 of 2 tensors: b"):
        weights.read("w.pth", model=TINY)


@pytest.mark.parametrize("name", ["runs/old", "old", "runs/old/checkpoints/00000005", "runs/old/latest"])
def test_a_run_is_read_by_its_folder_its_name_or_its_checkpoint(name: str) -> None:
    state = network().state_dict()
    run_with(state)
    found = weights.read(name, model=TINY)
    assert equal(found.tensors, state)
    assert Path(found.source) == Path("runs/old/checkpoints/00000005")
    assert found.classes == tuple(f"class {i}" for i in range(10))
    assert found.model == TINY


def test_the_best_checkpoint_of_a_run_is_taken_before_the_latest() -> None:
    old, new = network(seed=1).state_dict(), network(seed=2).state_dict()
    run_with(old, step=5)
    run = run_with(new, step=9)
    assert equal(weights.read("old", model=TINY).tensors, new)
    checkpoint.point(run, "best", 5)
    assert equal(weights.read("old", model=TINY).tensors, old)


def test_averaged_weights_win_and_lack_nothing_that_was_not_averaged() -> None:
    state = network(seed=1).state_dict()
    averaged = {name: p.detach() for name, p in network(seed=2).named_parameters()}
    run_with(state, ema=averaged)
    assert equal(weights.read("old", model=TINY).tensors, state | averaged)


def test_a_checkpoint_that_is_not_whole_is_refused() -> None:
    run = run_with(network().state_dict())
    path = run.checkpoints / "00000005" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(Problem, match=r"this checkpoint is not whole: .* has not the hash"):
        weights.read("old", model=TINY)


@pytest.mark.parametrize("name", [checkpoint.MODEL, checkpoint.EMA])
def test_a_checkpoint_that_lacks_a_file_of_weights_is_refused(name: str) -> None:
    state = network().state_dict()
    run = run_with(state, ema=state)
    (run.checkpoints / "00000005" / name).unlink()
    with pytest.raises(Problem, match=f"this checkpoint is not whole: .*{name}"):
        weights.read("old", model=TINY)


def test_a_checkpoint_without_a_network_is_refused() -> None:
    run = run_with(network().state_dict())
    checkpoint.write(run, 5, {checkpoint.EMA: b"some"})
    with pytest.raises(Problem, match=f"manifest.json has no {checkpoint.MODEL}"):
        weights.read("old", model=TINY)


def test_the_weights_of_a_checkpoint_are_all_that_must_be_there() -> None:
    state = network().state_dict()
    run = run_with(state)
    checkpoint.write(run, 5, {**checkpoint.read(checkpoint.folder(run, 5)), checkpoint.OPTIMIZER: b"lost"})
    (run.checkpoints / "00000005" / checkpoint.OPTIMIZER).unlink()
    assert equal(weights.read("old", model=TINY).tensors, state)
    (run.checkpoints / "00000005" / checkpoint.MANIFEST).unlink()
    assert equal(weights.read("runs/old/checkpoints/00000005", model=TINY).tensors, state)


@pytest.mark.parametrize("name", ["out", "out/model.safetensors"])
def test_an_export_says_its_model_its_classes_and_its_pictures(name: str) -> None:
    said = exported.Exported(
        model=TINY, classes=("a", "b"), mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), resolution=64, crop=0.8
    )
    state = network(classes=2).state_dict()
    Path("out").mkdir()
    save_file(state, "out/model.safetensors")
    Path("out/config.json").write_text(exported.text(said))
    found = weights.read(name, model="timm/test_vit")
    assert equal(found.tensors, state)
    assert (found.source, found.classes, found.model) == ("out/model.safetensors", ("a", "b"), TINY)
    expected = Traits(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), resolution=64, crop=0.8)
    assert weights.traits(name, model="timm/test_vit") == expected


def test_what_is_neither_run_nor_file_is_refused() -> None:
    Path("folder").mkdir()
    Path("weights.zip").write_bytes(b"x")
    for name, said in (("folder", "neither a run nor"), ("weights.zip", "neither a run nor"), ("nowhere", "not found")):
        for asked in (weights.read, weights.traits):
            with pytest.raises(Problem, match=rf"{name}: that .*{said}(.|\n)*give pretrained, a file"):
                asked(name, model=TINY)
    runs.create(Path("runs/young"), Config(), resumed_from=None)
    with pytest.raises(Problem, match="neither a run nor"):
        weights.read("runs/young/record.json", model=TINY)
    with pytest.raises(Problem, match=r"runs/young has no checkpoint yet"):
        weights.read("young", model=TINY)


def test_what_can_not_be_downloaded_is_a_problem_and_a_file_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to the net\nand more")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr(torchvision.models.MobileNet_V2_Weights, "get_state_dict", offline)
    for model in (TINY, "torchvision/mobilenet_v2"):
        with pytest.raises(Problem, match=rf"{model} could not be had: no route to the net\n.*--weights FILE"):
            weights.read("pretrained", model=model)


def test_pretrained_weights_come_from_the_library_and_leave_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = network(classes=1000)

    def create(name: str, *, pretrained: bool) -> nn.Module:
        assert (name, pretrained) == ("test_resnet", True)
        torch.rand(100)
        return made

    monkeypatch.setattr(timm, "create_model", create)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert equal(weights.read("pretrained", model=TINY).tensors, made.state_dict())
    assert torch.equal(torch.rand(1), expected)


def test_pretrained_is_refused_where_there_is_nothing() -> None:
    for asked in (weights.read, weights.traits):
        for model in ("stoker/resnet20", "timm/efficientnet_b8"):
            with pytest.raises(Problem, match="has no pretrained weights for"):
                asked("pretrained", model=model)


# Traits


def test_traits_are_what_the_library_says() -> None:
    half = (0.5, 0.5, 0.5)
    assert weights.traits("pretrained", model=TINY) == Traits(mean=half, std=half, resolution=160, crop=0.95)
    imagenet = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    expected = Traits(**imagenet, resolution=224, crop=224 / 232)
    assert weights.traits("pretrained", model="torchvision/mobilenet_v2") == expected
    assert weights.traits("some.pth", model="torchvision/mobilenet_v2") == expected
    # The older weights of the same model are known by the name of their file.
    older = weights.traits("there/mobilenet_v2-b0353104.pth", model="torchvision/mobilenet_v2")
    assert older == dataclasses.replace(expected, crop=0.875)
    assert weights.traits("some.pth", model="stoker/resnet20") == Traits()
    assert weights.traits("", model=TINY) == Traits()


def test_traits_of_a_run_are_its_settings_and_what_was_fixed_at_its_start() -> None:
    run = run_with(network().state_dict(), eval_crop=0.9)
    assert weights.traits("old", model=TINY) == Traits(crop=0.9)
    fixed = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "resolution": 96}
    runs.update_record(run, fixed=fixed)
    assert records.read_record(run.record).fixed == fixed
    expected = Traits(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), resolution=96, crop=0.9)
    for name in ("old", "runs/old/checkpoints/00000005", "runs/old/latest"):
        assert weights.traits(name, model=TINY) == expected


# Giving


def test_all_but_the_head_for_other_classes_is_taken() -> None:
    there = network("torchvision/mobilenet_v2", classes=100, seed=1)
    torch.save(there.state_dict(), "w.pth")
    ours = network("torchvision/mobilenet_v2", classes=10, seed=2)
    fresh = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    found = matching.give(ours, weights.read("w.pth", model="m"), model="torchvision/mobilenet_v2")
    head = ("classifier.1.weight", "classifier.1.bias")
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, fresh[name] if name in head else there.state_dict()[name]), name
    assert (found.matched, found.total, found.new, found.unused) == (312, 314, head, ())
    assert found.is_head_new
    assert found.text() == (
        "weights  312 of 314 tensors from w.pth; "
        "new: classifier.1.weight (10 x 1280, was 100 x 1280), classifier.1.bias (10, was 100)"
    )


@pytest.mark.parametrize(
    ("before", "now", "is_new"),
    [
        (None, ("a", "b"), False),
        (("a", "b"), None, False),
        (("a", "b"), ("a", "b"), False),
        (("a", "b"), ("b", "a"), True),
        (("a", "b"), ("a", "c"), True),
    ],
)
def test_a_head_for_as_many_classes_is_taken_unless_they_have_other_names(before: Any, now: Any, is_new: bool) -> None:
    there, ours = network(classes=2, seed=1), network(classes=2, seed=2)
    given = Pretrained(source="w", tensors=there.state_dict(), classes=before)
    found = matching.give(ours, given, model=TINY, classes=now)
    assert torch.equal(ours.get_parameter("fc.weight"), there.get_parameter("fc.weight")) is not is_new
    assert found.is_head_new is is_new
    assert found.new == (("fc.weight", "fc.bias") if is_new else ())
    assert ("begins anew: its classes were a, b" in found.text()) is is_new
    assert found.resized == {}


def test_what_is_missing_or_too_much_is_told() -> None:
    state = network(seed=1).state_dict()
    state["conv1.0.weight"] = state["conv1.0.weight"].repeat(2, 1, 1, 1)
    del state["bn1.weight"]
    state |= {f"extra.{i}": torch.zeros(1) for i in range(6)}
    ours = network(seed=2)
    found = matching.give(ours, Pretrained(source="w", tensors=state), model=TINY)
    assert set(found.new) == {"conv1.0.weight", "bn1.weight"} and not found.is_head_new
    assert found.matched == found.total - 2
    assert found.text().endswith("; unused: extra.0, extra.1, extra.2, extra.3 and 2 more")
    assert "conv1.0.weight (16 x 3 x 3 x 3, was 32 x 3 x 3 x 3)" in found.text()


def test_layout_and_precision_of_the_network_stay() -> None:
    there, ours = network(seed=1), network(seed=2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    given = {n: t.half() if t.is_floating_point() else t for n, t in there.state_dict().items()}
    matching.give(ours, Pretrained(source="w", tensors=given), model=TINY)
    conv = ours.get_parameter("layer1.0.conv1.weight")
    assert conv.dtype == torch.float32 and conv.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(conv, given["layer1.0.conv1.weight"].float())


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("torchvision/mobilenet_v2", "timm/mobilenetv2_100"),
        ("timm/mobilenetv2_100", "torchvision/mobilenet_v2"),
        ("timm/resnet50", "timm/resnet18"),
    ],
)
def test_weights_of_another_model_are_refused_and_that_model_is_named(given: str, asked: str) -> None:
    with torch.device("meta"):
        there, ours = (networks.create(model, classes=1000) for model in (given, asked))
    source = f"{given.rpartition('/')[2]}-0123abcd.pth"
    with pytest.raises(Problem, match=rf"{source} is not made for {asked}(.|\n)*give --model {given}$"):
        matching.give(ours, Pretrained(source=source, tensors=there.state_dict()), model=asked)


def test_weights_of_a_run_with_another_model_are_refused_and_its_model_is_named() -> None:
    given = Pretrained(source="w", tensors={"x": torch.zeros(1)}, model="timm/test_vit")
    with pytest.raises(Problem, match=r"give --model timm/test_vit$"):
        matching.give(network(), given, model=TINY)


def test_weights_of_a_model_that_nobody_knows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "CANDIDATES", 1)
    ours = network(seed=2)
    fresh = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    with pytest.raises(Problem, match=r"it holds x \.\.\., and the network wants conv1.0.weight(.|\n)*made with$"):
        matching.give(ours, Pretrained(source="w", tensors={"x": torch.zeros(1)}), model=TINY)
    assert equal(ours.state_dict(), fresh)


def test_weights_made_with_blurpool_fit_the_plain_network() -> None:
    there = blurred(network("stoker/resnet20", seed=1))
    torch.save(there.state_dict(), "w.pth")
    ours = network("stoker/resnet20", seed=2)
    given = weights.read("w.pth", model="stoker/resnet20")
    assert given.is_blurred
    found = matching.give(ours, given, model="stoker/resnet20")
    assert (found.matched, found.new, found.unused) == (found.total, (), ())
    assert found.text().endswith("; made with blurpool")
    assert equal(blurred(ours).state_dict(), there.state_dict())
