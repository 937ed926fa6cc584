import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from stoker.config import Stage
from stoker.data import index, order
from stoker.data.index import Index
from stoker.data.order import Pace, Plan, Route, evaluation_plans, permuted, training_plans

COUNT = 10_007


def whole(count: int, *, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return permuted(np.arange(count), count=count, seed=seed, epoch=epoch)


def plain(plan: Plan) -> tuple[object, ...]:
    return plan.epoch, plan.positions.tolist(), plan.samples.tolist(), plan.share


def plans(pace: Pace, *, epoch: int = 0, position: int = 0, epochs: int = 2, rank: int = 0, world: int = 1) -> list:
    route = pace.route(epochs=epochs, resolution=32)
    found = training_plans(route, seed=5, epoch=epoch, position=position, rank=rank, world=world)
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
    route = pace.route(epochs=4, resolution=32)
    return next(training_plans(route, seed=0, epoch=3, position=2000 * 256, rank=0, world=1))


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


WINDOW = 1024
PER_WINDOW = WINDOW // order.STRETCH


def windowed(count: int, *, seed: int = 5, epoch: int = 0, window: int = WINDOW) -> np.ndarray:
    return order.Windowed(count=count, seed=seed, epoch=epoch, window=window).at(0, count)


def windowed_plans(
    pace: Pace, *, epoch: int = 0, position: int = 0, epochs: int = 1, rank: int = 0, world: int = 1
) -> list[Plan]:
    place = {"epoch": epoch, "position": position, "rank": rank, "world": world}
    return list(training_plans(pace.route(epochs=epochs, resolution=32), seed=5, window=WINDOW, **place))


@pytest.mark.parametrize("count", [1025, 1279, 1280, 1281, 2048, 5000, COUNT])
@pytest.mark.parametrize("window", [1024, 1500])
def test_a_windowed_epoch_holds_every_sample_once(count: int, window: int):
    assert np.array_equal(np.sort(windowed(count, window=window)), np.arange(count))


@pytest.mark.parametrize("count", [COUNT, 8 * WINDOW])
def test_a_window_takes_whole_stretches(count: int):
    drawn = order.Windowed(count=count, seed=5, epoch=0, window=WINDOW)
    begin = 0
    for end in drawn.window_ends.tolist():
        stretches, sizes = np.unique(drawn.at(begin, end) // order.STRETCH, return_counts=True)
        whole_ones = np.minimum(count - stretches * order.STRETCH, order.STRETCH)
        assert sizes.tolist() == whole_ones.tolist()
        assert len(stretches) == PER_WINDOW or end == count
        begin = end
    assert begin == count


def test_the_stretches_of_a_window_come_from_anywhere_and_its_samples_are_mixed():
    found = windowed(COUNT)
    firsts = found[:WINDOW] // order.STRETCH
    assert np.ptp(np.unique(firsts)) > PER_WINDOW
    # Neighbours of a mixed window are of the same stretch one time in four.
    assert (np.diff(firsts) == 0).mean() < 0.35
    assert (np.abs(np.diff(found)) == 1).sum() < COUNT / 50


@pytest.mark.parametrize("other", [{"seed": 6}, {"epoch": 1}])
def test_another_seed_or_epoch_has_other_windows(other: dict[str, int]):
    first, second = windowed(COUNT), windowed(COUNT, **other)
    assert (first == second).sum() < 20
    assert set(first[:WINDOW] // order.STRETCH) != set(second[:WINDOW] // order.STRETCH)


def test_a_windowed_order_may_be_asked_for_in_any_pieces():
    drawn, expected = order.Windowed(count=COUNT, seed=5, epoch=0, window=WINDOW), windowed(COUNT)
    for place in [(9_000, 9_100), (0, 100), (1_000, 1_050), (1_023, 1_025), (500, 6_000), (COUNT - 1, COUNT)]:
        assert np.array_equal(drawn.at(*place), expected[slice(*place)])


def test_plans_follow_the_windowed_order_of_their_epoch():
    pace = Pace(count=COUNT, batch=1000, atoms=3, last_step="keep")
    for epoch in (0, 1):
        samples = [s for plan in windowed_plans(pace, epochs=2) for s in plan.samples.tolist() if plan.epoch == epoch]
        assert samples == windowed(COUNT, epoch=epoch).tolist()


def test_a_window_as_large_as_the_data_shuffles_all():
    pace = Pace(count=WINDOW, batch=100, atoms=1, last_step="keep")
    assert [plain(plan) for plan in windowed_plans(pace)] == plans(pace, epochs=1)


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (0, 77), (1, 0), (1, 40)])
def test_going_on_from_a_position_gives_the_rest_of_a_windowed_order(epoch: int, step: int):
    pace = Pace(count=COUNT, batch=128, atoms=2, last_step="keep")
    rest = windowed_plans(pace, epochs=2, epoch=epoch, position=step * 128)
    expected = windowed_plans(pace, epochs=2)[(epoch * pace.steps + step) * 2 :]
    assert [plain(plan) for plan in rest] == [plain(plan) for plan in expected]
    assert rest


@pytest.mark.parametrize("world", [1, 2, 3])
def test_processes_have_atoms_of_their_own_that_make_up_a_windowed_epoch(world: int):
    pace = Pace(count=COUNT, batch=600, atoms=6, last_step="keep")
    shared = [windowed_plans(pace, rank=rank, world=world) for rank in range(world)]
    samples = [s for plans_of_one in shared for plan in plans_of_one for s in plan.samples.tolist()]
    assert sorted(samples) == list(range(COUNT))
    alone = sorted(plain(plan) for plan in windowed_plans(pace))
    assert sorted(plain(plan) for plans_of_one in shared for plan in plans_of_one) == alone


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize(("batch", "atoms"), [(128, 1), (600, 6), (3000, 1), (9000, 3)])
@pytest.mark.parametrize("position", [0, 3000])
def test_a_stretch_is_announced_once_and_before_its_samples(world: int, batch: int, atoms: int, position: int):
    pace = Pace(count=COUNT, batch=batch, atoms=atoms, last_step="keep")
    for rank in range(world):
        announced: list[tuple[int, int]] = []
        for plan in windowed_plans(pace, position=position - position % batch, rank=rank, world=world):
            announced += plan.coming
            known = {first // order.STRETCH for first, _ in announced}
            assert set((plan.samples // order.STRETCH).tolist()) <= known
        assert len(announced) == len(set(announced))
        firsts = [first for first, _ in announced]
        assert [last for _, last in announced] == [min(first + order.STRETCH, COUNT) - 1 for first in firsts]
        assert all(first % order.STRETCH == 0 for first in firsts)


def test_every_stretch_is_announced_in_each_epoch_a_window_ahead():
    pace = Pace(count=COUNT, batch=100, atoms=1, last_step="keep")
    found = windowed_plans(pace, epochs=2)
    for epoch in (0, 1):
        coming = [plan.coming for plan in found if plan.epoch == epoch]
        assert sorted(first for some in coming for first, _ in some) == list(range(0, COUNT, order.STRETCH))
        assert len(coming[0]) == 2 * PER_WINDOW


def test_an_order_without_windows_announces_nothing():
    pace = Pace(count=COUNT, batch=100, atoms=1, last_step="keep")
    route = pace.route(epochs=1, resolution=32)
    found = training_plans(route, seed=5, epoch=0, position=0, rank=0, world=1)
    assert {plan.coming for plan in found} == {()}


def staged(*, atoms: int = 2) -> Route:
    """103 samples: 6 steps of 16 for two epochs, then 4 of 24 for two, then 6 of 16 for one."""
    stages = ((24, 16, 2), (32, 24, 2), (40, 16, 1))
    return Route(
        count=103,
        stages=tuple(Stage(resolution=r, batch=b, epochs=e) for r, b, e in stages),
        atoms=atoms,
        last_step="drop",
    )


def test_stages_follow_each_other_with_their_own_batch_and_resolution():
    found = list(training_plans(staged(), seed=5, epoch=0, position=0, rank=0, world=1))
    by_epoch = [[plan for plan in found if plan.epoch == epoch] for epoch in range(5)]
    assert [{plan.resolution for plan in plans} for plans in by_epoch] == [{24}, {24}, {32}, {32}, {40}]
    assert [len(plans) // 2 for plans in by_epoch] == [6, 6, 4, 4, 6]
    assert [{len(plan.samples) for plan in plans} for plans in by_epoch] == [{8}, {8}, {12}, {12}, {8}]
    for plans in by_epoch:
        samples = [s for plan in plans for s in plan.samples.tolist()]
        assert len(samples) == len(set(samples)) == 96


def test_a_run_goes_on_in_any_stage_as_if_nothing_had_happened():
    route = staged()
    all_of_them = [plain(plan) for plan in training_plans(route, seed=5, epoch=0, position=0, rank=0, world=1)]
    for epoch, position in ((0, 32), (1, 80), (2, 0), (2, 72), (4, 0), (4, 16), (5, 0)):
        rest = [plain(p) for p in training_plans(route, seed=5, epoch=epoch, position=position, rank=0, world=1)]
        assert rest == all_of_them[2 * route.step(epoch, position) :]


def test_steps_are_counted_over_stages_and_ticks_go_by_equally_in_every_epoch():
    route = staged()
    assert [route.step(epoch, 0) for epoch in range(6)] == [0, 6, 12, 16, 20, 26]
    assert (route.steps, route.epochs, route.step(2, 48), route.atom(2)) == (26, 5, 14, 12)
    assert [route.tick(epoch, 0) for epoch in range(6)] == [0, 6, 12, 18, 24, 30]
    assert route.tick(2, 48) == 12 + 2 * 6 / 4
