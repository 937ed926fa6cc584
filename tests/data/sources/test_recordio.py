from pathlib import Path

import pytest

from stoker.config import DataConfig
from stoker.data import sources
from stoker.data.dataset import Dataset
from stoker.data.index import JPEG, OTHER
from stoker.data.sources import recordio
from stoker.errors import Problem

# A .rec, byte by byte. First a header record without a picture, as face data sets have it.
HEADER_RECORD = bytes.fromhex(
    "0a23d7ce 20000000"  # magic; whole, 32 bytes
    "02000000 00000000 0000000000000000 0000000000000000"  # two labels follow; label, id, id2
    "00004040 00008040"  # 3.0, 4.0
)
# Class 1 and a JPEG of 7 bytes, so that a byte fills up to 4.
JPEG_RECORD = bytes.fromhex(
    "0a23d7ce 1f000000"  # magic; whole, 31 bytes
    "00000000 0000803f 0500000000000000 0000000000000000"  # one label in the header, 1.0; id 5
    "ffd8ffe0 616263 00"
)
# Classes 2 and 7 (the first counts) and a PNG of 8 bytes.
PNG_RECORD = bytes.fromhex(
    "0a23d7ce 28000000"  # magic; whole, 40 bytes
    "02000000 00000000 0600000000000000 0000000000000000"  # two labels follow
    "00000040 0000e040"  # 2.0, 7.0
    "89504e47 0d0a1a0a"
)
# Class 2 and a JPEG of 16 bytes that holds the magic number twice, in three parts.
PARTS_RECORD = bytes.fromhex(
    "0a23d7ce 1c000020"  # magic; first part, 28 bytes
    "00000000 00000040 0700000000000000 0000000000000000 ffd8ffe1"
    "0a23d7ce 00000040"  # magic; middle part, 0 bytes
    "0a23d7ce 03000060"  # magic; last part, 3 bytes
    "78797a 00"
)
IN_PARTS = bytes.fromhex("ffd8ffe1 0a23d7ce 0a23d7ce 78797a")


def rec(*records: bytes, path: str = "a.rec") -> None:
    Path(path).write_bytes(b"".join(records))


def opened(data: str = "a.rec") -> Dataset:
    return sources.open_source(DataConfig(data=data), seed=0, show=False)


def refused(data: str = "a.rec") -> Problem:
    with pytest.raises(Problem) as found:
        opened(data)
    return found.value


def test_records_of_one_part_are_indexed_in_place():
    rec(HEADER_RECORD, JPEG_RECORD, PNG_RECORD)
    found = opened()
    whole = found.whole
    assert whole is not None and (found.classes, found.ignored) == (("0", "1", "2"), 1)
    assert [whole.read(s) for s in range(2)] == [b"\xff\xd8\xff\xe0abc", b"\x89PNG\r\n\x1a\n"]
    assert whole.label.tolist() == [1, 2] and whole.codec.tolist() == [JPEG, OTHER]


def test_an_index_beside_it_makes_no_difference():
    rec(JPEG_RECORD, PNG_RECORD)
    before = opened().fingerprint()
    Path("a.idx").write_text("0\t0\n1\t40\n")
    assert opened().fingerprint() == before


def test_a_folder_of_files_is_split_by_their_names():
    Path("d").mkdir()
    rec(JPEG_RECORD, PNG_RECORD, path="d/set_train.rec")
    rec(PNG_RECORD, path="d/set_val.rec")
    Path("d/set_train.idx").write_text("0\t0\n1\t40\n")
    found = opened("d")
    assert (len(found.train), len(found.held_out), found.held_out_name) == (2, 1, "val")


def test_a_record_in_parts_is_refused_with_the_command_that_helps():
    rec(JPEG_RECORD, PARTS_RECORD)
    problem = refused()
    assert "a.rec holds a record in 3 parts at byte 40" in problem.what
    assert "stoker pack a.rec DEST" in problem.fix


def test_a_record_in_parts_among_thousands_is_left_out_and_counted():
    rec(*[JPEG_RECORD] * 600, PARTS_RECORD, *[PNG_RECORD] * 600)
    found = opened()
    assert (len(found.train) + len(found.held_out), found.ignored) == (1200, 1)


def test_samples_are_joined_from_their_parts():
    rec(HEADER_RECORD, JPEG_RECORD, PARTS_RECORD, PNG_RECORD, path="test.rec")
    found = list(recordio.samples([Path("test.rec")]))
    assert [s.raw for s in found] == [b"\xff\xd8\xff\xe0abc", IN_PARTS, b"\x89PNG\r\n\x1a\n"]
    assert [(s.label, s.split) for s in found] == [(1, "test"), (2, "test"), (2, "test")]
    assert found[1].name == "test.rec at byte 80"


def test_a_wrong_magic_number_is_refused_with_its_byte():
    rec(JPEG_RECORD, b"\x0b" + PNG_RECORD[1:])
    assert refused().what == "a.rec is damaged at byte 40: there is no record"


def test_a_truncated_file_is_refused():
    rec(JPEG_RECORD, PNG_RECORD[:-5])
    assert refused().what == "a.rec is damaged at byte 40: a record of 40 bytes, but the file ends at byte 83"
    rec(JPEG_RECORD, PNG_RECORD[:6])
    assert refused().what == "a.rec is damaged at byte 40: there is no record"


@pytest.mark.parametrize(
    ("records", "place"),
    [
        ((PARTS_RECORD[:36],), 0),
        ((PARTS_RECORD[:36], JPEG_RECORD), 36),
        ((JPEG_RECORD, PARTS_RECORD[36:]), 40),
        ((b"\x0a\x23\xd7\xce\0\0\0\xe0",), 0),
    ],
)
def test_parts_that_do_not_follow_each_other_are_refused(records: tuple[bytes, ...], place: int):
    rec(*records)
    assert f"a.rec is damaged at byte {place}: " in refused().what
    with pytest.raises(Problem, match=f"at byte {place}: "):
        list(recordio.samples([Path("a.rec")]))


@pytest.mark.parametrize("label", ["0000003f", "0000c07f", "0000807f"], ids=["a half", "no number", "infinity"])
def test_a_label_that_is_no_class_is_refused(label: str):
    rec(JPEG_RECORD, JPEG_RECORD[:12] + bytes.fromhex(label) + JPEG_RECORD[16:])
    assert "a.rec at byte 40 has the label" in refused().what


def test_an_absurd_number_of_labels_is_no_picture():
    rec(JPEG_RECORD, PNG_RECORD, JPEG_RECORD[:8] + b"\xff\xff\xff\xff" + JPEG_RECORD[12:])
    assert opened().ignored == 1


def test_a_record_that_is_too_short_for_a_picture_is_passed_over():
    rec(JPEG_RECORD, PNG_RECORD, bytes.fromhex("0a23d7ce 00000000"), bytes.fromhex("0a23d7ce 02000000 41420000"))
    assert opened().ignored == 2
