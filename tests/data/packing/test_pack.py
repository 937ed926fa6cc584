import csv
import hashlib
import io
import itertools
import json
import shutil
import subprocess
import sys
import tarfile
import types
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker import api, cli
from stoker.config import DataConfig
from stoker.data import dials, pack, packing
from stoker.data.dataset import Dataset
from stoker.data.index import GREY, JPEG, RGB, Index
from stoker.data.packing import Packed, downloads, shards, store
from stoker.errors import Problem

from .servers import Site, served
from .test_streams import tar_of

QUICK = {"short_side": 24, "shard_samples": 25, "workers": 1, "show": False}

PEER = """
import glob, json, webdataset
files = sorted(glob.glob("pack/train-*.tar"))
read = webdataset.WebDataset(files, shardshuffle=False).decode("pil").to_tuple("cls", "__key__", "jpg")
print(json.dumps([(label, int(key)) for label, key, picture in read if picture.size == (40, 40)]))
"""


def packed(source: Any, dest: str = "pack", **options: Any) -> Packed:
    return api.pack(source, dest, **{**QUICK, **options})


def opened(dest: str = "pack", **options: Any) -> Dataset:
    return pack.open_pack(Path(dest), DataConfig(**options), seed=0)


def tree(folder: str | Path) -> dict[str, str]:
    """A digest of every file in a folder, but for the one that tells how long packing took."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name != "time.json"
    }


def bad_rows(dest: str = "pack") -> list[list[str]]:
    with open(Path(dest, "bad.csv"), newline="") as file:
        return list(csv.reader(file))


def contents(found: Index, classes: tuple[str, ...]) -> Counter[tuple[str, bytes]]:
    return Counter((classes[found.label[row]], found.read(row)) for row in range(len(found)))


def in_folder(folder: Path) -> Counter[tuple[str, bytes]]:
    return Counter((path.parent.name, path.read_bytes()) for path in folder.rglob("*.jpg"))


def pipe(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    """Let some bytes be what is piped into this process."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


@pytest.fixture(scope="session")
def stream() -> bytes:
    """A tar of 90 dials in class folders."""
    return tar_of({f"dials/bar-{n % 10}/{n}.jpg": dials.draw(n, seed=0, size=40) for n in range(90)})


@pytest.fixture(scope="session")
def split_stream() -> bytes:
    """A tar of 60 dials to train on and 20 to validate with."""
    return tar_of(
        {f"{'train' if n < 60 else 'val'}/bar-{n % 10}/{n}.jpg": dials.draw(n, seed=0, size=40) for n in range(80)}
    )


def test_a_pack_that_keeps_bytes_holds_what_the_source_holds(dial_folder: Path) -> None:
    answer = packed(dial_folder, keep=True)
    found = opened()
    assert (found.name, found.classes, found.held_out_name) == ("dials", dials.CLASSES, "val")
    for part, name in ((found.train, "train"), (found.held_out, "val")):
        assert contents(part, found.classes) == in_folder(dial_folder / name)
        split = answer.record.splits[name]
        assert split.bytes == split.source_bytes == part.total_bytes
    assert {name: (s.samples, len(s.shards)) for name, s in answer.record.splits.items()} == {
        "train": (120, 5),
        "val": (24, 1),
    }
    assert not answer.was_done and answer.record.bad == 0


def test_the_index_knows_size_checksum_and_fingerprint(dial_folder: Path) -> None:
    record = packed(dial_folder).record
    found = opened()
    for part, name in ((found.train, "train"), (found.held_out, "val")):
        assert part.width is not None and part.height is not None and part.crc is not None
        assert set(part.width.tolist()) == set(part.height.tolist()) == {24}
        assert set(part.codec.tolist()) == {JPEG}
        assert [zlib.crc32(part.read(row)) for row in range(len(part))] == part.crc.tolist()
        assert part.digest == record.splits[name].fingerprint
        shutil.copytree(f"pack/index/{name}", f"copy/{name}")
    fresh = pack.index.open_index(Path("copy/train"), root=Path("copy"))
    assert fresh.fingerprint() == found.train.digest


