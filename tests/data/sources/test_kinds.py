import gzip
import io
import tarfile
from pathlib import Path

import pytest

from stoker.data.sources import kinds
from stoker.errors import Problem


def tar_bytes() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as file:
        file.addfile(tarfile.TarInfo("a.cls"))
    return held.getvalue()


HEADS = {
    "tar": tar_bytes(),
    "recordio": bytes.fromhex("0a23d7ce 00000000"),
    "tfrecord": bytes.fromhex("5a00000000000000 136fb4bf"),
    "arrays": bytes.fromhex("00000803 00000000"),
    "parquet": b"PAR1",
}


def filled(*names: str, raw: bytes = b"") -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(raw)


def refused(data: str) -> Problem:
    with pytest.raises(Problem) as found:
        kinds.kind(data)
    return found.value


@pytest.mark.parametrize("name", HEADS)
def test_a_file_is_known_by_its_first_bytes_whatever_its_name(name: str):
    filled("mystery", raw=HEADS[name])
    assert kinds.kind("mystery").name == name


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.tar", "tar"),
        ("a.rec", "recordio"),
        ("a.tfrecord", "tfrecord"),
        ("train-00001-of-01024", "tfrecord"),
        ("a.parquet", "parquet"),
        ("data_batch_1.bin", "arrays"),
        ("train-images-idx3-ubyte", "arrays"),
        ("list.csv", "list"),
    ],
)
def test_a_damaged_file_is_known_by_its_name(file: str, name: str):
    filled(file)
    assert kinds.kind(file).name == name


@pytest.mark.parametrize("data", ["-", "http://example.org/a.tar", "https://example.org/a.tar.gz"])
def test_a_stream_is_to_be_packed(data: str):
    found = kinds.kind(data)
    assert (found.name, found.in_place) == ("stream", False)
    assert found.fix == f"stoker pack {data} DEST, and then give DEST"


@pytest.mark.parametrize("data", ["dials", "dials:500", "dials:500x64"])
def test_dials_are_dials(data: str):
    assert kinds.kind(data).name == "dials"


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.tar"])
def test_a_compressed_tar_is_a_tar_that_must_be_packed(name: str):
    filled(name, raw=gzip.compress(tar_bytes()))
    found = kinds.kind(name)
    assert (found.name, found.in_place, found.files) == ("tar", False, (Path(name),))
    assert f"{name} is compressed" in found.why_not and found.fix == f"stoker pack {name} DEST, and then give DEST"


def test_other_compressions_are_known_too():
    with tarfile.open("a.tar.xz", "w:xz") as file:
        file.addfile(tarfile.TarInfo("a.cls"))
    assert (kinds.kind("a.tar.xz").name, kinds.kind("a.tar.xz").in_place) == ("tar", False)


def test_a_finished_pack_is_a_pack_and_an_unfinished_one_is_refused():
    filled("d/pack.json", "d/.packing/x", "d/train-0.tar")
    assert kinds.kind("d").name == "pack"
    Path("d/pack.json").unlink()
    assert refused("d").what == "d is a pack that was not finished"
    assert "stoker pack SOURCE d" in refused("d").fix


def test_a_folder_of_class_folders_stays_one_whatever_lies_beside_them():
    filled("d/cat/1.jpg", "d/dog/2.jpg", "d/backup.tar", "d/labels.csv")
    assert kinds.kind("d").name == "folder"
    filled("e/train/cat/1.jpg", "e/val/cat/2.jpg", "e/all.tar", "e/train/all.tar")
    assert kinds.kind("e").name == "folder"


def test_files_are_found_in_a_folder_and_in_its_train_and_val():
    filled("d/train/1.tar", "d/train/0.tar", "d/val/0.tar", "d/README.md", "d/train/notes.txt")
    found = kinds.kind("d")
    assert (found.name, found.root) == ("tar", Path("d"))
    assert [str(path) for path in found.files] == ["d/train/0.tar", "d/train/1.tar", "d/val/0.tar"]


def test_files_of_two_kinds_are_refused_until_one_is_chosen():
    filled("d/a.tar", "d/a.rec")
    assert refused("d").what == "d stands for files of several kinds: recordio, tar"
    assert kinds.kind("d/*.tar").name == "tar"


def test_braces_stand_for_numbers_and_for_words():
    names = [f"{split}-{n:02d}.tar" for split in ("train", "val") for n in range(8, 12)]
    filled(*names)
    assert [path.name for path in kinds.kind("{train,val}-{08..11}.tar").files] == names


def test_a_file_that_braces_stand_for_and_is_not_there_is_named():
    filled("a-0.tar", "a-2.tar")
    assert refused("a-{0..2}.tar").what == "a-{0..2}.tar stands for a-1.tar, which is not there"
    assert refused("b-*.tar").what == "no file is named like b-*.tar"


def test_a_pattern_is_quoted_in_the_command_that_helps():
    filled("a b.parquet", raw=b"PAR1")
    assert kinds.kind("a*.parquet").fix == "stoker pack 'a*.parquet' DEST, and then give DEST"


def test_a_name_with_brackets_that_is_there_is_itself():
    filled("a[1].tar")
    assert kinds.kind("a[1].tar").files == (Path("a[1].tar"),)


def test_what_is_not_there_or_not_known_is_refused():
    filled("notes.docx", raw=b"PK")
    assert "there is no folder nowhere" in refused("nowhere").what
    assert "there is no file gone.tar" in refused("gone.tar").what
    assert "notes.docx is a file of no kind that is known" in refused("notes.docx").what


def test_nothing_of_a_long_pattern_is_tried_behind_what_is_not_there():
    assert "stands for 0-0.tar" in refused("{0..99999999}-{0..99999999}.tar").what
