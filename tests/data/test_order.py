import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from stoker.data import index, order
from stoker.data.index import Index
from stoker.data.order import Pace, Plan, evaluation_plans, permuted, training_plans

COUNT = 10_007


def whole(count: int, *, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return permuted(np.arange(count), count=count, seed=seed, epoch=epoch)


def plain(plan: Plan) -> tuple[object, ...]:
    return plan.epoch, plan.positions.tolist(), plan.samples.tolist(), plan.share


def plans(pace: Pace, *, epoch: int = 0, position: int = 0, epochs: int = 2, rank: int = 0, world: int = 1) -> list:
    found = training_plans(pace, seed=5, epoch=epoch, position=position, epochs=epochs, rank=rank, world=world)
    return [plain(plan) for plan in found]


def test_an_epoch_holds_every_sample_once_whatever_their_number():
    counts = [*range(1, 201), 100_003]
    assert [count for count in counts if not np.array_equal(np.sort(whole(count)), np.arange(count))] == []


def test_a_part_of_an_order_is_the_same_as_that_part_of_the_whole():
    positions = np.array([9_000, 3, 4_096, 3])
    assert np.array_equal(permuted(positions, count=COUNT, seed=1, epoch=2), whole(COUNT, seed=1, epoch=2)[positions])


@pytest.mark.parametrize("other", [{"seed": 1}, {"epoch": 1}, {"seed": 2**32}])
def test_another_seed_or_epoch_has_another_order(other: dict[str, int]):
    # Two random orders have one sample in the same place on average.
    assert (whole(COUNT) == whole(COUNT, **other)).sum() < 10


@pytest.mark.parametrize("epoch", range(5))
def test_samples_stray_as_far_from_their_places_as_chance_takes_them(epoch: int):
    # A third of the length on average, give or take a two-hundredth.
    strayed = np.abs(whole(COUNT, epoch=epoch) - np.arange(COUNT)).mean()
    assert 0.31 * COUNT < strayed < 0.36 * COUNT


@pytest.mark.parametrize("epoch", range(5))
def test_each_tenth_of_an_epoch_draws_evenly_from_each_tenth_of_the_data(epoch: int):
    tenths = np.arange(COUNT) * 10 // COUNT
    table = np.zeros((10, 10))
    np.add.at(table, (tenths, tenths[whole(COUNT, epoch=epoch)]), 1)
    # Chi-square with 81 degrees of freedom: 81 on average, beyond 150 less than once in 100,000 times.
    assert (np.square(table - COUNT / 100) / (COUNT / 100)).sum() < 150


@pytest.mark.parametrize("epoch", range(5))
def test_neighbours_in_the_data_are_seldom_neighbours_in_an_epoch(epoch: int):
    # Two pairs on average.
    assert (np.abs(np.diff(whole(COUNT, epoch=epoch))) == 1).sum() < 15


def test_every_sample_is_as_often_the_first_of_an_epoch_as_the_others():
    firsts = [permuted(np.zeros(1, np.int64), count=10, seed=0, epoch=epoch)[0] for epoch in range(2000)]
    times = np.bincount(firsts, minlength=10)
    assert times.min() > 140 and times.max() < 260


@pytest.mark.parametrize(("last_step", "steps"), [("keep", 14_090), ("drop", 14_089)])
def test_steps_of_an_epoch_with_a_partial_last_one(last_step: str, steps: int):
    assert Pace(count=1_803_460, batch=128, atoms=1, last_step=last_step).steps == steps


def test_a_kept_last_step_holds_what_is_left():
    pace = Pace(count=1_803_460, batch=128, atoms=1, last_step="keep")
    assert [pace.samples(0), pace.samples(14_089 * 128)] == [128, 1_803_460 - 14_089 * 128]


@pytest.mark.parametrize(("count", "steps"), [(32, 2), (33, 2), (35, 2), (36, 3), (47, 3), (48, 3)])
def test_a_kept_last_step_too_small_for_its_atoms_is_dropped(count: int, steps: int):
    assert Pace(count=count, batch=16, atoms=2, last_step="keep").steps == steps


@pytest.mark.parametrize(("size", "parts"), [(16, 1), (16, 4), (17, 4), (7, 3), (3, 3)])
def test_a_cut_covers_exactly_and_as_evenly_as_can_be(size: int, parts: int):
    cut = order.cut(100, size, parts)
    sizes = [stop - start for start, stop in cut]
    assert [p for start, stop in cut for p in range(start, stop)] == list(range(100, 100 + size))
    assert len(cut) == parts and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("atoms", [1, 2, 3])
def test_a_kept_epoch_trains_on_every_sample_exactly_once(atoms: int):
    found = plans(Pace(count=102, batch=16, atoms=atoms, last_step="keep"), epochs=1)
    assert sorted(s for _, _, samples, _ in found for s in samples) == list(range(102))


def test_the_shares_of_a_step_add_up_to_1():
    shares = [share for *_, share in plans(Pace(count=101, batch=16, atoms=2, last_step="keep"), epochs=1)]
    assert [a + b for a, b in zip(shares[::2], shares[1::2], strict=True)] == [1.0] * 7


def test_plans_follow_the_order_of_their_epoch_across_blocks():
    pace = Pace(count=COUNT, batch=1000, atoms=3, last_step="drop")
    for epoch in (0, 1):
        samples = [s for e, _, samples, _ in plans(pace) for s in samples if e == epoch]
        assert samples == whole(COUNT, seed=5, epoch=epoch)[:10_000].tolist()


def test_a_block_may_be_left_and_come_back_to():
    drawn = order.Drawn(count=COUNT, seed=0, epoch=0)
    places = [(9_000, 9_100), (0, 100), (4_000, 4_200), (100, 6_000)]
    assert all(np.array_equal(drawn.at(*place), whole(COUNT)[slice(*place)]) for place in places)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_many_processes_together_have_the_same_atoms_as_one(world: int):
    pace = Pace(count=5000, batch=48, atoms=4, last_step="keep")
    alone = plans(pace)
    shared = [plans(pace, rank=rank, world=world) for rank in range(world)]
    assert sorted(itertools.chain(*shared)) == sorted(alone)


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (0, 6), (1, 0), (1, 3), (2, 6)])
def test_going_on_from_a_position_gives_the_rest_of_the_same_plans(epoch: int, step: int):
    pace = Pace(count=103, batch=16, atoms=2, last_step="keep")
    all_of_them = plans(pace, epochs=3)
    rest = plans(pace, epochs=3, epoch=epoch, position=step * 16)
    assert rest == all_of_them[(epoch * pace.steps + step) * 2 :]
    assert rest


