import io
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from stoker import api
from stoker.config import DataConfig
from stoker.data import sources
from stoker.data.index import Index
from stoker.data.sources import Dataset
from stoker.errors import Problem
from stoker.tasks import labels
from stoker.tasks.labels import Labels

# Sources read names and sizes only, so these bytes pass for pictures.
BYTES = b"picture"


def filled(root: str, *names: str) -> None:
    for name in names:
        path = Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(BYTES)


def numbered(root: str, count: int = 20) -> None:
    filled(root, *(f"{kind}/{number:02d}.jpg" for kind in ("cat", "dog", "emu") for number in range(count)))


def opened(data: str = "d", *, seed: int = 0, **settings: float) -> Dataset:
    return sources.open_source(DataConfig(data=data, **settings), seed=seed, show=False)


def paths(index: Index) -> list[str]:
    return [str(index.path(sample).relative_to(index.root)) for sample in range(len(index))]


def by_label(index: Index) -> list[tuple[str, int]]:
    return list(zip(paths(index), index.label.tolist(), strict=True))


def refused(**settings: float) -> str:
    with pytest.raises(Problem) as found:
        opened(**settings)
    assert found.value.fix
    return found.value.what


def test_an_unsplit_folder_holds_a_seeded_share_out_and_trains_on_the_rest():
    numbered("d")
    found = opened(holdout=0.2)
    train, held_out = paths(found.train), paths(found.held_out)
    assert (len(train), len(held_out)) == (48, 12)
    assert len({*train, *held_out}) == 60


def test_the_same_samples_are_held_out_every_time():
    numbered("d")
    first, second = opened(), opened()
    assert paths(first.held_out) == paths(second.held_out)
    assert first.fingerprint() == second.fingerprint()


def test_another_seed_holds_other_samples_out():
    numbered("d")
    assert paths(opened(seed=0).held_out) != paths(opened(seed=1).held_out)


def test_what_is_held_out_is_spread_over_the_classes():
    numbered("d", 100)
    shares = np.bincount(opened(holdout=0.2).held_out.label, minlength=3)
    assert shares.min() >= 10


def test_labels_are_the_places_of_the_class_names_in_their_order():
    numbered("d")
    found = opened()
    assert found.classes == ("cat", "dog", "emu")
    assert all(found.classes[label] == Path(path).parts[0] for path, label in by_label(found.train))


@pytest.mark.parametrize("name", ["val", "valid", "validation", "test"])
def test_a_split_folder_is_taken_as_it_is_split(name: str):
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg", f"{name}/cat/3.jpg", f"{name}/dog/4.jpg")
    found = opened()
    assert by_label(found.train) == [("train/cat/1.jpg", 0), ("train/dog/2.jpg", 1)]
    assert by_label(found.held_out) == [(f"{name}/cat/3.jpg", 0), (f"{name}/dog/4.jpg", 1)]
    assert found.held_out_name == name


def test_val_is_evaluated_on_where_there_is_test_too():
    filled("d", *(f"{split}/{kind}/1.jpg" for split in ("train", "test", "val") for kind in ("cat", "dog")))
    assert paths(opened().held_out) == ["val/cat/1.jpg", "val/dog/1.jpg"]


def test_a_class_missing_in_val_leaves_the_labels_of_the_others_alone():
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg", "train/emu/3.jpg", "val/cat/4.jpg", "val/emu/5.jpg")
    assert by_label(opened().held_out) == [("val/cat/4.jpg", 0), ("val/emu/5.jpg", 2)]


def test_pictures_in_folders_below_a_class_folder_belong_to_the_class():
    filled("d", "train/cat/1.jpg", "train/dog/a/b/2.jpg", "train/dog/a/3.jpg", "val/cat/4.jpg")
    assert by_label(opened().train) == [("train/cat/1.jpg", 0), ("train/dog/a/3.jpg", 1), ("train/dog/a/b/2.jpg", 1)]


def test_a_suffix_may_be_in_capitals():
    filled("d", "train/cat/1.JPG", "train/dog/2.Png", "val/cat/3.JPEG")
    assert paths(opened().train) == ["train/cat/1.JPG", "train/dog/2.Png"]


def test_files_that_are_hidden_or_no_pictures_are_left_out_and_counted():
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg")
    filled("d", "train/cat/.1.jpg", "train/cat/Thumbs.db", "train/dog/notes.txt", "val/cat/.DS_Store", "README.md")
    found = opened()
    assert paths(found.train) == ["train/cat/1.jpg", "train/dog/2.jpg"]
    assert found.ignored == 4


def test_a_hidden_folder_is_no_class():
    filled("d", "cat/1.jpg", "dog/2.jpg", ".cache/3.jpg")
    assert opened().classes == ("cat", "dog")


def test_pictures_in_a_hidden_folder_below_a_class_are_left_out():
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg", "train/dog/.ipynb_checkpoints/2-checkpoint.jpg", "val/cat/3.jpg")
    assert paths(opened().train) == ["train/cat/1.jpg", "train/dog/2.jpg"]


