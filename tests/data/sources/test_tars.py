import io
import json
import struct
import tarfile
from pathlib import Path

import pytest
import webdataset

from stoker.config import DataConfig
from stoker.data import sources
from stoker.data.dataset import Dataset
from stoker.data.index import JPEG, OTHER
from stoker.data.sources import tars
from stoker.data.sources.pages import Pages
from stoker.errors import Problem

# Tars are indexed by names, so these bytes pass for pictures.
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def shard(path: str, *samples: dict[str, object]) -> None:
    with webdataset.TarWriter(path) as writer:
        for sample in samples:
            writer.write(sample)


def tar(path: str, members: dict[str, bytes], *, form: int = tarfile.USTAR_FORMAT) -> None:
    with tarfile.open(path, "w", format=form) as file:
        for name, raw in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            file.addfile(member, io.BytesIO(raw))


def opened(data: str, **settings: float) -> Dataset:
    return sources.open_source(DataConfig(data=data, **settings), seed=0, show=False)


def samples(data: Dataset) -> list[tuple[bytes, str]]:
    """Bytes and class of all samples, in the order of the bytes."""
    both = (data.train, data.held_out)
    return sorted((i.read(s), data.classes[i.label[s]]) for i in both for s in range(len(i)))


def refused(data: str = "a.tar") -> str:
    with pytest.raises(Problem) as found:
        opened(data)
    assert found.value.fix
    return found.value.what


def test_a_shard_of_the_webdataset_package_is_indexed_in_place():
    shard("a.tar", *({"__key__": f"{n:04d}", "jpg": b"picture %d" % n, "cls": n % 3} for n in range(9)))
    found = opened("a.tar")
    assert found.classes == ("0", "1", "2")
    assert samples(found) == [(b"picture %d" % n, str(n % 3)) for n in range(9)]
    assert {found.train.codec[s] for s in range(len(found.train))} == {JPEG}


def test_shards_are_found_by_braces_and_in_their_folder():
    Path("d").mkdir()
    with webdataset.ShardWriter("d/part-%04d.tar", maxcount=3, verbose=0) as writer:
        for n in range(8):
            writer.write({"__key__": f"{n}", "png": b"picture %d" % n, "cls": n % 2})
    by_folder, by_braces = opened("d"), opened("d/part-{0000..0002}.tar")
    assert by_folder.fingerprint() == by_braces.fingerprint() == opened("d/*.tar").fingerprint()
    assert samples(by_folder) == [(b"picture %d" % n, str(n % 2)) for n in range(8)]
    assert set(by_folder.train.codec.tolist()) == {OTHER}


@pytest.mark.parametrize(
    ("suffix", "said", "classes"),
    [
        ("cls", [b"2", b"0\n"], ("0", "1", "2")),
        ("txt", [b"dog\n", b"cat"], ("cat", "dog")),
        ("txt", [b"1", b"0"], ("0", "1")),
        ("json", [b'{"label": 1}', b'{"label": 0}'], ("0", "1")),
        ("json", [b'{"class_id": 1}', b'{"cls": 0}'], ("0", "1")),
        ("json", [b'{"class_name": "dog"}', b'{"label_name": "cat"}'], ("cat", "dog")),
        ("json", [b'{"label": 1, "class_name": "cat"}', b'{"label": 0, "class_name": "dog"}'], ("dog", "cat")),
    ],
)
def test_a_label_is_read_from_the_member_beside_the_picture(suffix: str, said: list[bytes], classes: tuple[str, ...]):
    tar("a.tar", {"a.jpg": b"first", f"a.{suffix}": said[0], "b.jpg": b"second", f"b.{suffix}": said[1]})
    found = opened("a.tar")
    assert found.classes == classes
    assert [name for _, name in samples(found)] == [classes[-1], classes[0]]


def test_cls_comes_before_json_and_json_before_txt():
    said = {"a.cls": b"1", "a.json": b'{"label": 5}', "a.txt": b"a caption", "a.jpg": b"1"}
    tar("a.tar", said | {"b.json": b'{"label": 0}', "b.txt": b"a caption", "b.jpg": b"2"})
    assert samples(opened("a.tar")) == [(b"1", "1"), (b"2", "0")]