def test_the_tar_program_gives_the_pictures_back(dial_folder: Path) -> None:
    packed(dial_folder, keep=True)
    Path("out").mkdir()
    for shard in sorted(Path("pack").glob("*.tar")):
        folder = Path("out", shard.name.split("-")[0])
        folder.mkdir(exist_ok=True)
        subprocess.run(["tar", "xf", shard, "-C", folder], check=True)
    for name in ("train", "val"):
        files = sorted(Path("out", name).glob("*.jpg"))
        assert [file.stem for file in files] == [f"{n:08d}" for n in range(120 if name == "train" else 24)]
        labels = [dials.CLASSES[int(file.with_suffix(".cls").read_text())] for file in files]
        assert Counter(zip(labels, (f.read_bytes() for f in files), strict=True)) == in_folder(dial_folder / name)


def test_webdataset_reads_a_pack_with_the_right_labels(dial_folder: Path) -> None:
    pytest.importorskip("webdataset")
    packed(dial_folder, keep=True)
    # In a process of its own: it leaves files open, and warnings are errors here.
    done = subprocess.run([sys.executable, "-c", PEER], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found == [list(pair) for pair in zip(opened().train.label.tolist(), range(120), strict=True)]


def test_members_are_the_same_whoever_packs(dial_folder: Path) -> None:
    packed(dial_folder)
    with tarfile.open("pack/train-00000.tar") as tar:
        facts = {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode, m.type) for m in tar.getmembers()}
        names = tar.getnames()
    assert facts == {(0, 0, 0, "", "", 0o644, tarfile.REGTYPE)}
    assert names[:4] == ["00000000.jpg", "00000000.cls", "00000001.jpg", "00000001.cls"]
    text = Path("pack/pack.json").read_text()
    assert str(dial_folder) not in text and str(dial_folder.parent) not in text
    assert json.loads(text)["made"].keys() == {
        "source", "source_name", "source_fingerprint", "seed", "holdout", "shard_samples", "short_side", "quality",
        "stoker", "pillow",
    }  # fmt: skip


def test_one_worker_and_two_give_the_same_bytes_wherever_the_source_is(dial_folder: Path) -> None:
    packed(dial_folder, "one")
    shutil.copytree(dial_folder, "elsewhere/dials")
    packed("elsewhere/dials", "two", workers=2)
    assert tree("one") == tree("two")
    assert not Path("one/.packing").exists()


def test_the_seed_decides_the_order_and_nothing_else(dial_folder: Path) -> None:
    packed(dial_folder, "one", keep=True)
    packed(dial_folder, "two", keep=True, seed=1)
    one, two = opened("one"), opened("two")
    assert one.train.label.tolist() != two.train.label.tolist()
    assert len({*one.train.label[:30].tolist()}) > 5, "the order is shuffled"
    assert contents(one.train, one.classes) == contents(two.train, two.classes)


def test_a_source_without_a_split_is_split_by_the_holdout(dial_folder: Path) -> None:
    record = packed(dial_folder / "train", holdout=0.25).record
    assert {name: split.samples for name, split in record.splits.items()} == {"train": 90, "val": 30}


def test_a_test_split_is_packed_too_and_stays_in_a_pack_of_the_pack(dial_folder: Path) -> None:
    shutil.copytree(dial_folder, "mine")
    shutil.copytree(dial_folder / "val", "mine/test")
    Path("mine/test/bar-0/extra.jpg").write_bytes(dials.draw(0, seed=5, size=40))
    packed("mine", keep=True)
    packed("pack", "again", keep=True)
    for dest in ("pack", "again"):
        found = opened(dest)
        assert found.held_out_name == "val" and list(found.others) == ["test"]
        assert contents(found.others["test"], found.classes) == in_folder(Path("mine/test"))
        assert contents(found.held_out, found.classes) == in_folder(dial_folder / "val")
    Path("mine/test/bar-0/extra.jpg").unlink()
    with pytest.raises(Problem, match="source_fingerprint"):
        packed("mine", keep=True)