def test_empty_files_are_left_out_and_counted():
    numbered("d")
    Path("d/dog/07.jpg").write_bytes(b"")
    found = opened(allow_bad=0.02)
    assert found.empty == (Path("d/dog/07.jpg"),)
    assert len(found.train) + len(found.held_out) == 59


def test_too_many_empty_files_are_refused_unless_they_are_allowed():
    numbered("d")
    Path("d/dog/07.jpg").write_bytes(b"")
    assert refused(allow_bad=0.01) == "1 of 60 files in d are empty or not there, the first: d/dog/07.jpg"
    with pytest.raises(Problem) as found:
        opened(allow_bad=0.01)
    assert "stoker inspect d" in found.value.fix
    assert len(opened(allow_bad=0.02).empty) == 1


def test_a_link_to_nothing_is_an_unreadable_sample_and_no_crash():
    numbered("d")
    os.symlink("/nowhere/1.jpg", "d/cat/link.jpg")
    found = opened(allow_bad=0.5)
    assert len(found.train) + len(found.held_out) + len(found.empty) in (60, 61)


def test_names_need_not_be_utf_8():
    filled("d", "cat/1.jpg", "cat/2.jpg", "dog/3.jpg", "dog/ü.jpg", os.fsdecode(b"dog/\xff.jpg"))
    found = opened()
    assert {i.read(s) for i in (found.train, found.held_out) for s in range(len(i))} == {BYTES}


def test_a_missing_folder_is_refused():
    assert "there is no folder d" in refused()


def test_a_file_is_refused():
    filled(".", "d")
    assert "d is a file" in refused()


def test_an_empty_folder_is_refused():
    Path("d").mkdir()
    assert "no class folders" in refused()


def test_pictures_without_class_folders_are_refused():
    filled("d", "1.jpg", "2.jpg")
    assert "no class folders" in refused()


def test_one_class_is_refused_by_its_name():
    filled("d", "cat/1.jpg")
    assert "one class folder, cat" in refused()


def test_a_class_folder_without_pictures_is_refused_by_its_name():
    filled("d", "cat/1.jpg", "dog/notes.txt")
    assert "d/dog holds no pictures" in refused()


def test_train_without_val_is_refused():
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg")
    assert "d has train/ but none of val" in refused()


def test_a_class_in_val_that_train_has_not_is_refused_by_its_name():
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg", "val/emu/4.jpg")
    assert refused() == "d/val holds classes that are not known: emu"


def test_an_empty_val_is_refused():
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg")
    Path("d/val").mkdir()
    assert "d/val holds no class folders" in refused()


def test_something_is_left_to_train_on_however_much_is_held_out():
    filled("d", "cat/1.jpg", "dog/2.jpg")
    assert len(opened(holdout=0.99).train) == 1


@pytest.mark.parametrize("change", ["another file", "another size", "another class"])
def test_the_fingerprint_tells_other_data_apart(change: str):
    numbered("d")
    before = opened().fingerprint()
    match change:
        case "another file":
            filled("d", "cat/new.jpg")
        case "another size":
            Path("d/cat/03.jpg").write_bytes(BYTES * 2)
        case "another class":
            Path("d/cat/03.jpg").rename("d/dog/99.jpg")
    assert opened().fingerprint() != before


def test_the_fingerprint_does_not_depend_on_where_the_data_is():
    numbered("d")
    before = opened().fingerprint()
    Path("d").rename("elsewhere")
    assert opened("elsewhere").fingerprint() == before


def test_dials_are_drawn_once_and_found_again():
    first = opened("dials:20x32")
    written = {path: path.stat().st_mtime_ns for path in Path("data/dials-20x32").rglob("*.jpg")}
    second = opened("dials:20x32")
    assert (len(first.train), len(first.held_out), len(first.classes), len(written)) == (20, 4, 10, 24)
    assert {path: path.stat().st_mtime_ns for path in Path("data").rglob("*.jpg")} == written
    assert first.fingerprint() == second.fingerprint()