def test_class_folders_in_the_names_are_labels_where_there_are_no_others():
    tar("a.tar", {"train/cat/1.jpg": b"1", "train/dog/a/2.jpg": b"2", "val/cat/3.jpg": b"3"})
    found = opened("a.tar")
    assert (found.classes, found.held_out_name) == (("cat", "dog"), "val")
    assert [found.train.read(s) for s in range(2)] == [b"1", b"2"] and found.held_out.read(0) == b"3"


def test_folders_that_all_names_share_are_no_classes():
    tar("a.tar", {"./pets/all/cat/1.jpg": b"1", "./pets/all/dog/2.jpg": b"2", "./pets/all/dog/more/3.jpg": b"3"})
    assert samples(opened("a.tar")) == [(b"1", "cat"), (b"2", "dog"), (b"3", "dog")]


def test_names_of_pictures_in_class_folders_may_hold_dots():
    tar("a.tar", {"cat/IMG.1.jpg": b"1", "cat/IMG.2.JPG": b"2", "dog/a.b.c.png": b"3", "dog/notes.v1.txt": b"4"})
    found = opened("a.tar")
    assert samples(found) == [(b"1", "cat"), (b"2", "cat"), (b"3", "dog")] and found.ignored == 1


def test_of_two_pictures_of_a_sample_the_one_of_its_plain_name_is_taken():
    tar("a.tar", {"a.seg.png": b"mask", "a.jpg": b"1", "a.cls": b"0", "b.jpg": b"2", "b.cls": b"1", "b.png": b"other"})
    assert samples(opened("a.tar")) == [(b"1", "0"), (b"2", "1")]


def test_shards_are_split_by_their_names():
    for name, numbers in {
        "set-train-0.tar": range(4),
        "set-val-0.tar": range(4, 6),
        "set-test-0.tar": range(6, 8),
    }.items():
        shard(name, *({"__key__": f"{n}", "jpg": b"%d" % n, "cls": n % 2} for n in numbers))
    found = opened("set-*.tar")
    assert found.held_out_name == "val" and found.whole is None
    assert [found.train.read(s) for s in range(len(found.train))] == [b"0", b"1", b"2", b"3"]
    assert [found.held_out.read(s) for s in range(len(found.held_out))] == [b"4", b"5"]


@pytest.mark.parametrize("name", ["train-0.tar", "val-0.tar", "0.tar"])
def test_shards_of_one_split_get_a_seeded_share_held_out(name: str):
    shard(name, *({"__key__": f"{n}", "jpg": b"%d" % n, "cls": n % 2} for n in range(20)))
    found = opened(name, holdout=0.2)
    assert (len(found.train), len(found.held_out), found.held_out_name) == (16, 4, "a seeded 20%")


@pytest.mark.parametrize("form", FORMATS)
def test_names_of_any_length_are_read_in_every_form_of_tar(form: str):
    long = "d" * 90 + "/" + "e" * 90
    tar("a.tar", {f"{long}.jpg": b"1", f"{long}.cls": b"1", "ü.jpg": b"2", "ü.cls": b"0"}, form=FORMATS[form])
    with Pages(Path("a.tar")) as pages:
        found = [(m.folder, m.stem, m.suffix) for m in tars.members(pages)]
    assert found == [*(("d" * 90, "e" * 90, s) for s in ("jpg", "cls")), ("", "ü", "jpg"), ("", "ü", "cls")]
    assert samples(opened("a.tar")) == [(b"1", "1"), (b"2", "0")]


def test_the_scan_agrees_with_the_standard_library(tmp_path: Path):
    members = {f"{'x' * (1 + n % 120)}/{n}.jpg": bytes(n * 37 % 2000) for n in range(300)}
    for form in FORMATS.values():
        tar("a.tar", members, form=form)
        with Pages(Path("a.tar")) as pages, tarfile.open("a.tar") as file:
            assert [(m.offset, m.size) for m in tars.members(pages)] == [(m.offset_data, m.size) for m in file]


def test_a_size_in_binary_is_read():
    tar("a.tar", {"a.jpg": b"12345", "a.cls": b"0", "b.jpg": b"b", "b.cls": b"1"})
    raw = bytearray(Path("a.tar").read_bytes())
    raw[124:136] = b"\x80" + (5).to_bytes(11, "big")
    Path("a.tar").write_bytes(mended(raw))
    assert samples(opened("a.tar")) == [(b"12345", "0"), (b"b", "1")]