def test_the_held_out_split_keeps_its_name(dial_folder: Path) -> None:
    shutil.copytree(dial_folder / "train", "mine/train")
    shutil.copytree(dial_folder / "val", "mine/test")
    assert packed("mine").record.splits.keys() == {"train", "test"}
    Path("mine/test").rename("mine/validation")
    assert packed("mine", "two").record.splits.keys() == {"train", "val"}


def test_without_a_holdout_all_samples_are_train(
    dial_folder: Path, stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = packed(dial_folder / "train", holdout=0, keep=True).record
    assert {name: split.samples for name, split in record.splits.items()} == {"train": 120}
    assert packed(dial_folder / "train", holdout=0, keep=True).was_done
    assert len(opened(holdout=0.25).held_out) == 30
    pipe(monkeypatch, stream)
    record = packed("-", "two", holdout=0).record
    assert {name: split.samples for name, split in record.splits.items()} == {"train": 90}
    assert packed(dial_folder, "three", holdout=0).record.splits.keys() == {"train", "val"}, "the source's own"
    for wrong in (-0.1, 1):
        with pytest.raises(Problem, match="holdout is"):
            packed(dial_folder, "other", holdout=wrong)


def test_a_file_in_the_current_folder_is_not_taken_for_a_module(dial_folder: Path) -> None:
    Path("csv.py").write_text("raise RuntimeError('not this one')")
    assert packed(dial_folder, workers=2).record.splits["train"].samples == 120


@pytest.mark.parametrize("kind", ["folder", "stream"])
def test_a_source_of_which_nothing_can_be_read_is_no_pack(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{name}/{n}.jpg": b"hello" for n in range(3) for name in "ab"}
    for name, raw in files.items():
        Path("mine", name).parent.mkdir(parents=True, exist_ok=True)
        Path("mine", name).write_bytes(raw)
    pipe(monkeypatch, tar_of(files))
    with pytest.raises(Problem, match=r"not one of 6 samples can be read, the first: .*\.jpg: "):
        packed("mine" if kind == "folder" else "-", allow_bad=1)
    assert not Path("pack/pack.json").exists() and len(bad_rows()) == 7


def test_a_pack_can_be_packed_and_trained_on(dial_folder: Path, quick: dict[str, Any]) -> None:
    packed(dial_folder, keep=True)
    packed("pack", "again", keep=True)
    assert contents(opened("again").train, dials.CLASSES) == in_folder(dial_folder / "train")
    assert api.train(name="r", data="again", show=False, **{**quick, "epochs": 1}).record.status == "done"


def test_pixels_without_a_header_stay_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), np.uint8)
    rows = [bytes([n % 10]) + pixels[n].tobytes() for n in range(40)]
    Path("cifar").mkdir()
    Path("cifar/data_batch_1.bin").write_bytes(b"".join(rows[:30]))
    Path("cifar/test_batch.bin").write_bytes(b"".join(rows[30:]))
    packed("cifar", short_side=256)
    found = opened().train
    assert set(found.codec.tolist()) == {RGB} and found.width is not None and set(found.width.tolist()) == {32}
    wanted = Counter((n % 10, pixels[n].transpose(1, 2, 0).tobytes()) for n in range(30))
    assert Counter((int(found.label[row]), found.read(row)) for row in range(30)) == wanted
    with tarfile.open("pack/train-00000.tar") as tar:
        file = tar.extractfile("00000000.ppm")
        assert file is not None
        assert np.asarray(Image.open(file)).tobytes() == found.read(0)
    assert GREY not in found.codec


