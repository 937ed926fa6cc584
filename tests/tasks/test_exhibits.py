"""Pictures of a report hold the pixels that the network gets, and their captions the truth."""

import contextlib
import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from stoker import settings
from stoker.config import Config
from stoker.data import order
from stoker.data.dataset import Dataset
from stoker.data.loader import Batch
from stoker.data.order import Plan
from stoker.errors import Problem
from stoker.tasks import Shown, classify, exhibits
from stoker.tasks.classify import Classify

CPU = torch.device("cpu")
SEED = 3


def task_of(folder: Path, quick: dict[str, Any], **values: Any) -> Classify:
    return classify.task_of(settings.with_values(Config(), {**quick, "data": str(folder), **values}))


def training(data: Dataset, *, batch: int, atoms: int = 1) -> Iterator[Plan]:
    route = order.Pace(count=len(data.train), batch=batch, atoms=atoms, last_step="drop").route(epochs=1, resolution=32)
    return order.training_plans(route, seed=SEED, epoch=0, position=0, rank=0, world=1)


def before(task: Classify, data: Dataset, **pace: int) -> Shown:
    (shown,) = task.exhibits(None, data, training(data, **pace), seed=SEED, threads=2, device=CPU, of="", is_over=never)
    assert shown.exhibit.name == "augmented"
    return shown


def never() -> bool:
    return False


def after(
    task: Classify, model: Any, data: Dataset, *, batch: int = 7, is_over: Callable[[], bool] = never
) -> dict[str, Shown]:
    plans = order.evaluation_plans(len(data.held_out), batch=batch, rank=0, world=1)
    with torch.no_grad():
        found = task.exhibits(model, data, plans, seed=SEED, threads=2, device=CPU, of="Weights", is_over=is_over)
    assert [shown.exhibit.name for shown in found] == ["confusion", "confusions", "classes", "worst"]
    return {shown.exhibit.name: shown for shown in found}


def batches(task: Classify, data: Dataset, plans: Iterator[Plan], *, seed: int | None) -> list[Batch]:
    """Whole batches, as a run would have them."""
    index = data.held_out if seed is None else data.train
    with contextlib.closing(task.batches(index, plans, seed=seed, threads=1, pin=False)) as loader:
        return [*loader]


def pixels(shown: Shown) -> NDArray[np.uint8]:
    """The pictures of an exhibit as they were before they were enlarged from 32 to 96 pixels."""
    pictures = [np.asarray(Image.open(io.BytesIO(shown.files[one.file]))) for one in shown.exhibit.pictures]
    assert {picture.shape for picture in pictures} == {(96, 96, 3)}
    assert all((picture == np.kron(picture[::3, ::3], np.ones((3, 3, 1), np.uint8))).all() for picture in pictures)
    return np.stack([picture[::3, ::3] for picture in pictures])


def captions(shown: Shown) -> list[str]:
    return [one.caption for one in shown.exhibit.pictures]