def test_nothing_is_left_after_the_last_epoch():
    assert plans(Pace(count=103, batch=16, atoms=2, last_step="keep"), epoch=3, epochs=3) == []


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 16, 50])
def test_an_evaluation_has_each_sample_once_for_any_number_of_processes(world: int, count: int):
    ranks = [evaluation_plans(count, batch=16, rank=rank, world=world) for rank in range(world)]
    samples = [s for plan in itertools.chain(*ranks) for s in plan.samples.tolist()]
    assert sorted(samples) == list(range(count))


MILLION, FILES = 1_000_000, 2_000


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """A million samples of four bytes, each its own number, 500 in a file."""
    root = tmp_path_factory.mktemp("million")
    numbers = np.arange(MILLION, dtype="<u4").reshape(FILES, -1)
    names = [f"{file:04d}.bin" for file in range(FILES)]
    for name, row in zip(names, numbers):
        Path(root, name).write_bytes(row.tobytes())
    place = np.arange(MILLION)
    columns = {
        "file": place // 500,
        "offset": place % 500 * 4,
        "length": np.full(MILLION, 4),
        "label": np.zeros(MILLION),
    }
    return index.made(root, names, columns)


def from_the_middle(count: int) -> Plan:
    pace = Pace(count=count, batch=256, atoms=1, last_step="drop")
    return next(training_plans(pace, seed=0, epoch=3, position=2000 * 256, epochs=4, rank=0, world=1))


def test_a_step_in_the_middle_of_a_million_samples_works_out_only_its_own_block(million: Index):
    plan = from_the_middle(len(million))
    base = plan.samples if plan.samples.base is None else plan.samples.base
    assert plan.positions.tolist() == list(range(2000 * 256, 2001 * 256))
    assert len(base) <= order.BLOCK


def test_a_step_in_the_middle_of_a_million_samples_reads_the_samples_it_names(million: Index):
    samples = from_the_middle(len(million)).samples[:32]
    assert [int.from_bytes(million.read(int(s)), "little") for s in samples] == samples.tolist()


def test_the_order_of_a_million_samples_is_never_held_in_memory():
    from_the_middle(MILLION)
    tracemalloc.start()
    try:
        from_the_middle(MILLION)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Even one byte a sample would be a million.
    assert peak < 800_000