def test_a_bad_file_leaves_a_gap_and_is_listed_with_its_reason(dial_folder: Path) -> None:
    shutil.copytree(dial_folder, "mine")
    cut, text, empty = sorted(Path("mine/train").rglob("*.jpg"))[:3]
    cut.write_bytes(cut.read_bytes()[:-200])
    text.write_text("hello")
    empty.write_bytes(b"")
    with pytest.raises(Problem, match=r"\d of 144 samples can't be read") as refused:
        packed("mine", allow_bad=0.01)
    assert "--allow-bad" in refused.value.fix and not Path("pack/pack.json").exists()
    record = packed("mine", allow_bad=0.05).record
    assert record.bad == 3 and record.splits["train"].samples == 117
    head, first, *rest = bad_rows()
    assert head == ["place", "reason"] and first == [str(empty.relative_to("mine")), "the file is empty"]
    reasons = dict(rest)
    assert reasons.keys() == {str(cut.relative_to("mine")), str(text.relative_to("mine"))}
    assert "truncated" in reasons[str(cut.relative_to("mine"))]
    assert "not a picture" in reasons[str(text.relative_to("mine"))]
    words = ["cat pack/train-*.tar | tar --ignore-zeros -t"]
    names = subprocess.run(words, shell=True, capture_output=True, text=True, check=True).stdout.split()
    names = sorted({int(Path(name).stem) for name in names})
    assert len(names) == 117 and names[-1] >= 117
    packed("mine", "again", allow_bad=0.5, workers=2)
    assert tree("pack") == tree("again")


def test_too_many_bad_files_are_refused_as_soon_as_it_is_certain(dial_folder: Path) -> None:
    shutil.copytree(dial_folder, "mine")
    for path in Path("mine/train").rglob("*.jpg"):
        path.write_text("hello")
    with pytest.raises(Problem, match="samples can't be read"):
        packed("mine", shard_samples=4)
    assert len(bad_rows()) < 50
    assert not list(Path("pack").glob("*.tar"))[20:]


