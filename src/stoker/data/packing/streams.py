"""Tar streams: pictures out of a tar that is read once, from front to back, and is never on a disk.

Two kinds of tar are understood, and may be mixed: class folders (train/n01440764/x.JPEG, where the last folder is the
class), and WebDataset's samples (000123.jpg beside 000123.cls, .json or .txt, which hold the label). A folder train,
val or test above them names the split. Several tars one after another, as `cat` makes them, are one stream.
"""

import bz2
import gzip
import json
import lzma
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Protocol

from stoker.data.dataset import SPLITS
from stoker.data.samples import Sample
from stoker.data.sources.pictures import SUFFIXES
from stoker.data.sources.tars import LABELS, NAMES, NUMBERS, text_label
from stoker.errors import Problem

CHUNK_BYTES = 64 * tarfile.BLOCKSIZE
LARGEST_BYTES = 2**30
LARGEST_LABEL_BYTES = 2**20
# More members of one key than this are no sample of WebDataset's, but files whose names begin alike.
MOST_MEMBERS = 16
# How compressed data begins; long enough that no member's name is taken for it.
MAGIC: dict[bytes, Any] = {
    rb"\x1f\x8b\x08": gzip.open,
    rb"BZh[1-9]1AY&SY": bz2.open,
    rb"\xfd7zXZ\0": lzma.open,
}
DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError)


