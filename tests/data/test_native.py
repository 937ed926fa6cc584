import ctypes
import gc
import hashlib
import io
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from stoker.config import ImageConfig
from stoker.data import augment, decode, index, native
from stoker.data.index import GREY, JPEG, OTHER, PLANES, RGB, Index
from stoker.data.order import Plan
from tests.data import jpegs

pytestmark = pytest.mark.skipif(native.library() is None, reason=native.MISSING)

NEVER = 1e9
SIZES = [(1, 1), (2, 3), (8, 8), (17, 9), (64, 3), (3, 64), (50, 37), (130, 97), (200, 301)]
SORTS = list(jpegs.every_sort(8, 8))
WHOLE = {"crop_scale": (1.0, 1.0), "eval_crop": 1.0}


@pytest.fixture(scope="module")
def pictures() -> dict[tuple[int, int], dict[str, bytes]]:
    return {size: jpegs.every_sort(*size, seed=size[0]) for size in SIZES}


def native_box(size: tuple[int, int], look: native.Look, *, seed: int, epoch: int, position: int) -> list[float]:
    lib = native.library()
    assert lib is not None
    found = (ctypes.c_double * 5)()
    place = (ctypes.c_uint64(seed), ctypes.c_uint32(epoch), ctypes.c_int64(position))
    lib.stoker_box(*size, *place, ctypes.byref(look), found)
    return list(found)


