"""MXNet's RecordIO (.rec) as im2rec writes it, read without MXNet.

A record is a magic number, a word of a flag (3 bits) and a length (29 bits), and the data, filled up to 4 bytes. Data
that holds the magic number itself is cut there into parts, and only then its bytes are not together. The .idx beside
a .rec says where records begin; their lengths and labels have to be read anyway, so it is not needed.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.data import dataset
from stoker.data.samples import Sample
from stoker.data.sources import pictures
from stoker.data.sources.pages import Pages
from stoker.data.sources.rows import Rows
from stoker.errors import Problem

MAGIC = bytes.fromhex("0a23d7ce")
WHOLE, FIRST, MIDDLE, LAST = range(4)
# Flag (how many labels follow this header, where it is not 0), label, and two numbers of the record.
IMAGE = struct.Struct("<IfQQ")
# Share of records in parts that is left out without a word of protest.
MOST_APART = 0.001
# With more labels than that a record is no classifier's.
MOST_LABELS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a record, in most files all of it."""

    place: int
    """where its magic number is"""
    flag: int
    length: int

    @property
    def offset(self) -> int:
        """where its data begins"""
        return self.place + 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """What the data of a record says of its picture."""

    label: int
    codec: int
    start: int
    """where in the data the picture begins"""


def damaged(pages: Pages, place: int, what: str) -> Problem:
    """The problem of a .rec that is not as it should be."""
    return Problem(f"{pages.path} is damaged at byte {place}: {what}", fix="copy or download it again")


def parts(pages: Pages) -> Iterator[Part]:
    """All parts in a file, from front to back."""
    place = 0
    while place < pages.size:
        head = pages.at(place, 8)
        if len(head) < 8 or not head.startswith(MAGIC):
            raise damaged(pages, place, "there is no record")
        word = int.from_bytes(head[4:], "little")
        part = Part(place=place, flag=word >> 29, length=word & (1 << 29) - 1)
        if part.offset + part.length > pages.size:
            raise damaged(pages, place, f"a record of {part.length} bytes, but the file ends at byte {pages.size}")
        yield part
        place = part.offset + -(-part.length // 4) * 4


def records(pages: Pages) -> Iterator[list[Part]]:
    """The parts of each record."""
    record: list[Part] = []
    for part in parts(pages):
        if part.flag > LAST or (part.flag in (WHOLE, FIRST)) == bool(record):
            raise damaged(pages, part.place, f"a part of kind {part.flag} after {len(record)} parts of its record")
        record.append(part)
        if part.flag in (WHOLE, LAST):
            yield record
            record = []
    if record:
        raise damaged(pages, record[0].place, "the last part of this record is missing")


def joined(pages: Pages, record: list[Part]) -> bytes:
    """A record's data. What it was cut at, the magic number, is put back."""
    return MAGIC.join(pages.at(part.offset, part.length) for part in record)


def picture(head: bytes, *, length: int, where: str) -> Picture | None:
    """What the beginning of a record's data says of its picture; None where it holds none."""
    if length <= IMAGE.size:
        return None
    labels, label, _, _ = IMAGE.unpack_from(head)
    start = IMAGE.size + 4 * labels
    codec = pictures.codec(head[start : start + pictures.HEAD])
    if codec is None:
        return None
    if labels:
        (label,) = struct.unpack_from("<f", head, IMAGE.size)
    if not label.is_integer():
        raise Problem(f"{where} has the label {label}", fix="give each picture the number of its class")
    return Picture(label=int(label), codec=codec, start=start)


def head_of(pages: Pages, part: Part) -> bytes:
    """The first bytes of a record's data: its header and labels, and the beginning of its picture."""
    head = pages.at(part.offset, min(part.length, IMAGE.size + pictures.HEAD))
    labels = int.from_bytes(head[:4], "little")
    if not 0 < labels <= MOST_LABELS:
        return head
    return pages.at(part.offset, min(part.length, IMAGE.size + pictures.HEAD + 4 * labels))


def rows(files: Sequence[Path], *, root: Path) -> Rows:
    """Find the samples of some .rec files. Reads the records' headers, not the pictures.

    A record in parts can't be read in place. Where they are an accident (some ten in ImageNet) they are left out and
    counted as ignored; where they are many, the file must be packed.
    """
    found, apart = Rows(root=root), list[str]()
    for path in files:
        found.begin(path)
        with Pages(path) as pages:
            for part, *rest in records(pages):
                if rest:
                    apart.append(f"{path} holds a record in {len(rest) + 1} parts at byte {part.place}")
                    continue
                seen = picture(head_of(pages, part), length=part.length, where=f"{path} at byte {part.place}")
                if seen is None:
                    found.ignored += 1
                else:
                    length = part.length - seen.start
                    found.add(part.offset + seen.start, length, label=seen.label, codec=seen.codec)
    if len(apart) > MOST_APART * len(found.file):
        many = f"{len(apart)} of {len(found.file) + len(apart)} records"
        raise Problem(
            f"{apart[0]}, so its picture's bytes are not together ({many})",
            fix=f"stoker pack {files[0] if len(files) == 1 else root} DEST, and then give DEST",
        )
    found.ignored += len(apart)
    return found


def samples(files: Sequence[Path]) -> Iterator[Sample]:
    """Every picture, also of records in several parts, in the order of the files."""
    for path in files:
        split = dataset.split_of(f"{path.parent.name}/{path.name}")
        with Pages(path) as pages:
            for record in records(pages):
                where = f"{path} at byte {record[0].place}"
                data = joined(pages, record)
                seen = picture(data, length=len(data), where=where)
                if seen is not None:
                    yield Sample(name=where, raw=data[seen.start :], label=seen.label, split=split)
