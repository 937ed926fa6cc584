import gc
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from stoker.config import AugmentConfig, DataConfig, ImageConfig
from stoker.config.stages import Stage
from stoker.data import augment, decode, dials, index, mix, native, sources
from stoker.data.index import Index
from stoker.data.loader import Batch, Loader
from stoker.data.order import Pace, Plan, Route, evaluation_plans, training_plans
from stoker.errors import Problem

IMAGE = ImageConfig(resolution=32)
SEED = 4


@pytest.fixture(autouse=True, params=["native", "pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every promise holds with the native decoder and without it."""
    if request.param == "pillow":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip(f"{native.MISSING}; fix: {native.CURE}")
    return request.param


@pytest.fixture
def samples(dial_folder: Path) -> Index:
    return sources.open_source(DataConfig(data=str(dial_folder)), seed=0, show=False).train


@pytest.fixture
def twelve(tmp_path: Path) -> Index:
    """Twelve pictures that may be spoiled; their labels are 100, 101, ..."""
    names = [f"{number}.jpg" for number in range(12)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(dials.draw(number, seed=0, size=32))
    sizes = [(tmp_path / name).stat().st_size for name in names]
    return index.of_files(tmp_path, names, sizes=sizes, labels=list(range(100, 112)))


def training(samples: Index, *, epoch: int = 0, position: int = 0, threads: int = 2, ahead: int = 4) -> Loader:
    pace = Pace(count=len(samples), batch=min(16, len(samples)), atoms=1, last_step="keep")
    route = pace.route(epochs=2, resolution=32)
    plans = training_plans(route, seed=SEED, epoch=epoch, position=position, rank=0, world=1)
    return Loader(samples, plans, image=IMAGE, seed=SEED, threads=threads, ahead=ahead, pin=False)


def evaluation(samples: Index) -> Loader:
    plans = evaluation_plans(len(samples), batch=5, rank=0, world=1)
    return Loader(samples, plans, image=IMAGE, seed=None, threads=2, ahead=4, pin=False)


def of_these(samples: Index, places: list[int]) -> Loader:
    """A loader of one training batch."""
    plan = Plan(epoch=0, positions=np.arange(len(places)), samples=np.array(places))
    return Loader(samples, iter([plan]), image=IMAGE, seed=SEED, threads=2, ahead=1, pin=False)


def exhausted(loader: Loader) -> list[Batch]:
    try:
        return list(loader)
    finally:
        loader.close()


def content(batches: list[Batch]) -> list[tuple[bytes, list[int]]]:
    return [(batch.pixels.numpy().tobytes(), batch.labels.tolist()) for batch in batches]


def is_same(pixels: object, expected: object) -> bool:
    """Whether pictures are equal but for the rounding of two decoders."""
    return int(np.abs(np.asarray(pixels, np.int16) - np.asarray(expected, np.int16)).max()) <= 1


def cropped(samples: Index, sample: int, *, position: int, epoch: int = 0, image: ImageConfig = IMAGE) -> np.ndarray:
    """A sample under the random numbers of a position of an epoch."""
    drawn = augment.draws(SEED, epoch=epoch, positions=np.array([position]))[0]
    return decode.training_pixels(samples.read(sample), drawn=drawn, config=image)


@pytest.mark.parametrize(("threads", "ahead"), [(1, 4), (2, 1), (4, 4), (4, 50)])
def test_any_number_of_threads_and_batches_ahead_gives_the_same_pixels_and_labels(
    samples: Index, threads: int, ahead: int
):
    expected = content(exhausted(training(samples, threads=1, ahead=1)))
    assert content(exhausted(training(samples, threads=threads, ahead=ahead))) == expected


def test_batches_follow_their_plans(samples: Index):
    batches = exhausted(training(samples))
    pace = Pace(count=120, batch=16, atoms=1, last_step="keep")
    route = pace.route(epochs=2, resolution=32)
    plans = list(training_plans(route, seed=SEED, epoch=0, position=0, rank=0, world=1))
    assert [batch.plan.samples.tolist() for batch in batches] == [plan.samples.tolist() for plan in plans]
    assert [b.labels.tolist() for b in batches] == [samples.label[b.plan.samples].tolist() for b in batches]


@pytest.mark.parametrize(("number", "epoch"), [(2, 0), (10, 1)])
def test_a_row_of_a_batch_is_its_sample_under_the_draws_of_its_position(samples: Index, number: int, epoch: int):
    batch = exhausted(training(samples))[number]
    rows = zip(batch.plan.samples.tolist(), batch.plan.positions.tolist())
    expected = [cropped(samples, sample, position=position, epoch=epoch) for sample, position in rows]
    assert is_same(batch.pixels, expected)


def test_a_sample_is_cropped_otherwise_in_another_epoch(samples: Index):
    pictures: dict[int, set[bytes]] = {}
    for batch in exhausted(training(samples)):
        for sample, picture in zip(batch.plan.samples.tolist(), batch.pixels.numpy()):
            pictures.setdefault(sample, set()).add(picture.tobytes())
    assert {len(found) for found in pictures.values()} == {2}


@pytest.mark.parametrize(("epoch", "position"), [(0, 16), (0, 112), (1, 0), (1, 48)])
def test_going_on_from_a_position_gives_the_rest_of_the_same_batches(samples: Index, epoch: int, position: int):
    rest = content(exhausted(training(samples, epoch=epoch, position=position)))
    assert rest == content(exhausted(training(samples)))[epoch * 8 + position // 16 :]


def test_evaluation_shows_every_sample_once_and_unchanged(samples: Index):
    batches = exhausted(evaluation(samples))
    pixels = np.concatenate([batch.pixels.numpy() for batch in batches])
    expected = [decode.evaluation_pixels(samples.read(sample), config=IMAGE) for sample in range(120)]
    assert is_same(pixels, expected)
    assert [label for batch in batches for label in batch.labels.tolist()] == samples.label.tolist()


def spoil(samples: Index, sample: int, how: str) -> None:
    path = samples.path(sample)
    match how:
        case "truncated":
            path.write_bytes(path.read_bytes()[:300])
        case "text":
            path.write_text("<html>404</html>")
        case "empty":
            path.write_bytes(b"")
        case "removed":
            path.unlink()


@pytest.mark.parametrize("how", ["truncated", "text", "empty", "removed"])
def test_an_unreadable_sample_is_replaced_in_training_by_the_next_readable_one(twelve: Index, how: str):
    spoil(twelve, 5, how)
    spoil(twelve, 6, how)
    loader = of_these(twelve, [3, 5, 8])
    [batch] = exhausted(loader)
    assert batch.labels.tolist() == [103, 107, 108]
    assert is_same(batch.pixels[1], cropped(twelve, 7, position=1))
    assert sorted(loader.bad) == [5, 6] and all(loader.bad.values())


def test_the_first_sample_stands_in_for_an_unreadable_last_one(twelve: Index):
    spoil(twelve, 11, "text")
    assert exhausted(of_these(twelve, [11]))[0].labels.tolist() == [100]


@pytest.mark.parametrize("how", ["truncated", "text", "empty", "removed"])
def test_an_unreadable_sample_is_left_out_of_an_evaluation(twelve: Index, how: str):
    for sample in (1, 5, 6):
        spoil(twelve, sample, how)
    loader = evaluation(twelve)
    batches = exhausted(loader)
    assert [batch.labels.tolist() for batch in batches] == [[100, 102, 103, 104], [107, 108, 109], [110, 111]]
    assert is_same(batches[1].pixels[0], decode.evaluation_pixels(twelve.read(7), config=IMAGE))
    assert sorted(loader.bad) == [1, 5, 6]


def test_a_batch_of_which_nothing_can_be_read_is_an_empty_one_in_an_evaluation(twelve: Index):
    for sample in range(5):
        spoil(twelve, sample, "text")
    assert [len(batch.labels) for batch in exhausted(evaluation(twelve))] == [0, 5, 2]


def test_training_ends_with_a_problem_where_no_neighbour_can_be_read(twelve: Index):
    for sample in range(12):
        spoil(twelve, sample, "text")
    with pytest.raises(Problem, match=r"in a row can't be read, the last: .*\.jpg"):
        exhausted(of_these(twelve, [3]))


def threads_alive() -> int:
    return psutil.Process().num_threads()


def test_closing_a_loader_ends_its_threads(samples: Index):
    gc.collect()
    before = threads_alive()
    loader = training(samples, threads=3)
    next(loader)
    during = threads_alive()
    loader.close()
    assert during > before
    # The system takes a moment to forget a thread that has ended.
    for _ in range(100):
        if threads_alive() <= before:
            break
        time.sleep(0.05)
    assert threads_alive() <= before


def test_a_loader_that_is_dropped_without_closing_leaves_its_memory_alone(samples: Index):
    for _ in range(20):
        loader = training(samples, ahead=50)
        next(loader)
        del loader
    assert len(exhausted(training(samples))) == 16


def test_time_spent_on_reading_and_decoding_is_counted(samples: Index):
    loader = training(samples)
    next(loader)
    loader.close()
    assert loader.read_seconds > 0 and loader.decode_seconds > 0


@pytest.mark.parametrize("failures", [2, 99])
def test_a_disk_that_fails_now_and_then_changes_no_sample(
    samples: Index, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    # What the native decoder can't read it hands on to Pillow's threads, so it is they who must be patient.
    monkeypatch.setattr(native, "library", lambda: None)
    expected = next(training(samples))
    original, left = Index.read, [failures]

    def failing(self: Index, sample: int) -> bytes:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(5, "Input/output error")
        return original(self, sample)

    monkeypatch.setattr(Index, "read", failing)
    monkeypatch.setattr("time.sleep", lambda _: None)
    loader = training(samples)
    if failures == 2:
        assert np.array_equal(next(loader).pixels, expected.pixels) and not loader.bad
    else:
        with pytest.raises(Problem, match="Input/output error"):
            next(loader)
    loader.close()


def test_memory_stays_within_what_is_said(samples: Index):
    image = ImageConfig(resolution=224)
    plans = (Plan(epoch=0, positions=np.arange(64), samples=np.arange(64)) for _ in range(60))
    loader = Loader(samples, plans, image=image, seed=SEED, threads=2, ahead=4, pin=False)
    before = psutil.Process().memory_info().rss
    most = max(psutil.Process().memory_info().rss for _ in loader)
    loader.close()
    # Sixty such batches are 578 MB; those ahead and in use are 58.
    assert loader.most_bytes(64 * 224**2) < 70e6
    assert most - before < loader.most_bytes(64 * 224**2) + 8e6


STAGES = (Stage(resolution=32, batch=40, epochs=1), Stage(resolution=48, batch=60, epochs=1))


@pytest.mark.parametrize("threads", [1, 3])
def test_stages_of_another_resolution_follow_without_a_gap(samples: Index, threads: int):
    route = Route(count=120, stages=STAGES, atoms=1, last_step="drop")
    plans = training_plans(route, seed=SEED, epoch=0, position=0, rank=0, world=1)
    # All five are made ahead, so that both sizes are in the making at once.
    batches = exhausted(Loader(samples, plans, image=IMAGE, seed=SEED, threads=threads, ahead=9, pin=False))
    assert [tuple(batch.pixels.shape) for batch in batches] == [(40, 32, 32, 3)] * 3 + [(60, 48, 48, 3)] * 2
    for number, epoch, side in ((2, 0, 32), (3, 1, 48)):
        batch = batches[number]
        rows = zip(batch.plan.samples.tolist()[:20], batch.plan.positions.tolist())
        image = ImageConfig(resolution=side)
        expected = [cropped(samples, sample, position=place, epoch=epoch, image=image) for sample, place in rows]
        assert is_same(batch.pixels[:20], expected)


def test_an_unreadable_sample_is_replaced_at_the_resolution_of_its_plan(twelve: Index):
    spoil(twelve, 5, "text")
    plan = Plan(epoch=0, positions=np.arange(2), samples=np.array([4, 5]), resolution=24)
    [batch] = exhausted(Loader(twelve, iter([plan]), image=IMAGE, seed=SEED, threads=1, ahead=1, pin=False))
    assert is_same(batch.pixels[1], cropped(twelve, 6, position=1, image=ImageConfig(resolution=24)))


@pytest.mark.parametrize(("eval_resolution", "expected"), [(0, 32), (40, 40)])
def test_an_evaluation_has_the_resolution_of_the_settings(twelve: Index, eval_resolution: int, expected: int):
    image = replace(IMAGE, eval_resolution=eval_resolution)
    plans = evaluation_plans(12, batch=12, rank=0, world=1)
    [batch] = exhausted(Loader(twelve, plans, image=image, seed=None, threads=1, ahead=1, pin=False))
    assert is_same(batch.pixels, [decode.evaluation_pixels(twelve.read(k), config=image) for k in range(12)])
    assert batch.pixels.shape[1] == expected


def test_an_evaluation_keeps_to_the_resolution_of_its_plan(twelve: Index):
    image = replace(IMAGE, eval_resolution=40)
    plan = Plan(epoch=0, positions=np.arange(12), samples=np.arange(12), resolution=24)
    [batch] = exhausted(Loader(twelve, iter([plan]), image=image, seed=None, threads=1, ahead=1, pin=False))
    expected = [decode.evaluation_pixels(twelve.read(k), config=ImageConfig(resolution=24)) for k in range(12)]
    assert is_same(batch.pixels, expected)


def test_settings_that_do_not_say_how_large_pictures_are_give_no_loader(twelve: Index):
    with pytest.raises(AssertionError):
        Loader(twelve, iter([]), image=ImageConfig(), seed=None, threads=1, ahead=1, pin=False)


def test_a_training_batch_brings_the_draws_of_its_positions_and_resolution(samples: Index):
    config = AugmentConfig(translate=3, erase=1.0, cutmix=1.0, cutmix_probability=1.0)
    route = Route(count=120, stages=STAGES, atoms=2, last_step="drop")
    plans = training_plans(route, seed=SEED, epoch=0, position=0, rank=1, world=2)
    loader = Loader(samples, plans, image=IMAGE, seed=SEED, threads=1, ahead=2, pin=False, augment=config)
    batches = exhausted(loader)
    assert len(batches) == 5
    for batch in batches:
        plan = batch.plan
        expected = mix.drawn(config, seed=SEED, epoch=plan.epoch, positions=plan.positions, resolution=plan.resolution)
        assert batch.mix is not None and expected is not None
        assert np.array_equal(batch.mix.shifts, expected.shifts) and np.array_equal(batch.mix.erased, expected.erased)
        assert (batch.mix.weight, batch.mix.box) == (expected.weight, expected.box)


def test_an_evaluation_brings_no_draws(twelve: Index):
    plans = evaluation_plans(12, batch=5, rank=0, world=1)
    config = AugmentConfig(translate=3)
    loader = Loader(twelve, plans, image=IMAGE, seed=None, threads=1, ahead=1, pin=False, augment=config)
    assert [batch.mix for batch in exhausted(loader)] == [None] * 3


def test_who_asks_whether_a_batch_is_ready_gets_the_same_batches(samples: Index):
    expected, loader = content(exhausted(training(samples))), training(samples)
    found = []
    while True:
        while not loader.ready(0.001):
            pass
        assert loader.ready(0)
        batch = next(loader, None)
        if batch is None:
            break
        found.append(batch)
    assert loader.ready(0) and content(found) == expected
    assert loader.read_seconds > 0 and loader.decode_seconds > 0
    loader.close()


def test_a_batch_is_ready_only_when_pillow_is_done_too(twelve: Index, monkeypatch: pytest.MonkeyPatch):
    spoil(twelve, 5, "text")
    original, let_go = Index.read, threading.Event()

    def held(self: Index, sample: int) -> bytes:
        assert let_go.wait(60)
        return original(self, sample)

    monkeypatch.setattr(Index, "read", held)
    loader = of_these(twelve, [5, 7])
    assert not loader.ready(0.05) and not loader.ready(0)
    let_go.set()
    assert loader.ready(60)
    assert next(loader).labels.tolist() == [106, 107]
    assert loader.ready(0)
    loader.close()


def test_a_batch_is_ready_only_when_native_threads_are_done(
    twelve: Index, monkeypatch: pytest.MonkeyPatch, decoder: str
):
    if decoder == "pillow":
        pytest.skip("there are none")
    original, asked = native.Engine.poll, []

    def poll(self: native.Engine, ticket: native.Ticket, *, seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) > 2 and original(self, ticket, seconds=seconds)

    monkeypatch.setattr(native.Engine, "poll", poll)
    loader = of_these(twelve, [5, 7])
    assert [loader.ready(seconds) for seconds in (0.25, 0, 60, 0)] == [False, False, True, True]
    assert asked == [0.25, 0, 60]
    assert next(loader).labels.tolist() == [105, 107]
    loader.close()


def test_what_made_a_batch_fail_is_said_when_it_is_taken(twelve: Index):
    for sample in range(12):
        spoil(twelve, sample, "text")
    loader = of_these(twelve, [3])
    assert loader.ready(60)
    with pytest.raises(Problem, match="in a row can't be read"):
        next(loader)
    loader.close()
