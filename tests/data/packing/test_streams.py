import bz2
import gzip
import io
import lzma
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.data.packing import streams
from stoker.data.packing.streams import Arrival, Opened
from stoker.errors import Problem

Files = dict[str, bytes]


def tar_of(files: Files, **options: object) -> bytes:
    """A tar as Python writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as tar:  # type: ignore[call-overload]
        for name, raw in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return out.getvalue()


def arrivals(raw: bytes) -> list[Arrival]:
    return list(streams.samples(Opened(io.BytesIO(raw)), name="it"))


def seen(raw: bytes) -> list[tuple[str, bytes, int | str, str]]:
    return [(a.sample.name, a.sample.raw, a.sample.label, a.sample.split) for a in arrivals(raw)]


FOLDERS = {
    "train/n02/b.JPEG": b"bb",
    "train/n01/deep/a.1.jpg": b"a" * 5000,
    "train/n01/deep/a.2.jpg": b"aa",
    "train/readme.md": b"no picture",
    "train/n01/._a.jpg": b"no picture either",
    "val/n02/c.png": b"",
}
IN_FOLDERS = [
    ("train/n02/b.JPEG", b"bb", "n02", "train"),
    ("train/n01/deep/a.1.jpg", b"a" * 5000, "n01", "train"),
    ("train/n01/deep/a.2.jpg", b"aa", "n01", "train"),
    ("val/n02/c.png", b"", "n02", "val"),
]


@pytest.mark.parametrize("packed", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_class_folders_come_out_of_a_tar_of_any_form(packed: Callable[[bytes], bytes], form: int) -> None:
    raw = packed(tar_of(FOLDERS, format=form))
    assert seen(raw) == IN_FOLDERS
    assert Opened(io.BytesIO(raw)).is_plain == (packed is bytes)


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar"])
def test_a_tar_of_the_tar_program_is_read(form: str, tmp_path: Path) -> None:
    long_name = "x" * 95 + ".jpg"
    for name, raw in {**FOLDERS, f"train/n01/{long_name}": b"long"}.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    words = ["tar", "c", f"--format={form}", "-C", str(tmp_path / "data"), "."]
    raw = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
    assert sorted(seen(raw)) == sorted([*IN_FOLDERS, (f"train/n01/{long_name}", b"long", "n01", "train")])


def test_webdataset_samples_have_the_label_that_lies_beside_them() -> None:
    files = {
        "0.jpg": b"p0",
        "0.cls": b"7\n",
        "1.json": b'{"label": 3, "caption": "x"}',
        "1.png": b"p1",
        "val/2.txt": b"cat",
        "val/2.jpg": b"p2",
        "val/2.mask.png": b"not learned from",
        "3.jpg": b"p3",
        "3.json": b'{"class_name": "dog"}',
    }
    assert seen(tar_of(files)) == [
        ("0.jpg", b"p0", 7, ""),
        ("1.png", b"p1", 3, ""),
        ("val/2.jpg", b"p2", "cat", "val"),
        ("3.jpg", b"p3", "dog", ""),
    ]


def test_json_may_hold_a_number_and_the_name_of_its_class_or_be_a_number() -> None:
    files = {
        "0.jpg": b"p0",
        "0.json": b'{"label": 1, "class_name": "dog"}',
        "1.jpg": b"p1",
        "1.json": b'{"label": 0, "label_name": "\\ud83d"}',
        "2.jpg": b"p2",
        "2.json": b"2",
    }
    found = [(a.sample.label, a.title) for a in arrivals(tar_of(files))]
    assert found == [(1, "dog"), (0, "?"), (2, "")]


def test_many_files_whose_names_begin_alike_do_not_pile_up() -> None:
    files = {f"cat/img.{n}.jpg": b"x" for n in range(100)}
    assert [name for name, *_ in seen(tar_of(files))] == list(files)


def test_reading_may_begin_at_any_sample_of_a_plain_tar() -> None:
    files = {f"train/{'n' * 120}{n % 3}/{n}.jpg": bytes([n]) * n * 100 for n in range(20)}
    raw = tar_of(files, format=tarfile.PAX_FORMAT)
    whole = arrivals(raw)
    for number, arrival in enumerate(whole):
        part = Opened(io.BytesIO(raw[arrival.at :]), at=arrival.at)
        assert list(streams.samples(part, name="it")) == whole[number:]


def test_tars_one_after_another_are_one_stream() -> None:
    two = tar_of({"a/1.jpg": b"1"}) + tar_of({"a/2.jpg": b"2"}) + tar_of({"b/3.jpg": b"3"})
    assert [raw for _, raw, *_ in seen(two)] == [b"1", b"2", b"3"]
    last = arrivals(two)[-1]
    assert two[last.at :].startswith(b"b/3.jpg")


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_stream_that_is_cut_off_anywhere_is_a_problem(packed: Callable[[bytes], bytes]) -> None:
    files = {f"a/{n}.jpg": bytes([n]) * 700 for n in range(4)}
    # Without the padding after the end mark, which may be missing.
    raw = packed(tar_of(files)[: 4 * (512 + 1024) + 1024])
    assert len(seen(raw)) == 4
    for length in range(1, len(raw) - 1024, 61 if packed is bytes else 3):
        with pytest.raises(Problem, match="damaged or cut off"):
            seen(raw[:length])


def test_an_empty_stream_is_cut_off_and_what_never_was_a_tar_is_called_so() -> None:
    with pytest.raises(Problem, match="damaged or cut off"):
        seen(b"")
    for raw in (b"hello " * 1000, gzip.compress(b"hello " * 1000)):
        with pytest.raises(Problem, match="it is no tar: it begins with b'hello"):
            seen(raw)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("-", "zstd -dc FILE.tar.* | stoker pack - DEST"),
        ("a/b.tar.zst", "zstd -dc a/b.tar.zst | stoker pack - DEST"),
        ("http://x.org/b.tar.zst", "curl -L http://x.org/b.tar.zst | zstd -dc | stoker pack - DEST"),
    ],
)
def test_another_compression_is_named_with_the_command_that_undoes_it(name: str, fix: str) -> None:
    with pytest.raises(Problem, match="is compressed with zstd") as refused:
        Opened(io.BytesIO(b"\x28\xb5\x2f\xfd" + bytes(600)), name=name)
    assert refused.value.fix == fix


def test_damage_in_the_middle_is_not_taken_for_the_end() -> None:
    raw = bytearray(tar_of({f"a/{n}.jpg": bytes([n]) * 700 for n in range(4)}))
    raw[3072 + 150] ^= 0x55
    with pytest.raises(Problem, match="no tar header at byte 3,072"):
        seen(bytes(raw))


def hostile(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "/etc/passwd"
    return tar_of({"a/1.jpg": b"1"})[:1024] + info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (hostile("/a/x.jpg"), "outside"),
        (hostile("a/../../x.jpg"), "outside"),
        (hostile("a/x.jpg", tarfile.SYMTYPE), "link"),
        (hostile("a/x.jpg", tarfile.LNKTYPE), "link"),
        (hostile("a/x.jpg", tarfile.CHRTYPE), "device"),
        (hostile("a/x.jpg", tarfile.BLKTYPE), "device"),
        (hostile("a/x.jpg", tarfile.FIFOTYPE), "no plain file"),
        (hostile("a/x.jpg", size=2**40), "bytes"),
        (hostile("a/x.jpg", size=2**30 + 1), "bytes"),
    ],
)
def test_a_hostile_member_is_refused_by_its_name(raw: bytes, why: str) -> None:
    with pytest.raises(Problem, match=f"x.jpg.*{why}") as refused:
        seen(raw)
    assert "--hard-dereference" in refused.value.fix


def test_a_picture_without_a_label_and_a_sample_of_two_pictures_are_refused() -> None:
    with pytest.raises(Problem, match=r"x\.jpg is in no class folder"):
        seen(tar_of({"x.jpg": b"1"}))
    with pytest.raises(Problem, match="2 pictures"):
        seen(tar_of({"x.jpg": b"1", "x.png": b"1", "x.cls": b"1"}))
    with pytest.raises(Problem, match="JSON"):
        seen(tar_of({"x.jpg": b"1", "x.json": b"{"}))
