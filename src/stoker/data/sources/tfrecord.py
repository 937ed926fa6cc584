"""TFRecord files of ImageNet-style Examples, indexed in place and read without TensorFlow.

A record is a length, the length's checksum, the data and the data's checksum. The data is a protocol buffer in which
the encoded picture lies as it is, so that all around it is read and the picture is not.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.data.sources import pictures
from stoker.data.sources.pages import Pages
from stoker.data.sources.rows import MOST_BYTES, Rows
from stoker.errors import Problem

HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4
# As tf.train.Example has them for ImageNet; behind them, as TensorFlow Datasets writes them.
PICTURE = (b"image/encoded", b"image")
LABEL = (b"image/class/label", b"label")
# The synset comes first: ImageNet has two classes whose text is "crane".
NAME = (b"image/class/synset", b"image/class/text")
WANTED = frozenset((*PICTURE, *LABEL, *NAME))
# Types of fields in a protocol buffer, and the bytes of those that are always as long.
VARINT, BYTES = 0, 2
FIXED_BYTES = {1: 8, 5: 4}
# Two numbers of ten bytes.
FIELD_HEAD = 20
MOST_TEXT_BYTES = 1024


def crc32c_table() -> list[int]:
    """CRC-32C (Castagnoli) of every byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def masked_crc32c(data: bytes) -> int:
    """The checksum that TFRecord files carry. For short data: a byte takes a step of Python."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_header(head: bytes) -> bool:
    """Whether some bytes are the beginning of a record: the checksum of its length says so."""
    return len(head) == HEADER.size and masked_crc32c(head[:8]) == HEADER.unpack(head)[1]


class Damaged(Exception):
    """A protocol buffer that does not keep its own rules."""


def records(pages: Pages) -> Iterator[range]:
    """The data of each record in a file, from front to back."""
    place = 0
    while place < pages.size:
        head = pages.at(place, HEADER.size)
        if not is_header(head):
            raise damaged(pages, place, "the checksum of a record's length is wrong")
        start = place + HEADER.size
        data = range(start, start + HEADER.unpack(head)[0])
        place = data.stop + FOOTER_BYTES
        if place > pages.size:
            raise damaged(pages, data.start, f"a record up to byte {place}, but the file ends at byte {pages.size}")
        yield data


def damaged(pages: Pages, place: int, what: str) -> Problem:
    """The problem of a TFRecord file that is not as it should be."""
    return Problem(f"{pages.path} is damaged at byte {place}: {what}", fix="copy or download it again")


def varint(raw: bytes, place: int) -> tuple[int, int]:
    """A number of up to ten bytes, and the place behind it."""
    if place < len(raw) and raw[place] < 0x80:
        return raw[place], place + 1
    value = 0
    for shift, byte in enumerate(raw[place : place + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & (1 << 64) - 1, place + shift + 1
    raise Damaged("a number without an end")


def fields(pages: Pages, message: range) -> Iterator[tuple[int, range | int]]:
    """The fields of a message: the number of each, and where its bytes are or, for a plain number, its value."""
    place, stop = message.start, message.stop
    while place < stop:
        head = pages.at(place, min(FIELD_HEAD, stop - place))
        key, used = varint(head, 0)
        kind = key & 7
        length = FIXED_BYTES.get(kind, 0)
        if kind in (VARINT, BYTES):
            length, used = varint(head, used)
        elif not length:
            raise Damaged(f"a field of the unknown type {kind}")
        place += used
        if kind == VARINT:
            yield key >> 3, length
            continue
        if place + length > stop:
            raise Damaged(f"a field of {length} bytes where {stop - place} are left")
        yield key >> 3, range(place, place + length)
        place += length


def inner(pages: Pages, message: range, number: int) -> Iterator[range]:
    """The messages or strings in a message that have a number."""
    for found, value in fields(pages, message):
        if found == number and isinstance(value, range):
            yield value


def features(pages: Pages, example: range, *, wanted: frozenset[bytes] | None) -> dict[bytes, range]:
    """Where the features of an Example are, by their names: those that are wanted, or all."""
    found = {}
    for group in inner(pages, example, 1):
        for entry in inner(pages, group, 1):
            parts = {}
            for number, value in fields(pages, entry):
                parts[number] = value
                # What is not wanted is stepped over, which is most of an Example.
                if number == 1 and wanted is not None and text(pages, value) not in wanted:
                    break
            else:
                name, feature = parts.get(1), parts.get(2)
                if isinstance(name, range) and isinstance(feature, range):
                    found[text(pages, name)] = feature
    return found


def text(pages: Pages, value: range | int) -> bytes:
    """A short text; what is too long for one is cut."""
    return pages.at(value.start, min(len(value), MOST_TEXT_BYTES)) if isinstance(value, range) else b""


def first_bytes(pages: Pages, feature: range) -> range | None:
    """The first string of a feature: Feature.bytes_list.value[0]."""
    return next((value for values in inner(pages, feature, 1) for value in inner(pages, values, 1)), None)


def first_number(pages: Pages, feature: range) -> int | None:
    """The first number of a feature: Feature.int64_list.value[0], packed or not."""
    for values in inner(pages, feature, 3):
        for number, value in fields(pages, values):
            if number == 1:
                whole = value if isinstance(value, int) else varint(text(pages, value), 0)[0]
                return whole - (1 << 64) if whole >> 63 else whole
    return None


def rows(files: Sequence[Path], *, root: Path) -> Rows:
    """Find the samples of some TFRecord files. Classes are the numbers found, with names where there are some."""
    found = Rows(root=root, only_found=True)
    for path in files:
        found.begin(path)
        with Pages(path) as pages:
            for record in records(pages):
                try:
                    add(found, pages, record)
                except Damaged as error:
                    raise damaged(pages, record.start, f"no Example can be read: {error}") from None
    return found


def add(found: Rows, pages: Pages, record: range) -> None:
    """Add the sample of one record."""
    here = features(pages, record, wanted=WANTED)
    encoded = next((here[key] for key in PICTURE if key in here), None)
    span = None if encoded is None else first_bytes(pages, encoded)
    codec = None if span is None else pictures.codec(pages.at(span.start, min(pictures.HEAD, len(span))))
    if span is None or codec is None:
        found.ignored += 1
        return
    if len(span) > MOST_BYTES:
        raise Damaged(f"a picture of {len(span)} bytes")
    numbered = next((here[key] for key in LABEL if key in here), None)
    label = None if numbered is None else first_number(pages, numbered)
    if label is None:
        names = sorted(name.decode(errors="replace") for name in features(pages, record, wanted=None))
        raise Problem(
            f"{pages.path} holds a picture without the number of a class at byte {record.start}; "
            f"its features: {', '.join(names)[:1000]}",
            fix=f"leave files without labels out; labels are looked for in {' and '.join(k.decode() for k in LABEL)}",
        )
    if label not in found.names:
        named = next((here[key] for key in NAME if key in here), None)
        name = None if named is None else first_bytes(pages, named)
        if name:
            found.names[label] = text(pages, name).decode(errors="replace")
    found.add(span.start, len(span), label=label, codec=codec)