def network(classes: int = 10) -> torch.nn.Module:
    """One whose answers differ from picture to picture."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, classes)).eval()


def test_the_pictures_are_those_of_the_first_training_batch(dial_folder: Path, quick: dict[str, Any]) -> None:
    task = task_of(dial_folder, quick, flip=0.5)
    data = task.open(seed=SEED, show=False)
    shown = before(task, data, batch=40)
    first = batches(task, data, itertools.islice(training(data, batch=40), 1), seed=SEED)[0]
    assert np.array_equal(pixels(shown), first.pixels[:16].numpy())
    assert captions(shown) == [data.classes[label] for label in first.labels[:16]]
    assert "random crops of 60 to 100 % of the picture; 50 % are mirrored." in shown.exhibit.caption


@pytest.mark.parametrize("values", [{"translate": 6, "erase": 0.6}, {"mixup": 0.8}, {"cutmix": 1.0, "erase": 0.3}])
def test_pictures_are_shifted_erased_and_mixed_as_in_the_first_steps(
    dial_folder: Path, quick: dict[str, Any], values: dict[str, Any]
) -> None:
    task = task_of(dial_folder, quick, **values)
    data = task.open(seed=SEED, show=False)
    shown = before(task, data, batch=20)
    each = 16 if "translate" in values else 4
    wanted, said, seen = [], [], []
    for batch in batches(task, data, itertools.islice(training(data, batch=20), 16 // each), seed=SEED):
        # All samples of the atom, by the very function that the loss is computed with.
        task.loss(lambda pictures: seen.append(pictures) or pictures.flatten(1)[:, :10], task.moved(batch, CPU))
        wanted.append(seen[-1][:each])
        names, mix = [data.classes[label] for label in batch.labels], batch.mix
        assert mix is not None
        for own, other in itertools.islice(itertools.pairwise(names), each):
            kind = {"mixup": "MixUp: ", "cutmix": "CutMix: "}.get(mix.kind)
            both = f"{100 * mix.weight:.1f} % {own}, {100 - 100 * mix.weight:.1f} % {other}"
            said.append(own if kind is None else kind + both)
    mean, std = (torch.tensor(three).view(1, 3, 1, 1) for three in (classify.MEAN, classify.STD))
    numbers = ((torch.cat(wanted) * std + mean) * 255).permute(0, 2, 3, 1).numpy()
    assert np.abs(pixels(shown) - numbers).max() < 0.51
    assert captions(shown) == said
    assert any(": " in caption for caption in said) == (each == 4)


def test_small_atoms_give_their_samples_until_there_are_enough(dial_folder: Path, quick: dict[str, Any]) -> None:
    task = task_of(dial_folder, quick, mixup=5.0)
    data = task.open(seed=SEED, show=False)
    shown = before(task, data, batch=9, atoms=3)
    wanted = []
    for batch in batches(task, data, itertools.islice(training(data, batch=9, atoms=3), 6), seed=SEED):
        names = [data.classes[label] for label in batch.labels]
        # The last sample of an atom is mixed with its first.
        wanted += [*itertools.pairwise([*names, names[0]])]
    assert len(shown.exhibit.pictures) == len(shown.files) == 16
    assert [tuple(part.split("% ")[-1] for part in caption.split(",")) for caption in captions(shown)] == wanted[:16]


def test_no_more_is_decoded_than_is_shown(dial_folder: Path, quick: dict[str, Any]) -> None:
    task = task_of(dial_folder, quick)
    plans = training(task.open(seed=SEED, show=False), batch=100)
    (plan,) = exhibits.begun(plans, 16)
    assert len(plan.samples) == len(plan.positions) == 17


def test_an_unreadable_training_sample_is_shown_as_what_takes_its_place(
    dial_folder: Path, quick: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(dial_folder, tmp_path / "d")
    task = task_of(tmp_path / "d", quick)
    data = task.open(seed=SEED, show=False)
    # In another order, so that a sample of another class takes its place.
    data = replace(data, train=data.train.taken(np.arange(120) * 13 % 120))
    place = int(next(training(data, batch=40)).samples[5])
    data.train.path(place).write_bytes(b"no picture")
    named = [data.classes[label] for label in data.train.label[[place, place + 1]]]
    assert named[0] != named[1] and captions(before(task, data, batch=40))[5] == named[1]


def test_the_worst_are_those_with_the_highest_loss(dial_folder: Path, quick: dict[str, Any]) -> None:
    task, model = task_of(dial_folder, quick), network()
    data = task.open(seed=SEED, show=False)
    twice = replace(data, held_out=data.held_out.taken(np.arange(48) % 24))
    shown = after(task, model, twice)
    (whole,) = batches(task, data, order.evaluation_plans(24, batch=24, rank=0, world=1), seed=None)
    with torch.no_grad():
        logits = model(task.normalised(whole.pixels))
    losses = functional.cross_entropy(logits, whole.labels, reduction="none")
    wanted = losses.argsort(descending=True)[:12].repeat_interleave(2)
    assert np.array_equal(pixels(shown["worst"]), whole.pixels[wanted].numpy())
    for sample, caption in zip(wanted.tolist(), captions(shown["worst"]), strict=True):
        chance, best = logits[sample].softmax(0).max(0)
        true, predicted = (data.classes[label] for label in (whole.labels[sample], best))
        said = f"rightly seen as {true}" if true == predicted else f"{true} taken for {predicted}"
        path = data.held_out.path(sample).relative_to(dial_folder)
        assert caption == f"{said} ({100 * chance:.1f} %); loss {losses[sample]:.2f}; {path}"


def test_counts_add_up_to_the_samples_and_the_diagonal_to_the_score(dial_folder: Path, quick: dict[str, Any]) -> None:
    task, model = task_of(dial_folder, quick, test_flip=True), network()
    data = task.open(seed=SEED, show=False)
    matrix = np.array(after(task, model, data)["confusion"].exhibit.rows)
    (whole,) = batches(task, data, order.evaluation_plans(24, batch=24, rank=0, world=1), seed=None)
    _, top1, _, count = task.score(model, task.moved(whole, CPU)).tolist()
    assert matrix.sum() == count == 24 and 100 * matrix.trace() == top1 > 0
    assert np.array_equal(matrix.sum(1), np.bincount(whole.labels, minlength=10))


def test_of_equal_answers_the_same_is_taken_as_by_the_score(dial_folder: Path, quick: dict[str, Any]) -> None:
    task = task_of(dial_folder, quick)
    data = task.open(seed=SEED, show=False)

    def torn(pictures: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(pictures), 10)

    (whole,) = batches(task, data, order.evaluation_plans(24, batch=24, rank=0, world=1), seed=None)
    rows = np.array(after(task, torn, data, batch=24)["confusion"].exhibit.rows)
    assert 100 * rows.trace() == task.score(torn, task.moved(whole, CPU))[1]


def test_an_unreadable_held_out_sample_is_left_out_and_said(
    dial_folder: Path, quick: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(dial_folder, tmp_path / "d")
    task, model = task_of(tmp_path / "d", quick), network()
    data = task.open(seed=SEED, show=False)
    sound = {caption.rpartition("; ")[2]: caption for caption in captions(after(task, model, data)["worst"])}
    gone = data.held_out.path(2)
    gone.write_bytes(b"no picture")
    shown = after(task, model, data)
    assert np.sum(shown["confusion"].exhibit.rows) == 23
    # The samples that follow it still have their own names.
    left = {caption.rpartition("; ")[2]: caption for caption in captions(shown["worst"])}
    del sound[str(gone.relative_to(tmp_path / "d"))]
    assert left == sound
    assert all("(1 sample could not be read)" in one.exhibit.caption for one in shown.values())


def test_held_out_samples_none_of_which_can_be_read_are_a_problem(
    dial_folder: Path, quick: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(dial_folder, tmp_path / "d")
    task = task_of(tmp_path / "d", quick)
    data = task.open(seed=SEED, show=False)
    for path in (tmp_path / "d" / "val").rglob("*.jpg"):
        path.write_bytes(b"no picture")
    with pytest.raises(Problem, match="none of the held-out samples can be read"):
        after(task, network(), data)


def test_when_it_is_over_no_batch_more_is_looked_at_though_some_are_made_ahead(
    dial_folder: Path, quick: dict[str, Any]
) -> None:
    task, model = task_of(dial_folder, quick, ahead=4), network()
    data = task.open(seed=SEED, show=False)
    asked = list[int]()

    def counted(pictures: torch.Tensor) -> torch.Tensor:
        asked.append(len(pictures))
        return model(pictures)

    shown = after(task, counted, data, batch=5, is_over=lambda: len(asked) == 2)
    assert asked == [5, 5] and np.sum(shown["confusion"].exhibit.rows) == 10
    said = "Weights, on 10 of 24 held-out samples, spread over all of them: "
    assert all(one.exhibit.caption.startswith(said) for one in shown.values())
    with pytest.raises(Problem, match="no held-out sample was seen in time"):
        after(task, counted, data, is_over=lambda: True)
    assert len(asked) == 2


def test_it_is_over_also_while_a_sample_is_waited_for(
    dial_folder: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, model = task_of(dial_folder, quick), network()
    data = task.open(seed=SEED, show=False)
    looks = list[int]()

    def is_over() -> bool:
        looks.append(1)
        return len(looks) == 5

    # A disk that does not answer.
    monkeypatch.setattr(exhibits.Loader, "ready", lambda *_: False)
    with pytest.raises(Problem, match="no held-out sample was seen in time"):
        after(task, model, data, is_over=is_over)


def test_an_answer_that_is_no_number_is_the_worst(dial_folder: Path, quick: dict[str, Any]) -> None:
    task, model = task_of(dial_folder, quick), network()
    data = task.open(seed=SEED, show=False)
    asked = []

    def sick(pictures: torch.Tensor) -> torch.Tensor:
        asked.append(len(pictures))
        answer = model(pictures)
        return answer.index_fill(0, torch.tensor([3]), torch.nan) if len(asked) == 2 else answer

    worst = captions(after(task, sick, data, batch=5)["worst"])
    assert "loss inf" in worst[0] and "(no number)" in worst[0] and not any("inf" in one for one in worst[1:])
    assert worst[0].endswith(str(data.held_out.path(8).relative_to(dial_folder)))


def test_any_name_can_be_shown(dial_folder: Path, quick: dict[str, Any]) -> None:
    task = task_of(dial_folder, quick)
    data = task.open(seed=SEED, show=False)
    odd = ("<script>", "b\udce9ton", "ü", "", "x" * 300, '"', "a\nb", "|", "ü", "\ud83d")
    shown = after(task, network(), replace(data, classes=odd))
    for one in shown.values():
        text = json.dumps(asdict(one.exhibit))
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    assert shown["confusion"].exhibit.columns == (*odd[:1], "b?ton", *odd[2:9], "?")
    long = [caption for caption in captions(shown["worst"]) if "xxx" in caption]
    assert long and all("x" * 31 + "…" in caption and len(caption) < 160 for caption in long)


def test_of_a_long_path_the_end_is_shown(dial_folder: Path, quick: dict[str, Any]) -> None:
    data = task_of(dial_folder, quick).open(seed=SEED, show=False)
    index = replace(data.held_out, root=dial_folder.parent)
    assert exhibits.place(data.held_out, 0).startswith("val/bar-0/")
    name = b"deep/" * 20 + b"7.jpg"
    deep = replace(index, names=np.frombuffer(name, np.uint8), name_ends=np.array([len(name)]), file=index.file * 0)
    shown = exhibits.place(replace(deep, offset=index.offset + 512), 5)
    assert len(shown) == 48 and shown.startswith("…") and shown.endswith("deep/7.jpg at byte 512")


@pytest.mark.parametrize(
    ("side", "ending", "shown"),
    [(8, "png", 96), (32, "png", 96), (40, "png", 120), (80, "png", 160), (95, "jpg", 95), (96, "jpg", 96),
     (160, "jpg", 160), (224, "jpg", 160)],
)  # fmt: skip
def test_small_pictures_are_enlarged_and_large_ones_made_smaller(side: int, ending: str, shown: int) -> None:
    grey = np.full((side, side, 3), 120, np.uint8)
    found, data = exhibits.encoded(grey)
    picture = Image.open(io.BytesIO(data))
    assert found == ending and picture.size == (shown, shown) and picture.format in ("PNG", "JPEG")
    assert np.abs(np.asarray(picture).astype(int) - 120).max() <= 1


def test_everything_that_is_done_to_a_picture_is_said(dial_folder: Path, quick: dict[str, Any]) -> None:
    plain = task_of(dial_folder, quick, crop_scale=(1.0, 1.0))
    assert exhibits.alterations(plain) == "random crops"
    values = {"translate": 1, "erase": 0.25, "mixup": 0.2, "cutmix": 1.0, "label_smoothing": 0.1, "flip": 0.5}
    assert exhibits.alterations(task_of(dial_folder, quick, **values)) == (
        "random crops of 60 to 100 % of the picture; 50 % are mirrored; shifted by up to 1 pixel; 25 % lose a box; "
        "mixed with the next sample by MixUp or CutMix; 10 % of each label is spread over all classes"
    )
