from pathlib import Path

import pytest

from stoker.config import DataConfig
from stoker.data import sources
from stoker.data.dataset import Dataset
from stoker.data.index import JPEG, OTHER
from stoker.data.sources import tfrecord
from stoker.errors import Problem

# Two records, byte by byte, as the tfrecord package (1.14.6) writes them with protobuf and crc32c.
FIRST = bytes.fromhex(
    "5a00000000000000 136fb4bf"  # 90 bytes; the length's checksum
    "0a58"  # Example.features
    "0a1d 0a0d 696d6167652f656e636f646564 120c 0a0a 0a08 ffd8ffe074696e79"  # image/encoded
    "0a1a 0a11 696d6167652f636c6173732f6c6162656c 1205 1a03 0a01 03"  # image/class/label: 3
    "0a1b 0a10 696d6167652f636c6173732f74657874 1207 0a05 0a03 656d75"  # image/class/text: emu
    "5763290e"  # the data's checksum
)
SECOND = bytes.fromhex(
    "5600000000000000 4e2de2b2"
    "0a54"
    "0a1e 0a0d 696d6167652f656e636f646564 120d 0a0b 0a09 89504e470d0a1a0a21"
    "0a1b 0a11 696d6167652f636c6173732f6c6162656c 1206 1a04 0a02 ac02"  # image/class/label: 300
    "0a15 0a0c 696d6167652f686569676874 1205 1a03 0a01 07"  # image/height: 7
    "a6daefd6"
)


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def field(number: int, raw: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def example(**features: bytes | list[bytes]) -> bytes:
    """An Example: texts are lists of bytes, and bytes are features as they are."""
    entries = b""
    for name, value in features.items():
        feature = value if isinstance(value, bytes) else field(1, b"".join(field(1, one) for one in value))
        entries += field(1, field(1, name.replace("_", "/").encode()) + field(2, feature))
    return field(1, entries)


def record(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    return length + tfrecord.masked_crc32c(length).to_bytes(4, "little") + data + bytes(4)


def written(*records: bytes, path: str = "a.tfrecord") -> None:
    Path(path).write_bytes(b"".join(records))


def opened(data: str = "a.tfrecord") -> Dataset:
    return sources.open_source(DataConfig(data=data), seed=0, show=False)


def refused(data: str = "a.tfrecord") -> str:
    with pytest.raises(Problem) as found:
        opened(data)
    assert found.value.fix
    return found.value.what


def test_the_checksum_is_crc_32c_as_published():
    # RFC 3720, B.4: 32 bytes of zeros, of ones, and counting up; then rotated by 15 bits, plus 0xa282ead8.
    def masked(crc: int) -> int:
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32

    assert tfrecord.masked_crc32c(bytes(32)) == masked(0x8A9136AA)
    assert tfrecord.masked_crc32c(b"\xff" * 32) == masked(0x62A8AB43)
    assert tfrecord.masked_crc32c(bytes(range(32))) == masked(0x46DD794E)


def test_the_checksum_is_that_of_another_writer():
    assert tfrecord.masked_crc32c(FIRST[:8]) == 0xBFB46F13
    assert tfrecord.masked_crc32c(FIRST[12:-4]) == 0x0E296357


def test_records_are_indexed_in_place():
    written(FIRST, SECOND)
    found = opened()
    whole = found.whole
    assert whole is not None
    assert [whole.read(s) for s in range(2)] == [b"\xff\xd8\xff\xe0tiny", b"\x89PNG\r\n\x1a\n!"]
    assert whole.codec.tolist() == [JPEG, OTHER]


def test_classes_are_the_numbers_found_with_names_where_they_are_given():
    written(FIRST, SECOND)
    found = opened()
    assert found.whole is not None
    assert found.classes == ("emu", "300") and found.whole.label.tolist() == [0, 1]


def test_a_synset_names_a_class_before_its_text_does():
    def one(number: int, synset: bytes) -> bytes:
        label = field(3, field(1, varint(number)))
        picture = {"image_encoded": [b"\xff\xd8\xff"], "image_class_label": label}
        return record(example(**picture, image_class_text=[b"crane"], image_class_synset=[synset]))

    written(one(135, b"n02012849"), one(518, b"n03126707"))
    assert opened().classes == ("n02012849", "n03126707")


def test_two_classes_of_one_name_are_told_apart():
    def one(number: int) -> bytes:
        label = field(3, field(1, varint(number)))
        return record(example(image_encoded=[b"\xff\xd8\xff"], image_class_label=label, image_class_text=[b"crane"]))

    written(one(135), one(518))
    assert opened().classes == ("crane (135)", "crane (518)")


def test_a_number_may_be_packed_or_not_and_names_may_be_those_of_tensorflow_datasets():
    packed, plain = field(3, field(1, varint(700) + varint(1))), field(3, b"\x08" + varint(5))
    written(*(record(example(label=label, image=[b"\xff\xd8\xff"])) for label in (packed, plain)))
    found = opened()
    assert found.whole is not None
    assert found.classes == ("5", "700") and found.whole.label.tolist() == [1, 0]


def test_a_feature_before_its_name_is_read():
    label = field(2, field(3, field(1, varint(4)))) + field(1, b"label")
    written(
        record(field(1, field(1, label) + field(1, field(1, b"image") + field(2, field(1, field(1, b"BM")))))), FIRST
    )
    assert opened().classes == ("emu", "4")


def test_a_folder_of_shards_is_split_by_their_names():
    Path("d").mkdir()
    written(FIRST, SECOND, path="d/train-00000-of-00002")
    written(SECOND, FIRST, path="d/train-00001-of-00002")
    written(SECOND, path="d/validation-00000-of-00001")
    found = opened("d")
    assert (len(found.train), len(found.held_out), found.held_out_name) == (4, 1, "validation")
    assert found.train.label.tolist() == [0, 1, 1, 0] and found.held_out.label.tolist() == [1]


def test_a_damaged_length_is_refused_with_its_byte():
    written(FIRST, b"\x57" + SECOND[1:])
    assert refused() == "a.tfrecord is damaged at byte 106: the checksum of a record's length is wrong"


def test_a_truncated_file_is_refused():
    written(FIRST, SECOND[:50])
    assert refused() == "a.tfrecord is damaged at byte 118: a record up to byte 208, but the file ends at byte 156"
    written(FIRST, SECOND[:7])
    assert "at byte 106" in refused()


def test_records_without_a_picture_are_counted():
    written(FIRST, SECOND, record(example(image_class_label=field(3, field(1, varint(3))))), record(b""))
    assert opened().ignored == 2


def test_a_picture_without_a_label_is_refused_with_the_features_that_are_there():
    written(record(example(image_encoded=[b"\xff\xd8\xff"], image_format=[b"JPEG"])))
    assert "at byte 12; its features: image/encoded, image/format" in refused()


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # longer than the record
        b"\x0a" + b"\xff" * 12,  # a number without an end
        b"\x0b\x00",  # the beginning of a group, which is long gone
        b"\x0a\x02\x0a\x09",  # longer than what it is in
        b"\x0a",  # nothing behind the key
        b"\x09\x00",  # 8 bytes, of which one is there
        example(image_encoded=[b"\xff\xd8\xff"], image_class_label=field(3, field(1, b""))),
        example(image_encoded=[b"\xff\xd8\xff"], image_class_label=field(3, field(1, b"\xff\xff"))),
    ],
)
def test_a_protocol_buffer_that_makes_no_sense_is_refused(data: bytes):
    written(FIRST, record(data))
    assert "a.tfrecord is damaged at byte 118: no Example can be read" in refused()


def test_a_picture_that_would_go_on_behind_its_record_is_refused():
    written(FIRST.replace(b"\x0a\x08\xff\xd8", b"\x0a\x7f\xff\xd8"), SECOND, SECOND)
    assert "at byte 12: no Example can be read: a field of 127 bytes where 8 are left" in refused()


def test_bytes_that_are_changed_anywhere_lead_to_a_problem_or_to_samples_in_the_file():
    for place in range(12, len(FIRST) - 4):
        for flip in (0x01, 0x80, 0xFF):
            spoiled = bytearray(FIRST)
            spoiled[place] ^= flip
            written(SECOND, bytes(spoiled))
            try:
                found = tfrecord.rows([Path("a.tfrecord")], root=Path())
            except Problem:
                continue
            ends = [start + size for start, size in zip(found.offset, found.length, strict=True)]
            assert max(ends) <= len(FIRST) + len(SECOND)