def tar(path: str, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as file:
        for name, raw in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            file.addfile(member, io.BytesIO(raw))


def held_out(data: str, *classes: str) -> Index:
    found, own = sources.open_held_out(DataConfig(data=data), show=False)
    return labels.numbered(found, own, Labels(names=classes), where=data).samples


def test_all_samples_of_a_container_without_a_split_are_evaluated_on():
    tar("a.tar", {"cat/1.jpg": b"1", "dog/2.jpg": b"2", "dog/3.jpg": b"3"})
    assert held_out("a.tar", "bee", "dog", "cat").label.tolist() == [2, 1, 1]


def test_only_the_held_out_samples_of_a_container_with_a_split_are_evaluated_on():
    tar("a.tar", {"train/cat/1.jpg": b"1", "train/dog/2.jpg": b"2", "val/dog/3.jpg": b"3"})
    index = held_out("a.tar", "cat", "dog")
    assert index.label.tolist() == [1] and index.read(0) == b"3"


def test_a_container_is_evaluated_on_even_if_it_holds_one_class():
    tar("a.tar", {"1.jpg": b"1", "1.cls": b"7"})
    assert held_out("a.tar", *map(str, range(10))).label.tolist() == [7]


def test_a_container_of_classes_that_are_not_known_is_not_evaluated_on():
    tar("a.tar", {"cat/1.jpg": b"1", "emu/2.jpg": b"2"})
    with pytest.raises(Problem, match=r"a\.tar holds classes that the network does not know: emu"):
        held_out("a.tar", "cat", "dog")


def test_a_class_in_val_that_train_has_not_is_refused_in_containers_too():
    tar("a.tar", {"train/cat/1.jpg": b"1", "train/dog/2.jpg": b"2", "val/emu/3.jpg": b"3"})
    with pytest.raises(Problem, match=r"a\.tar holds classes in val that train has not: emu"):
        opened("a.tar")


def test_a_pack_is_opened_as_a_pack(dial_folder: Path):
    api.pack(dial_folder, "p", keep=True, workers=1, show=False)
    folder, packed = opened(str(dial_folder)), opened("p")
    assert packed.classes == folder.classes and packed.train.path(0) == Path("p/train-00000.tar")
    assert np.bincount(packed.train.label).tolist() == np.bincount(folder.train.label).tolist()
    backwards = held_out("p", *reversed(folder.classes))
    assert backwards.label.tolist() == (len(folder.classes) - 1 - packed.held_out.label).tolist()


def test_a_pack_of_held_out_samples_alone_can_be_evaluated_on(dial_folder: Path, tmp_path: Path):
    shutil.copytree(dial_folder / "val", tmp_path / "own" / "test")
    with tarfile.open("own.tar.gz", "w:gz") as tar:
        tar.add("own/test", "test")
    api.pack("own.tar.gz", "p", keep=True, workers=1, show=False)
    classes = opened(str(dial_folder)).classes
    assert len(held_out("p", *classes)) == 24
    with pytest.raises(Problem, match="no samples to train on"):
        opened("p")


def test_what_cannot_be_read_in_place_is_refused_before_anything_else():
    for data in ("-", "https://example.org/a.tar"):
        with pytest.raises(Problem) as found:
            sources.prepared(DataConfig(data=data), show=False)
        assert found.value.fix == f"stoker pack {data} DEST, and then give DEST"


def test_a_link_to_a_folder_below_a_class_is_not_followed():
    filled("d", "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg")
    os.symlink("..", "d/train/cat/up")
    assert paths(opened().train) == ["train/cat/1.jpg", "train/dog/2.jpg"]


def test_a_folder_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch):
    numbered("d")
    listed = os.scandir

    def guarded(folder: Path) -> object:
        if Path(folder).name == "dog":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    assert "d/dog can't be read" in refused()


def test_a_container_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch):
    tar("a.tar", {"cat/1.jpg": b"1", "dog/2.jpg": b"2"})

    def guarded(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", guarded)
    with pytest.raises(Problem, match=r"a\.tar can't be read: .*Permission denied"):
        opened("a.tar")


def test_a_test_folder_beside_val_is_there_where_it_is_asked_for(dial_folder: Path, tmp_path: Path):
    own = Path(shutil.copytree(dial_folder, tmp_path / "own"))
    shutil.copytree(own / "val", own / "test")
    config = DataConfig(data=str(own))
    assert sources.open_source(config, seed=0, show=False).others == {}
    found = sources.open_source(config, seed=0, show=False, with_others=True)
    assert [*found.others] == ["test"] and len(found.others["test"]) == len(found.held_out)
    assert found.held_out_name == "val" and found.others["test"].label.tolist() == found.held_out.label.tolist()


def test_what_a_mac_leaves_in_an_archive_is_no_class(dial_folder: Path, tmp_path: Path):
    own = Path(shutil.copytree(dial_folder / "train", tmp_path / "own"))
    (own / "__MACOSX").mkdir()
    assert "__MACOSX" not in sources.open_source(DataConfig(data=str(own)), seed=0, show=False).classes


def test_a_folder_one_level_too_high_is_refused_with_the_right_one(dial_folder: Path, tmp_path: Path):
    shutil.copytree(dial_folder, tmp_path / "high" / "own")
    with pytest.raises(Problem) as found:
        sources.open_source(DataConfig(data="high"), seed=0, show=False)
    assert found.value.fix == "did you mean high/own?"


def test_a_zip_is_refused_with_the_command_that_helps():
    Path("photos.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(Problem) as found:
        sources.open_source(DataConfig(data="photos.zip"), seed=0, show=False)
    assert "unzip photos.zip" in found.value.fix