def test_what_gnu_writes_in_the_place_of_the_prefix_is_no_part_of_the_name():
    tar("a.tar", {"a.jpg": b"1", "a.cls": b"0", "b.jpg": b"2", "b.cls": b"1"}, form=tarfile.GNU_FORMAT)
    raw = bytearray(Path("a.tar").read_bytes())
    raw[345:357] = b"14714231201\0"  # a time
    Path("a.tar").write_bytes(mended(raw))
    assert samples(opened("a.tar")) == [(b"1", "0"), (b"2", "1")]


def mended(raw: bytearray, place: int = 0) -> bytes:
    """A tar whose header at a place has the right checksum again."""
    raw[place + 148 : place + 156] = b" " * 8
    raw[place + 148 : place + 156] = b"%06o\0 " % sum(raw[place : place + 512])
    return bytes(raw)


def test_empty_pictures_are_listed_and_samples_without_pictures_are_counted():
    members = {
        "a.jpg": b"1",
        "a.cls": b"0",
        "b.jpg": b"2",
        "b.cls": b"1",
        "c.jpg": b"",
        "c.cls": b"1",
        "notes.md": b"x",
    }
    tar("a.tar", members | {"._a.jpg": b"resource fork"})
    found = opened("a.tar", allow_bad=0.5)
    assert (found.empty, found.ignored, len(samples(found))) == ((Path("a.tar/c.jpg"),), 2, 2)


@pytest.mark.parametrize(("kind", "what"), [(tarfile.SYMTYPE, "a link"), (tarfile.LNKTYPE, "a link"),
                                            (tarfile.CHRTYPE, "a device"), (tarfile.FIFOTYPE, "a pipe")])  # fmt: skip
def test_a_link_or_a_device_is_refused_with_its_place(kind: bytes, what: str):
    with tarfile.open("a.tar", "w") as file:
        member = tarfile.TarInfo("a.jpg")
        member.type, member.linkname = kind, "/etc/passwd"
        file.addfile(member)
    assert refused() == f"a.tar holds a.jpg at byte 0, which is {what}"


@pytest.mark.parametrize("name", ["/etc/1.jpg", "../1.jpg", "a/../../1.jpg"])
def test_a_name_that_leads_out_of_the_tar_is_refused(name: str):
    tar("a.tar", {name: b"1"})
    assert refused() == f"a.tar holds {name} at byte 0, which is outside of the tar"


def test_a_truncated_tar_is_refused_with_the_byte_where_it_ends():
    tar("a.tar", {"a.jpg": bytes(5000), "a.cls": b"0"})
    raw = Path("a.tar").read_bytes()
    Path("a.tar").write_bytes(raw[:3000])
    assert refused() == "a.tar is damaged at byte 0: a.jpg would end at byte 5512, but the file ends at byte 3000"
    Path("a.tar").write_bytes(raw[: 512 + 5120 + 100])
    assert "at byte 5632: the file ends at byte 5732, in the middle of a header" in refused()
    Path("a.tar").write_bytes(raw[: 512 + 5120 + 1024])
    assert "a.tar ends at byte 6656 without the end mark of a tar" in refused()


def test_a_tar_cut_anywhere_is_refused_in_words():
    tar("a.tar", {"a.jpg": bytes(700), "a.cls": b"0", "b.jpg": b"2", "b.cls": b"1"}, form=tarfile.PAX_FORMAT)
    raw = Path("a.tar").read_bytes()
    end = 512 + 1024 + 3 * 1024
    for cut in range(1, end, 97):
        Path("a.tar").write_bytes(raw[:cut])
        assert refused().startswith("a.tar ")


@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + b"\xff" * 11, b"-0000000001\0", b"12_4\0\0\0\0\0\0\0\0"])
def test_an_absurd_size_is_refused(size: bytes):
    tar("a.tar", {"a.jpg": b"1", "a.cls": b"0"})
    raw = bytearray(Path("a.tar").read_bytes())
    raw[124:136] = size
    Path("a.tar").write_bytes(mended(raw))
    assert "a.tar is damaged at byte 0" in refused()