def drawn_at(position: int, *, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return augment.draws(seed, epoch=epoch, positions=np.array([position]))[0]


def by_pillow(raw: bytes | Image.Image, config: ImageConfig, *, position: int | None) -> np.ndarray:
    """The random part of a position, or without one the middle."""
    if position is None:
        return decode.evaluation_pixels(raw, config=config)
    return decode.training_pixels(raw, drawn=drawn_at(position), config=config)


def by_both(raw: bytes, config: ImageConfig, *, position: int | None, halved_from: float = NEVER) -> np.ndarray | None:
    """The native pixels, which must be the same bits by either entropy decoder."""
    look = native.look(config, is_random=position is not None, halved_from=halved_from)
    own, plain = (
        native.decoded(raw, look=look, position=position or 0, own_huffman=own_huffman) for own_huffman in (True, False)
    )
    assert (own is None) == (plain is None) and np.array_equal(own, plain)
    return own


def off(found: np.ndarray | None, expected: np.ndarray) -> int:
    """The largest difference, in steps of 1/255."""
    assert found is not None
    return int(np.abs(found.astype(int) - expected).max())


SETTINGS = [
    ImageConfig(resolution=224),
    ImageConfig(resolution=31, crop_scale=(0.001, 0.01), flip=0.1),
    ImageConfig(resolution=9, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=1.0, eval_crop=1.0),
    ImageConfig(resolution=128, eval_resolution=160, crop_scale=(0.9, 1.0), crop_ratio=(3.0, 4.0), eval_crop=0.3),
]
# The last ones are so narrow that most tries at a box fail.
SHAPES = [(500, 375), (375, 500), (1, 1), (2, 1), (7, 11), (4000, 3000), (1, 5000), (5000, 1), (65500, 3), (60, 65500)]


@pytest.mark.parametrize("config", SETTINGS, ids=range(len(SETTINGS)))
def test_boxes_and_flips_are_those_of_python_to_the_last_bit(config: ImageConfig):
    numbers = np.random.default_rng(0)
    shapes = SHAPES + [tuple(numbers.integers(1, 3000, 2).tolist()) for _ in range(60)]
    look = native.look(config, is_random=True)
    flips = 0
    for shape in shapes:
        seed, epoch = int(numbers.integers(0, 2**63)), int(numbers.integers(0, 2**31))
        positions = np.append(numbers.integers(0, 2**40, 14), [0, 2**32 - 1, 2**32, 2**50])
        for position, row in zip(positions.tolist(), augment.draws(seed, epoch=epoch, positions=positions).tolist()):
            box = augment.random_crop(*shape, drawn=row, scale=config.crop_scale, ratio=config.crop_ratio)
            is_flipped = augment.is_flipped(row, config.flip)
            expected = [box.left, box.top, box.width, box.height, is_flipped]
            assert native_box(shape, look, seed=seed, epoch=epoch, position=position) == expected
            flips += is_flipped
    assert 0 < flips < len(shapes) * 18 or config.flip == 1


@pytest.mark.parametrize("config", SETTINGS, ids=range(len(SETTINGS)))
def test_the_middle_is_that_of_python_to_the_last_bit(config: ImageConfig):
    numbers = np.random.default_rng(1)
    side = config.eval_resolution or config.resolution
    look = native.look(config, is_random=False)
    for shape in SHAPES + [tuple(numbers.integers(1, 3000, 2).tolist()) for _ in range(1000)]:
        box = augment.centre_box(*shape, resolution=side, crop=config.eval_crop)
        expected = [box.left, box.top, box.width, box.height, 0]
        assert native_box(shape, look, seed=1, epoch=2, position=3) == expected


@pytest.mark.parametrize("sort", SORTS)
def test_pixels_are_pillows_give_or_take_one(pictures: dict[tuple[int, int], dict[str, bytes]], sort: str):
    for size, kinds in pictures.items():
        for side, options in ((8, {}), (32, WHOLE), (61, {})):
            config = ImageConfig(resolution=side, **options)
            for position in (None, 0, 1, 2, 3):
                found = by_both(kinds[sort], config, position=position)
                assert off(found, by_pillow(kinds[sort], config, position=position)) <= 1, (size, side, position)


def test_boxes_at_every_edge_and_in_every_corner_have_pillows_pixels():
    raw, config = jpegs.encoded(jpegs.photo(70, 50), quality=90), ImageConfig(resolution=16, crop_scale=(0.05, 0.9))
    look, touched = native.look(config, is_random=True), set()
    for position in range(400):
        left, top, width, height, flip = native_box((70, 50), look, seed=0, epoch=0, position=position)
        edges = (left == 0, top == 0, left + width == 70, top + height == 50, bool(flip))
        if edges in touched:
            continue
        touched.add(edges)
        found = by_both(raw, config, position=position)
        assert off(found, by_pillow(raw, config, position=position)) <= 1
    assert len(touched) > 15 and all(any(edges[k] for edges in touched) for k in range(5))


def test_every_quality_has_pillows_pixels():
    picture, config = jpegs.photo(45, 38), ImageConfig(resolution=24)
    for quality in range(1, 101):
        raw = jpegs.encoded(picture, quality=quality, subsampling=quality % 3, optimize=quality % 2 == 0)
        assert off(by_both(raw, config, position=quality), by_pillow(raw, config, position=quality)) <= 1


@pytest.mark.parametrize(("size", "side"), [((9, 7), 224), ((900, 700), 8), ((1600, 40), 8), ((40, 1600), 16)])
def test_much_larger_and_much_smaller_has_pillows_pixels(size: tuple[int, int], side: int):
    raw, config = jpegs.encoded(jpegs.photo(*size)), ImageConfig(resolution=side)
    for position in (None, 0, 1):
        assert off(by_both(raw, config, position=position), by_pillow(raw, config, position=position)) <= 1


def test_the_rotation_of_a_camera_is_not_applied():
    picture, config = jpegs.photo(60, 40), ImageConfig(resolution=32)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned, plain = jpegs.encoded(picture, exif=exif), jpegs.encoded(picture)
    assert turned != plain and np.array_equal(*(by_both(raw, config, position=None) for raw in (turned, plain)))


@pytest.mark.parametrize(("size", "side"), [((500, 375), 224), ((500, 375), 128), ((375, 500), 64), ((800, 600), 96)])
def test_halving_in_the_transform_stays_within_half_a_step_of_pillow(size: tuple[int, int], side: int):
    config, means, halved = ImageConfig(resolution=side, crop_scale=(0.3, 1.0)), [], 0
    for seed in range(3):
        raw = jpegs.encoded(jpegs.photo(*size, seed=seed), quality=90)
        for position in (None, *range(6)):
            found = by_both(raw, config, position=position, halved_from=native.HALVED_FROM)
            assert found is not None
            halved += not np.array_equal(found, by_both(raw, config, position=position))
            means.append(np.abs(found.astype(float) - by_pillow(raw, config, position=position)).mean())
    assert np.mean(means) < 0.5
    assert halved or side * native.HALVED_FROM > min(size) * 0.8


HALVED = [sort for sort in SORTS if sort not in ("CMYK", "YCCK", "progressive CMYK", "4:1:1", "4:1:0")]


@pytest.fixture(scope="module")
def large() -> dict[str, bytes]:
    return jpegs.every_sort(337, 290)


@pytest.mark.parametrize("sort", HALVED)
@pytest.mark.parametrize("times", [2, 4, 8])
def test_a_halved_middle_is_that_of_pillow_halving_the_whole(large: dict[str, bytes], sort: str, times: int):
    width, height = 337, 290
    raw, config = large[sort], ImageConfig(resolution=32, eval_crop=0.8)
    box = augment.centre_box(width, height, resolution=32, crop=0.8)
    # Just so far that it is halved as often as wanted.
    found = by_both(raw, config, position=None, halved_from=min(box.width, box.height) / 32 / times * 2 - 1e-6)
    whole = Image.open(io.BytesIO(raw))
    whole.draft("L" if whole.mode == "L" else "RGB", (width // times, height // times))
    assert whole.size == (-(-width // times), -(-height // times))
    edges = tuple(edge / times for edge in (box.left, box.top, box.left + box.width, box.top + box.height))
    expected = whole.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR, box=edges)
    assert off(found, np.asarray(expected)) <= 1


@pytest.mark.parametrize(
    "sampling", [[(4, 1), (1, 1), (1, 1)], [(4, 2), (1, 1), (1, 1)], [(2, 4), (1, 1), (1, 1)], [(1, 4)]]
)
def test_samplings_that_libjpeg_can_not_halve_and_crop_are_not_halved(sampling: list[tuple[int, int]]):
    raw, config = jpegs.by_hand(337, 290, sampling), ImageConfig(resolution=32)
    for position in (None, 0, 1, 2):
        found = by_both(raw, config, position=position, halved_from=1)
        assert off(found, by_pillow(raw, config, position=position)) <= 1


@pytest.mark.parametrize(
    "sort", ["4:2:0", "4:4:4", "4:1:0", "grey", "restarts by row", "restarts now and then", "CMYK"]
)
@pytest.mark.parametrize("own_huffman", [True, False])
def test_a_cut_picture_is_refused_unless_the_cut_lies_behind_the_box(sort: str, own_huffman: bool):
    raw = jpegs.every_sort(60, 45)[sort]
    config, refused, fine = ImageConfig(resolution=16), 0, 0
    for position in (None, 0, 1, 2):
        look = native.look(config, is_random=position is not None)
        whole = native.decoded(raw, look=look, position=position or 0, own_huffman=own_huffman)
        for length in range(len(raw)):
            found = native.decoded(raw[:length], look=look, position=position or 0, own_huffman=own_huffman)
            assert found is None or np.array_equal(found, whole), length
            refused, fine = refused + (found is None), fine + (found is not None)
    assert refused > len(raw)
    # libjpeg reads ahead, and of a small picture it finds the end before it has what it needs.
    assert fine > 4 or not own_huffman


@pytest.mark.parametrize("sort", ["progressive", "progressive grey", "progressive CMYK"])
def test_a_cut_progressive_picture_is_refused(sort: str):
    raw = jpegs.every_sort(60, 45)[sort]
    look = native.look(ImageConfig(resolution=16), is_random=False)
    fine = [length for length in range(len(raw)) if native.decoded(raw[:length], look=look) is not None]
    assert fine == []


def patched_parts(frame: bytes) -> bytes:
    """The frame header of one part as that of three."""
    return frame[:2] + b"\x00\x11" + frame[4:9] + b"\x03" + b"".join(bytes([k, 0x11, 0]) for k in (1, 2, 3))


def test_a_picture_of_a_great_many_scans_is_refused():
    # Scans of one part each, of which there may be any number.
    raw = jpegs.by_hand(16, 16, [(1, 1)])
    frame, scan = jpegs.frame_at(raw), raw.index(b"\xff\xda")
    parts = patched_parts(raw[frame : frame + 13])
    head = raw[:frame] + parts + raw[frame + 13 : scan]
    look = native.look(ImageConfig(resolution=16), is_random=False)
    for times, is_fine in ((3, True), (400, True), (1000, False)):
        scans = b"".join(jpegs.patched(raw[scan:-2], 5, 1 + k % 3) for k in range(times))
        assert (native.decoded(head + scans + raw[-2:], look=look) is not None) == is_fine, times


def test_a_picture_larger_than_pillow_takes_is_refused():
    raw = jpegs.encoded(jpegs.photo(16, 16))
    at = jpegs.frame_at(raw) + 5
    look = native.look(ImageConfig(resolution=16), is_random=False)
    assert native.decoded(raw[:at] + b"\xff\xdc\xff\xdc" + raw[at + 4 :], look=look) is None


@pytest.mark.parametrize(
    "raw", [b"", b"\xff", b"\xff\xd8", b"\xff\xd8\xff\xd9", b"no picture at all", b"\xff\xd8" * 99]
)
def test_what_is_no_jpeg_is_refused(raw: bytes):
    assert native.decoded(raw, look=native.look(ImageConfig(resolution=8), is_random=False)) is None


CONFIG = ImageConfig(resolution=20)
LOOK = native.look(CONFIG, is_random=True)
EACH = (20, 20, 3)


@pytest.fixture(scope="module")
def samples() -> list[bytes]:
    """Pictures of all sorts."""
    return [raw for size in ((90, 70), (33, 47)) for raw in jpegs.every_sort(*size).values()]


def in_files(root: Path, samples: list[bytes]) -> Index:
    for number, raw in enumerate(samples):
        (root / f"picture {number}.jpg").write_bytes(raw)
    names = [f"picture {number}.jpg" for number in range(len(samples))]
    return index.of_files(root, names, sizes=[len(raw) for raw in samples], labels=[0] * len(samples))


def in_containers(root: Path, samples: list[bytes], **columns: Any) -> Index:
    """Two files that hold the samples by turns, with something between them."""
    held = [bytearray(b"head"), bytearray()]
    offsets = []
    for number, raw in enumerate(samples):
        offsets.append(len(held[number % 2]))
        held[number % 2] += raw + b"\xff\xd8between"
    for number, content in enumerate(held):
        (root / f"{number}.bin").write_bytes(content)
    lengths = [len(raw) for raw in samples]
    made = {"file": np.arange(len(samples)) % 2, "offset": np.array(offsets), "length": np.array(lengths)}
    return index.made(root, ["0.bin", "1.bin"], {**made, "label": np.zeros(len(samples)), **columns})


def planned(samples: np.ndarray, *, first: int = 0, epoch: int = 0) -> Plan:
    return Plan(epoch=epoch, positions=np.arange(first, first + len(samples)), samples=samples)


def one_by_one(samples: list[bytes], plan: Plan) -> np.ndarray:
    pairs = zip(plan.samples.tolist(), plan.positions.tolist(), strict=True)
    found = [native.decoded(samples[k], look=LOOK, seed=7, epoch=plan.epoch, position=p) for k, p in pairs]
    assert all(pixels is not None for pixels in found)
    return np.stack([pixels for pixels in found if pixels is not None])


def batch(engine: native.Engine, plan: Plan, *, look: native.Look = LOOK) -> tuple[np.ndarray, np.ndarray]:
    """A batch's pixels and status."""
    pixels = np.empty((len(plan.samples), *EACH), np.uint8)
    ticket = engine.submit(plan, pixels, seed=7, look=look)
    spent = engine.wait(ticket)
    assert spent.read_seconds >= 0 and spent.decode_seconds >= 0
    return pixels, ticket.status


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("stored", [in_files, in_containers])
def test_a_batch_holds_the_pixels_of_its_samples_for_any_number_of_threads(
    tmp_path: Path, samples: list[bytes], stored: Callable[[Path, list[bytes]], Index], threads: int
):
    engine = native.Engine(stored(tmp_path, samples), threads=threads)
    plan = planned(np.random.default_rng(0).integers(0, len(samples), 100), first=2**33, epoch=3)
    pixels, status = batch(engine, plan)
    engine.close()
    assert not status.any() and np.array_equal(pixels, one_by_one(samples, plan))


def test_many_batches_in_flight_come_back_whole_in_any_order(tmp_path: Path, samples: list[bytes]):
    engine = native.Engine(in_containers(tmp_path, samples), threads=3)
    numbers = np.random.default_rng(1)
    plans = [planned(numbers.integers(0, len(samples), k % 9), first=100 * k) for k in range(40)]
    pixels = [np.empty((len(plan.samples), *EACH), np.uint8) for plan in plans]
    tickets = [engine.submit(plan, into, seed=7, look=LOOK) for plan, into in zip(plans, pixels, strict=True)]
    for k in numbers.permutation(40).tolist():
        engine.wait(tickets[k])
        assert not tickets[k].status.any()
        assert len(pixels[k]) == 0 or np.array_equal(pixels[k], one_by_one(samples, plans[k]))
    engine.close()


def test_a_batch_can_be_asked_for_without_being_taken(tmp_path: Path, samples: list[bytes]):
    stored = in_files(tmp_path, samples)
    path = stored.path(1)
    # Who opens a pipe waits until somebody writes to it.
    path.rename(tmp_path / "aside")
    os.mkfifo(path)
    engine, pixels = native.Engine(stored, threads=1), np.empty((2, *EACH), np.uint8)
    ticket = engine.submit(planned(np.array([0, 1])), pixels, seed=7, look=LOOK)
    early = [engine.poll(ticket, seconds=seconds) for seconds in (0, 0.05, -1)]
    pipe = os.open(path, os.O_RDWR)
    assert early == [False] * 3 and engine.poll(ticket, seconds=60) and engine.poll(ticket, seconds=0)
    engine.wait(ticket)
    os.close(pipe)
    assert ticket.status[0] == 0 and ticket.status[1] != 0
    assert np.array_equal(pixels[:1], one_by_one(samples, planned(np.array([0]))))
    with pytest.raises(KeyError):
        engine.poll(ticket, seconds=0)
    engine.close()
    with pytest.raises(AssertionError):
        engine.poll(ticket, seconds=0)


@pytest.mark.parametrize("codec", [GREY, RGB, PLANES])
@pytest.mark.parametrize("is_random", [True, False])
def test_bare_pixels_are_cropped_and_resized_as_pillow_does(tmp_path: Path, codec: int, is_random: bool):
    shapes = [(28, 28), (1, 1), (32, 32), (90, 41), (5, 70)]
    values = [np.asarray(jpegs.photo(*shape, mode="L" if codec == GREY else "RGB")) for shape in shapes]
    raws = [(value.transpose(2, 0, 1) if codec == PLANES else value).tobytes() for value in values]
    widths, heights = (np.array(sides) for sides in zip(*shapes, strict=True))
    stored = in_containers(tmp_path, raws, codec=np.full(5, codec), width=widths, height=heights)
    engine = native.Engine(stored, threads=2)
    pixels, status = batch(engine, planned(np.arange(5)), look=native.look(CONFIG, is_random=is_random))
    engine.close()
    assert not status.any()
    drawn = augment.draws(7, epoch=0, positions=np.arange(5))
    for k, value in enumerate(values):
        picture = Image.fromarray(value)
        random = decode.training_pixels(picture, drawn=drawn[k], config=CONFIG)
        assert off(pixels[k], random if is_random else decode.evaluation_pixels(picture, config=CONFIG)) <= 1


def test_bare_pixels_that_are_too_few_or_of_unknown_size_are_refused(tmp_path: Path):
    raws = [bytes(12), bytes(11), bytes(12)]
    sides = {"width": np.array([2, 2, 0]), "height": np.array([2, 2, 2])}
    for stored, expected in (
        (in_containers(tmp_path, raws, codec=np.full(3, RGB), **sides), [True, False, False]),
        (in_containers(tmp_path, raws, codec=np.full(3, RGB)), [False, False, False]),
    ):
        engine = native.Engine(stored, threads=1)
        assert (batch(engine, planned(np.arange(3)))[1] == 0).tolist() == expected
        engine.close()


def spoilt(root: Path, samples: list[bytes]) -> Index:
    """Every other sample is spoilt in a way of its own."""
    half, cut = samples[3][: len(samples[3]) // 2], [*samples]
    other_precision = jpegs.patched(samples[9], jpegs.frame_at(samples[9]) + 4, 7)
    cut[3], cut[5], cut[7], cut[9] = half, b"no picture", b"", other_precision
    stored = in_files(root, cut)
    (root / "picture 11.jpg").unlink()
    (root / "picture 13.jpg").unlink()
    (root / "picture 13.jpg").mkdir()
    (root / "picture 15.jpg").write_bytes(samples[15][:-9])
    file, offset, codec, length = (
        column.copy() for column in (stored.file, stored.offset, stored.codec, stored.length)
    )
    file[17], file[19], offset[21], offset[23], codec[25] = 10_000, -1, -4, 2**62, OTHER
    length[27], offset[29] = 2**25, 1
    return replace(stored, file=file, offset=offset, codec=codec, length=length)


@pytest.mark.parametrize("threads", [1, 4])
def test_spoilt_samples_are_refused_and_their_neighbours_are_untouched(
    tmp_path: Path, samples: list[bytes], threads: int
):
    stored = spoilt(tmp_path, samples)
    engine = native.Engine(stored, threads=threads)
    plan, guarded = planned(np.arange(31)), np.full((33, *EACH), 201, np.uint8)
    ticket = engine.submit(plan, guarded[1:-1], seed=7, look=LOOK)
    engine.wait(ticket)
    engine.close()
    assert np.flatnonzero(ticket.status).tolist() == list(range(3, 31, 2))
    assert (guarded[0] == 201).all() and (guarded[-1] == 201).all()
    fine = planned(np.flatnonzero(ticket.status == 0))
    expected = one_by_one(samples, replace(fine, positions=fine.samples))
    assert np.array_equal(guarded[1:-1][ticket.status == 0], expected)


def test_an_engine_may_be_closed_twice_or_dropped_with_batches_in_flight(tmp_path: Path, samples: list[bytes]):
    stored = in_containers(tmp_path, samples)
    before = psutil.Process().num_threads(), psutil.Process().num_fds()
    for number in range(20):
        engine = native.Engine(stored, threads=4)
        for k in range(number % 5):
            plan = planned(np.arange(len(samples)), first=k)
            engine.submit(plan, np.empty((len(samples), *EACH), np.uint8), seed=7, look=LOOK)
        if number % 2:
            engine.close()
            engine.close()
        del engine
    gc.collect()
    # Threads of earlier tests may end meanwhile, and the system takes a moment to forget one.
    for _ in range(100):
        if psutil.Process().num_threads() <= before[0]:
            break
        time.sleep(0.05)
    assert psutil.Process().num_threads() <= before[0]
    assert psutil.Process().num_fds() <= before[1]


def test_an_engine_refuses_what_would_be_a_crash_in_its_threads(tmp_path: Path, samples: list[bytes]):
    engine = native.Engine(in_files(tmp_path, samples), threads=2)
    plan, pixels = planned(np.arange(len(samples))), np.empty((len(samples), *EACH), np.uint8)
    with pytest.raises(AssertionError):
        engine.submit(plan, pixels[:-1], seed=7, look=LOOK)
    with pytest.raises(AssertionError):
        engine.submit(plan, pixels[:, ::-1], seed=7, look=LOOK)
    ticket = engine.submit(plan, pixels, seed=7, look=LOOK)
    engine.wait(ticket)
    with pytest.raises(KeyError):
        engine.wait(ticket)
    engine.close()
    with pytest.raises(AssertionError):
        engine.submit(plan, pixels, seed=7, look=LOOK)
    with pytest.raises(AssertionError):
        engine.wait(ticket)


def test_files_that_hold_many_samples_stay_open_and_others_do_not(tmp_path: Path, samples: list[bytes]):
    for number, (stored, expected) in enumerate(((in_files, 0), (in_containers, 2))):
        root = tmp_path / str(number)
        root.mkdir()
        engine, before = native.Engine(stored(root, samples), threads=2), psutil.Process().num_fds()
        batch(engine, planned(np.arange(len(samples))))
        engine.will_need(0, 0)
        engine.will_need(0, len(samples) - 1)
        assert psutil.Process().num_fds() - before == expected
        engine.close()


def test_memory_does_not_grow_over_batches(tmp_path: Path, samples: list[bytes]):
    damaged = [raw[: len(raw) * 3 // 4] for raw in samples]
    stored = in_containers(tmp_path, samples + damaged)
    assert (stored.codec == JPEG).all()
    engine = native.Engine(stored, threads=2)
    plan, sizes = planned(np.arange(2 * len(samples))), []
    for _ in range(220):
        batch(engine, plan)
        sizes.append(psutil.Process().memory_info().rss)
    engine.close()
    assert sizes[-1] - sizes[19] < 4_000_000


def test_files_with_whole_paths_are_decoded_too(tmp_path: Path, samples: list[bytes]):
    stored, count = in_files(tmp_path, samples), len(samples)
    names = [str(stored.path(sample)) for sample in range(count)]
    whole = index.of_files(tmp_path / "elsewhere", names, sizes=[*map(len, samples)], labels=[0] * count)
    engine = native.Engine(replace(whole, codec=stored.codec), threads=2)
    pixels = np.empty((count, *EACH), np.uint8)
    ticket = engine.submit(planned(np.arange(count)), pixels, seed=7, look=LOOK)
    engine.wait(ticket)
    engine.close()
    assert not ticket.status.any()


@pytest.mark.parametrize(
    ("sampling", "written", "expected"),
    [
        ([(1, 1)] * 3, "3b5862c0e2af68fb", "e283e0f9f659b4f4"),
        ([(2, 2), (1, 1), (1, 1)], "14d623fbae3f9604", "1464b17ad5d9f820"),
        ([(2, 1), (1, 1), (1, 1)], "e0116709c1bea136", "bd2e35687d4da27b"),
        ([(1, 1)], "eaf2edd9ffa3dcb0", "e56f1d1e9fda5405"),
    ],
)
def test_pixels_are_the_same_on_every_processor(sampling: list[tuple[int, int]], written: str, expected: str):
    raw = jpegs.by_hand(150, 110, sampling, seed=5)
    if hashlib.sha256(raw).hexdigest()[:16] != written:
        pytest.skip("this Pillow has other Huffman tables")
    digest = hashlib.sha256()
    for side in (32, 64, 96):
        look = native.look(ImageConfig(resolution=side), is_random=True)
        for position in range(4):
            pixels = native.decoded(raw, look=look, position=position)
            assert pixels is not None
            digest.update(pixels.tobytes())
    assert digest.hexdigest()[:16] == expected