def test_the_same_settings_again_are_done_and_others_are_refused(dial_folder: Path) -> None:
    packed(dial_folder)
    before = tree("pack")
    assert packed(dial_folder, workers=2, allow_bad=0.5).was_done
    with pytest.raises(Problem, match="quality: 90 -> 80"):
        packed(dial_folder, quality=80)
    with pytest.raises(Problem, match="source_fingerprint"):
        packed(dial_folder / "val")
    assert tree("pack") == before


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let packing end when some shards are whole."""
    original = shards.Part.close

    def close(part: shards.Part) -> shards.Whole:
        if len(list(part.target.parent.glob("*.tar"))) == count:
            raise KeyboardInterrupt
        return original(part)

    monkeypatch.setattr(shards.Part, "close", close)


def test_whole_shards_are_not_made_again_and_other_settings_are_refused(
    dial_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(dial_folder, "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            packed(dial_folder)
    with pytest.raises(Problem, match="is not a finished pack"):
        opened()
    kept = {path: path.stat().st_ino for path in Path("pack").glob("*.tar")}
    assert len(kept) == 3
    with pytest.raises(Problem, match="short_side: 24 -> 25") as refused:
        packed(dial_folder, short_side=25)
    assert "rm -r pack" in refused.value.fix
    packed(dial_folder, workers=2)
    assert tree("pack") == tree("whole")
    assert {path: path.stat().st_ino for path in kept} == kept


def seconds(dest: str = "pack") -> float:
    """How long packing took, as it was written down."""
    return float(json.loads(Path(dest, "time.json").read_text())["seconds"])


def test_the_time_of_all_starts_is_written_down(dial_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1000.0, 0.5)
    clock = types.SimpleNamespace(monotonic=lambda: next(ticks))
    for module in (packing, store):
        monkeypatch.setattr(module, "time", clock)
    packed(dial_folder, "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            packed(dial_folder)
    assert 0 < seconds() < seconds("whole")
    next(itertools.islice(ticks, 10**6, None))  # it was down for long, and that is no part of it
    packed(dial_folder)
    assert seconds() == seconds("whole"), "this clock ticks with every shard"
    assert json.loads(Path("pack/time.json").read_text())["version"] == 1
    done = seconds()
    packed(dial_folder)
    assert seconds() == done, "a pack that is there already takes no time"


def test_a_time_of_which_a_part_is_not_known_is_not_told(dial_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            packed(dial_folder)
    Path("pack/time.json").write_text("[]")
    packed(dial_folder)
    assert not Path("pack/time.json").exists()


def test_a_source_that_changed_is_not_gone_on_with(dial_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(dial_folder, "mine")
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            packed("mine")
    next(Path("mine/train").rglob("*.jpg")).unlink()
    with pytest.raises(Problem, match="source_fingerprint"):
        packed("mine")


def test_nothing_else_is_written_over(dial_folder: Path) -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    with pytest.raises(Problem, match="not empty and is no pack"):
        packed(dial_folder, "mine")
    with pytest.raises(Problem, match="is a file"):
        packed(dial_folder, "mine/letter.txt")
    assert tree("mine") == {"letter.txt": hashlib.sha256(b"dear").hexdigest()}
    shutil.copytree(dial_folder, "source")
    with pytest.raises(Problem, match="inside of source"):
        packed("source", "source/pack")
    Path("empty").mkdir()
    packed(dial_folder, "empty")


def test_two_at_once_into_one_folder_are_refused(dial_folder: Path) -> None:
    with store.held(Path("pack")), pytest.raises(Problem, match="another process is packing"):
        packed(dial_folder)
    packed(dial_folder)


def test_too_little_room_is_said_before_anything_is_done(dial_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6, 1000))  # type: ignore[attr-defined]
    with pytest.raises(Problem, match="will take about"):
        packed(dial_folder)
    monkeypatch.undo()
    # It has not begun, so it may begin with what was advised.
    packed(dial_folder, short_side=16)


def test_a_damaged_pack_is_refused_when_it_is_opened(dial_folder: Path) -> None:
    packed(dial_folder)
    shard = Path("pack/train-00001.tar")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-512])
    with pytest.raises(Problem, match=r"train-00001\.tar has .* cut off"):
        opened()
    shard.unlink()
    with pytest.raises(Problem, match=r"train-00001\.tar is missing"):
        opened()
    shard.write_bytes(whole)
    record = json.loads(Path("pack/pack.json").read_text())
    Path("pack/pack.json").write_text(json.dumps({**record, "version": 2, "news": 1}))
    with pytest.raises(Problem, match="version 2"):
        opened()
    Path("pack/pack.json").write_text("{")
    with pytest.raises(Problem, match="can't be read"):
        opened()


@pytest.mark.parametrize("form", ["plain", "gz"])
def test_a_stream_is_split_by_a_seeded_draw_and_keeps_its_order(
    form: str, stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    pipe(monkeypatch, gzip.compress(stream) if form == "gz" else stream)
    packed("-", keep=True, holdout=0.2)
    found = opened()
    assert found.classes == tuple(f"bar-{n}" for n in range(10)), "in the order in which they came"
    assert 5 < len(found.held_out) < 35 and len(found.train) + len(found.held_out) == 90
    both = contents(found.train, found.classes) + contents(found.held_out, found.classes)
    assert both == Counter((f"bar-{n % 10}", dials.draw(n, seed=0, size=40)) for n in range(90))
    drawn = {dials.draw(n, seed=0, size=40): n for n in range(90)}
    numbers = [drawn[found.train.read(row)] for row in range(len(found.train))]
    assert numbers == sorted(numbers)


def test_a_stream_that_names_splits_is_split_so(split_stream: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, split_stream)
    record = packed("-", "one").record
    assert {name: split.samples for name, split in record.splits.items()} == {"train": 60, "val": 20}
    pipe(monkeypatch, split_stream)
    packed("-", "two", workers=2)
    assert tree("one") == tree("two")
    pipe(monkeypatch, tar_of({"train/a/1.jpg": b"1", "b/2.jpg": b"2"}))
    with pytest.raises(Problem, match=r"b/2\.jpg is in no such folder"):
        packed("-", "mixed")


def test_a_stream_with_only_train_is_split_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, tar_of({f"train/{n % 2}/{n}.jpg": dials.draw(n, seed=0, size=40) for n in range(20)}))
    packed("-")
    assert len(opened(holdout=0.25).held_out) == 5


def test_labels_that_are_numbers_stay_these_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {}
    for n in range(20):
        files |= {f"{n}.jpg": dials.draw(n, seed=0, size=40), f"{n}.cls": b"%d" % (n % 3 * 2)}
    pipe(monkeypatch, tar_of(files))
    packed("-", holdout=0.3)
    found = opened()
    assert found.classes == ("0", "1", "2", "3", "4")
    assert {*found.train.label.tolist()} == {0, 2, 4}
    pipe(monkeypatch, tar_of({**files, "x/1.jpg": b"1"}))
    with pytest.raises(Problem, match="some labels are numbers and some are names"):
        packed("-", "mixed", holdout=0.3)


def photo(n: int) -> bytes:
    return dials.draw(n, seed=0, size=40)


def named_by_json(shared: str = "crane") -> dict[str, bytes]:
    """Samples of three classes whose JSON has numbers and names."""
    files = {}
    for n in range(30):
        said = {"label": n % 4, **({} if n % 4 == 3 else {"class_name": ["dog", "crane", shared][n % 4]})}
        files |= {f"{n:02d}.jpg": photo(n), f"{n:02d}.json": json.dumps(said).encode()}
    return files


def test_json_names_the_classes_of_a_stream_as_those_of_a_tar_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tar_of(named_by_json())
    pipe(monkeypatch, raw)
    Path("it.tar").write_bytes(raw)
    assert packed("-").record.classes == packed("it.tar", "two").record.classes
    assert opened().classes == ("dog", "crane (1)", "crane (2)", "3")


def test_names_from_json_outlast_a_lost_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "WAIT_SECONDS", (0.01,))
    # Only the first samples tell the names.
    files = {name: raw if name < "10" or name.endswith("jpg") else b"%d" % (int(name[:2]) % 4)
             for name, raw in named_by_json("heron").items()}  # fmt: skip
    raw = tar_of(files)
    with served(Site(files={"it.tar": raw}, drops=[len(raw) * 3 // 4, 0])) as site:
        for match in ("2 times in a row", None):
            if match:
                with pytest.raises(Problem, match=match):
                    packed(f"{site.url}/it.tar", shard_samples=4, holdout=0)
            else:
                packed(f"{site.url}/it.tar", shard_samples=4, holdout=0)
    assert site.asked[-1], "it went on in the middle"
    assert opened().classes == ("dog", "crane", "heron", "3")


def test_a_stream_whose_class_folders_are_in_several_places_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in (("a/indoor/x.jpg", "b/indoor/y.jpg"), ("a/x.jpg", "b/indoor/y.jpg"), ("s/a/x.jpg", "a/y.jpg")):
        pipe(monkeypatch, tar_of({name: photo(0) for name in names}))
        with pytest.raises(Problem, match=f"{names[0]} and {names[1]}: which folder is the class") as refused:
            packed("-")
        assert "CLASS/NAME.jpg" in refused.value.fix
    import gzip

    Path("it.tar.gz").write_bytes(gzip.compress(tar_of({"a/indoor/x.jpg": photo(0), "b/indoor/y.jpg": photo(1)})))
    with pytest.raises(Problem, match="which folder is the class"):
        packed("it.tar.gz", "two")


@pytest.mark.parametrize("root", ["", "set/", "set/train/"])
def test_a_stream_has_the_classes_of_the_same_tar_in_place(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "deep/er/" if root == "set/train/" else ""
    raw = tar_of({f"{root}{'ab'[n % 2]}/{deep}{n}.jpg": photo(n) for n in range(20)})
    pipe(monkeypatch, raw)
    Path("it.tar").write_bytes(raw)
    assert packed("-").record.classes == packed("it.tar", "two").record.classes == ("a", "b")


def test_a_stream_that_nothing_can_be_learned_from_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, tar_of({f"a/{n}.jpg": photo(n) for n in range(4)}))
    with pytest.raises(Problem, match="holds one class, a: there is nothing to tell apart"):
        packed("-")
    pipe(
        monkeypatch,
        tar_of({name: photo(n) for n, name in enumerate(("train/a/1.jpg", "train/b/2.jpg", "val/c/3.jpg"))}),
    )
    with pytest.raises(Problem, match="classes in val that train has not: c"):
        packed("-", "two")
    assert not Path("pack/pack.json").exists() and not Path("two/pack.json").exists()


def test_a_pack_of_a_test_split_alone_is_there_to_evaluate_on(
    dial_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, tar_of({f"test/{'ab'[n % 2]}/{n}.jpg": photo(n) for n in range(20)}))
    packed("-")
    with pytest.raises(Problem, match="no samples to train on") as refused:
        opened()
    assert "stoker eval RUN --data pack" in refused.value.fix
    found, classes = pack.held_out(Path("pack"))
    assert len(found) == 20 and classes == ("a", "b")
    packed(dial_folder, "both")
    assert len(pack.held_out(Path("both"))[0]) == 24
    packed(dial_folder / "train", "none", holdout=0)
    assert len(pack.held_out(Path("none"))[0]) == 120


def test_a_finished_pack_of_a_stream_says_that_the_stream_was_not_read(
    stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, stream)
    assert packed("-").note == ""
    again = packed("-")
    assert again.was_done and "was not read" in again.note


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_that_is_cut_off_keeps_whole_shards_and_goes_on(
    workers: int, split_stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, split_stream)
    packed("-", "whole", shard_samples=8)
    for share in (0.3, 0.5, 0.9, 0.93):
        pipe(monkeypatch, split_stream[: int(len(split_stream) * share)])
        with pytest.raises(Problem, match="cut off"):
            packed("-", shard_samples=8, workers=workers)
    assert len(list(Path("pack").glob("*.tar"))) >= 8
    pipe(monkeypatch, split_stream)
    packed("-", shard_samples=8, workers=workers)
    assert tree("pack") == tree("whole")


def test_another_stream_is_not_gone_on_with(
    stream: bytes, split_stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, split_stream[: int(len(split_stream) * 0.6)])
    with pytest.raises(Problem, match="cut off"):
        packed("-", shard_samples=8)
    pipe(monkeypatch, tar_of({f"train/bar-{n % 10}/{n}.jpg": dials.draw(n + 1, seed=0, size=40) for n in range(80)}))
    with pytest.raises(Problem, match="is not the sample that was number 0 of train before"):
        packed("-", shard_samples=8)
    pipe(monkeypatch, tar_of({f"train/bar-{n % 10}/{n}.jpg": dials.draw(n, seed=0, size=40) for n in range(9)}))
    with pytest.raises(Problem, match="the stream has 9 samples of train"):
        packed("-", shard_samples=8)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_does_not_show_in_the_pack(
    ranges: bool, split_stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WAIT_SECONDS", (0.01,) * 3)
    with served(Site(files={"dials.tar": split_stream})) as site:
        packed(f"{site.url}/dials.tar", "whole", shard_samples=8)
        site.drops, site.ranges = [30_000, 0, 50_000], ranges
        packed(f"{site.url}/dials.tar", shard_samples=8)
    assert len(site.asked) == 5
    assert tree("pack") == tree("whole")
    assert opened().name == "dials"


@pytest.mark.parametrize("form", ["tar", "tar.gz"])
def test_a_lost_server_ends_the_pack_and_the_next_start_goes_on(
    form: str, split_stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    monkeypatch.setattr(downloads, "WAIT_SECONDS", (0.01,) * 2)
    body = gzip.compress(split_stream) if form == "tar.gz" else split_stream
    with served(Site(files={f"dials.{form}": body})) as site:
        url = f"{site.url}/dials.{form}"
        packed(url, "whole", shard_samples=8)
        site.drops, site.asked = [len(body) * 2 // 3, 0, 0], []
        with pytest.raises(Problem, match="3 times in a row") as refused:
            packed(url, shard_samples=8)
        assert "the same command again" in refused.value.fix
        kept = len(list(Path("pack").glob("*.tar")))
        assert kept >= 4
        site.asked = []
        packed(url, shard_samples=8)
        assert len(site.asked) == 1
        if form == "tar":
            begin = int(site.asked[0].removeprefix("bytes=").rstrip("-"))
            assert begin > len(body) / 3, "the first shards are not read again"
        else:
            assert site.asked == [""]
    assert tree("pack") == tree("whole")


def test_a_file_that_changed_on_the_server_is_not_gone_on_with(
    split_stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "WAIT_SECONDS", (0.01,))
    with served(Site(files={"dials.tar": split_stream}, drops=[len(split_stream) // 2, 0])) as site:
        with pytest.raises(Problem, match="2 times in a row"):
            packed(f"{site.url}/dials.tar", shard_samples=8)
        site.tag = '"two"'
        with pytest.raises(Problem, match="has changed"):
            packed(f"{site.url}/dials.tar", shard_samples=8)


def test_a_compressed_tar_on_the_disk_is_packed(split_stream: bytes) -> None:
    import gzip

    Path("dials.tar.gz").write_bytes(gzip.compress(split_stream))
    record = packed("dials.tar.gz").record
    assert {name: split.samples for name, split in record.splits.items()} == {"train": 60, "val": 20}
    assert record.name == "dials" and record.made["source"] == "tar"
    Path("elsewhere").mkdir()
    Path("dials.tar.gz").rename("elsewhere/dials.tar.gz")
    assert packed("elsewhere/dials.tar.gz").was_done
    Path("elsewhere/dials.tar.gz").write_bytes(gzip.compress(tar_of({"a/1.jpg": b"other"})))
    with pytest.raises(Problem, match="source_fingerprint"):
        packed("elsewhere/dials.tar.gz")


def test_a_file_of_another_compression_is_no_damaged_one() -> None:
    Path("dials.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(600))
    with pytest.raises(Problem, match="compressed with zstd") as refused:
        packed("dials.tar.zst")
    assert "zstd -dc dials.tar.zst | stoker pack - DEST" in refused.value.fix


def test_a_list_of_addresses_is_fetched_and_what_is_not_there_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "SHORT_WAIT_SECONDS", (0.01,))
    files = {f"{n}.jpg": dials.draw(n, seed=0, size=40) for n in range(40)}
    with served(Site(files=files)) as site:
        lines = [f"{site.url}/{n}.jpg,bar-{n % 10}" for n in range(39)]
        Path("here.jpg").write_bytes(files["39.jpg"])
        Path("list.csv").write_text("\n".join(["url,label", *lines, f"{site.url}/none.jpg,bar-9", "here.jpg,bar-9"]))
        record = packed("list.csv", keep=True, allow_bad=0.1, holdout=0.25).record
    assert record.bad == 1 and bad_rows()[1:] == [[f"{site.url}/none.jpg", "the server answers 404 Not Found"]]
    found = opened()
    both = contents(found.train, found.classes) + contents(found.held_out, found.classes)
    assert both == Counter((f"bar-{n % 10}", files[f"{n}.jpg"]) for n in range(40))


def test_parquet_is_packed_with_equal_bytes() -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    Path("hub").mkdir()
    for split, numbers in (("train", range(30)), ("test", range(30, 40))):
        pictures = [{"bytes": dials.draw(n, seed=0, size=40), "path": f"{n}.jpg"} for n in numbers]
        table = pa.table({"image": pictures, "label": [n % 10 for n in numbers]})
        pq.write_table(table, f"hub/{split}-00000-of-00001.parquet", row_group_size=7)
    record = packed("hub", keep=True).record
    found = opened()
    assert {name: split.samples for name, split in record.splits.items()} == {"test": 10, "train": 30}
    assert found.held_out_name == "test" and found.classes == tuple(map(str, range(10)))
    wanted = Counter((str(n % 10), dials.draw(n, seed=0, size=40)) for n in range(30))
    assert contents(found.train, found.classes) == wanted
    assert packed("hub", keep=True).was_done


def test_the_command_says_what_became_of_it(dial_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pack", str(dial_folder), "pack", "--short-side", "24", "--workers", "1"]
    assert cli.main(words) == 0
    told = capsys.readouterr().out
    assert "train    120 samples in 1 shard, " in told and "before" in told
    assert "bad      0 samples" in told and "stoker train --data pack" in told
    assert cli.main(words) == 0
    assert "there was nothing to do" in capsys.readouterr().out
    assert cli.main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() == {"folder", "record", "was_done", "note"}
    assert answer["record"].keys() == {"name", "classes", "splits", "bad", "made", "version"}
    assert answer["record"]["splits"]["val"].keys() == {"samples", "bytes", "source_bytes", "fingerprint", "shards"}
    assert cli.main(["pack", "nowhere", "other"]) == 2
    assert not Path("other").exists()