@pytest.mark.parametrize("record", [b"999999 path=x\n", b"nonsense", b"0 \n", b"9 size=\xff\n", b"11 size=-5\n",
                                    b"5011 size=" + b"9" * 5000 + b"\n", b"25 GNU.sparse.realsize=1\n"])  # fmt: skip
def test_an_extended_header_that_makes_no_sense_is_refused(record: bytes):
    tar("a.tar", {"a.jpg": record.ljust(512, b"\n"), "a.cls": b"0"})
    raw = bytearray(Path("a.tar").read_bytes())
    raw[156:157], raw[124:136] = b"x", b"%011o\0" % len(record)
    Path("a.tar").write_bytes(mended(raw))
    assert "a.tar is damaged at byte 0" in refused()


def test_a_damaged_header_is_refused_with_its_byte():
    tar("a.tar", {"a.jpg": b"1", "a.cls": b"0", "b.jpg": b"2", "b.cls": b"1"})
    raw = bytearray(Path("a.tar").read_bytes())
    raw[1024 + 3] ^= 1
    Path("a.tar").write_bytes(raw)
    assert refused() == "a.tar is damaged at byte 1024: there is no tar header"


def test_json_that_cannot_be_read_is_refused():
    for said in (b"{", b"[" * 100_000, b"\xff\xfe"):
        tar("a.tar", {"a.jpg": b"1", "a.json": said})
        assert "a.json can't be read as JSON" in refused()


def test_a_picture_without_a_label_among_others_is_refused_by_its_name():
    tar("a.tar", {"a.jpg": b"1", "a.cls": b"0", "b.jpg": b"2"})
    assert refused() == "a.tar/b.jpg has no label, but a.tar/a.jpg has one"
    tar("a.tar", {"a.jpg": b"1", "b.jpg": b"2"})
    assert refused() == "a.tar/a.jpg has no label"


def test_labels_that_are_no_classes_are_refused():
    for said in (b"-1", b"999999999"):
        tar("a.tar", {"a.jpg": b"1", "a.cls": b"0", "b.jpg": b"2", "b.cls": said})
        assert f"the label {int(said)}, which is no class's number" in refused()


def test_a_tar_of_one_class_is_refused():
    tar("a.tar", {"a.jpg": b"1", "a.cls": b"7", "b.jpg": b"2", "b.cls": b"7"})
    assert "one class, 7" in refused()


def test_a_tar_without_pictures_is_refused():
    tar("a.tar", {"notes.md": b"1"})
    assert "a.tar holds no pictures" in refused()


def test_a_json_name_of_half_a_character_does_no_harm():
    said = [json.dumps({"class_name": name}).encode() for name in ("\ud800", "cat")]
    tar("a.tar", {"a.jpg": b"1", "a.json": said[0], "b.jpg": b"2", "b.json": said[1]})
    assert opened("a.tar").fingerprint()


def test_a_global_extended_header_as_git_writes_it_is_passed_over():
    with tarfile.open("a.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "commit"}) as file:
        for name, raw in {"a.jpg": b"1", "a.cls": b"0", "b.jpg": b"2", "b.cls": b"1"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            file.addfile(member, io.BytesIO(raw))
    assert samples(opened("a.tar")) == [(b"1", "0"), (b"2", "1")]


def test_a_checksum_is_that_of_the_header():
    tar("a.tar", {"a.jpg": b"1"})
    head = Path("a.tar").read_bytes()[:512]
    assert tars.is_header(head) and not tars.is_header(head[:511])
    assert not tars.is_header(bytes(512)) and not tars.is_header(struct.pack("<512s", b"a.jpg"))


def test_pictures_that_share_a_stem_are_all_samples_where_nothing_is_a_label():
    with tarfile.open("d.tar", "w") as tar:
        for name in ("cat", "dog"):
            for file in ("a.jpg", "a.png", "a.1.jpg", "a.2.jpg", "b.jpg"):
                info = tarfile.TarInfo(f"d/{name}/{file}")
                info.size = 3
                tar.addfile(info, io.BytesIO(b"abc"))
    found = sources.open_source(DataConfig(data="d.tar"), seed=0, show=False)
    assert len(found.train) + len(found.held_out) == 10 and found.classes == ("cat", "dog")