class Reader(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A picture or a label out of a tar."""

    name: str
    raw: bytes
    at: int
    """the byte of the tar at which it begins"""

    @property
    def key(self) -> str:
        """its name up to the first dot, which all members of a sample share"""
        folder, slash, base = self.name.rpartition("/")
        return folder + slash + base.partition(".")[0]

    @property
    def suffix(self) -> str:
        """its name after the first dot, in small letters"""
        return self.name.rpartition("/")[2].partition(".")[2].lower()

    @property
    def is_label(self) -> bool:
        """whether it may hold the label of the pictures of its key"""
        return self.suffix in LABELS


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A sample, and where reading must begin to meet it again."""

    sample: Sample
    at: int


class Feed:
    """A reader that gives all that was asked for, can be put back a little, and knows where it is."""

    def __init__(self, reader: Reader, *, at: int = 0) -> None:
        self.reader, self.at = reader, at
        self.last = b""
        self.back = b""

    def read(self, size: int) -> bytes:
        """The next `size` bytes; less only at the end."""
        pieces, missing = [self.back[:size]], size - len(self.back)
        self.back = self.back[size:]
        while missing > 0 and (piece := self.reader.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces)
        self.at += len(data)
        self.last = data or self.last
        return data

    def return_to(self, at: int) -> None:
        """Give again what was given from a place on, which must be in the last piece."""
        behind = self.at - at
        assert 0 <= behind <= len(self.last)
        self.back = self.last[len(self.last) - behind :] + self.back
        self.at = at


def standard_input() -> BinaryIO:
    """What is piped into this program."""
    if sys.stdin is None or sys.stdin.isatty():
        raise Problem("nothing is piped into stoker pack -", fix="pipe a tar into it: tar c DATA | stoker pack - DEST")
    return sys.stdin.buffer


class Opened:
    """A stream whose compression is known."""

    def __init__(self, reader: Reader, *, at: int = 0) -> None:
        feed = Feed(reader)
        begin = feed.read(tarfile.BLOCKSIZE)
        feed.return_to(0)
        unpacked = next((kind for magic, kind in MAGIC.items() if re.match(magic, begin)), None)
        self.is_plain = unpacked is None
        """whether bytes of the stream are bytes of the tar, so that reading can begin in the middle"""
        self.feed = Feed(unpacked(feed) if unpacked else feed, at=at)


def samples(opened: Opened, *, name: str) -> Iterator[Arrival]:
    """The samples of a stream. Ends with a Problem where the stream is cut off or damaged."""
    group: list[Member] = []
    try:
        for member in members(opened.feed, name=name):
            if group and (member.key != group[0].key or len(group) > MOST_MEMBERS):
                yield from grouped(group)
                group = []
            group.append(member)
    except DAMAGED as error:
        raise Problem(
            f"{name} is damaged or cut off, after {opened.feed.at:,} bytes of its tar: {error}",
            fix="give the whole stream: the same command again keeps the whole shards and goes on after them",
        ) from None
    yield from grouped(group)


def members(feed: Feed, *, name: str) -> Iterator[Member]:
    """The pictures and labels of one or more tars, in their order."""
    while True:
        start = feed.at
        with tarfile.open(fileobj=feed, mode="r|", bufsize=CHUNK_BYTES) as tar:  # type: ignore[call-overload]
            while (info := tar.next()) is not None:
                # It would keep all of them, and there may be millions.
                tar.members = []
                if is_wanted(info, stream=name):
                    file = tar.extractfile(info)
                    assert file is not None
                    yield Member(name=info.name.removeprefix("./"), raw=file.read(), at=start + info.offset)
        feed.return_to(start + tar.offset)
        # tarfile takes anything that is no header for the end; the real end is zeros.
        block = feed.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE:
            raise EOFError("the end mark of the tar is missing")
        if any(block):
            raise tarfile.ReadError(f"there is no tar header at byte {start + tar.offset:,}")
        while len(block) == tarfile.BLOCKSIZE and not any(block):
            block = feed.read(tarfile.BLOCKSIZE)
        if not any(block):
            return
        feed.return_to(feed.at - len(block))


def is_wanted(info: tarfile.TarInfo, *, stream: str) -> bool:
    """Whether a member is a picture or a label. One that has no business in a dataset is refused."""
    path = PurePosixPath(info.name)
    wrong = ""
    if path.is_absolute() or ".." in path.parts:
        wrong = "its name points outside of the tar"
    elif not info.isdir() and (not info.isfile() or info.issparse()):
        wrong = "it is a link, a device or another thing that is no plain file"
    elif info.size > LARGEST_BYTES:
        wrong = f"it has {info.size:,} bytes, and no picture has so many"
    if wrong:
        raise Problem(
            f"{stream} holds {info.name!r}, which is refused: {wrong}",
            fix="make the tar anew from plain pictures: tar --dereference -cf NEW.tar -C FOLDER .",
        )
    if info.isdir() or path.name.startswith("."):
        return False
    return path.suffix.lower() in SUFFIXES or (
        path.name.partition(".")[2].lower() in LABELS and info.size <= LARGEST_LABEL_BYTES
    )


def grouped(group: list[Member]) -> Iterator[Arrival]:
    """The samples of members that have one key: one with its label, or a file each in its class folder."""
    ordered = sorted((m for m in group if m.is_label), key=lambda member: LABELS.index(member.suffix))
    label = next((found for member in ordered if (found := label_in(member)) is not None), None)
    pictures = [member for member in group if not member.is_label]
    if label is not None:
        # Beside x.jpg there may be an x.mask.png, which is not what is learned from.
        pictures = [member for member in pictures if f".{member.suffix}" in SUFFIXES]
    if label is not None and len(pictures) > 1:
        raise Problem(
            f"the sample {group[0].key} has {len(pictures)} pictures: {', '.join(m.name for m in pictures[:4])}",
            fix="give a tar with one picture a sample",
        )
    for member in pictures:
        yield arrival(member, label, at=group[0].at)


def label_in(member: Member) -> int | str | None:
    """The label that a member holds; None where it holds none."""
    if member.suffix != "json":
        return text_label(member.raw.decode(errors="replace"))
    try:
        said = json.loads(member.raw)
    except (ValueError, RecursionError):
        raise Problem(f"{member.name} can't be read as JSON", fix="make the tar anew without it") from None
    if type(said) is int:
        return said
    values = said if isinstance(said, dict) else {}
    number = next((values[key] for key in NUMBERS if type(values.get(key)) is int), None)
    name = next((values[key] for key in NAMES if isinstance(values.get(key), str)), None)
    return text_label(name) if number is None and name is not None else number


def arrival(member: Member, label: int | str | None, *, at: int) -> Arrival:
    """A picture as a sample. Without a label, its class is the folder below the split's, or else its own folder."""
    folders = member.name.split("/")[:-1]
    upper = folders if label is not None else folders[:-1]
    named = next((place for place in reversed(range(len(upper))) if upper[place].lower() in SPLITS), None)
    if label is None:
        if not folders:
            raise Problem(
                f"the picture {member.name} is in no class folder, and no .cls, .json or .txt beside it has its label",
                fix="give a tar of class folders, or of WebDataset samples",
            )
        label = folders[-1 if named is None else named + 1]
    split = "" if named is None else SPLITS[upper[named].lower()]
    return Arrival(sample=Sample(name=member.name, raw=member.raw, label=label, split=split), at=at)
