"""Tar streams: pictures out of a tar that is read once, from front to back, and is never on a disk.

Two kinds of tar are understood, and may be mixed: class folders (train/n01440764/x.JPEG), and WebDataset's samples
(000123.jpg beside 000123.cls, .json or .txt, which hold the label). A folder train, val or test above them names the
split, and the class folder is the one below it. Where no folder names a split, it is a picture's own folder. Several
tars one after another, as `cat` makes them, are one stream.
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
from stoker.data.samples import LARGEST_BYTES, Sample
from stoker.data.sources.lists import is_address
from stoker.data.sources.pictures import SUFFIXES
from stoker.data.sources.tars import LABELS, json_said, text_label
from stoker.errors import Problem

CHUNK_BYTES = 64 * tarfile.BLOCKSIZE
LARGEST_LABEL_BYTES = 2**20
# More members of one key than this are no sample of WebDataset's, but files whose names begin alike.
MOST_MEMBERS = 16
# How compressed data begins; long enough that no member's name is taken for it.
MAGIC: dict[bytes, Any] = {
    rb"\x1f\x8b\x08": gzip.open,
    rb"BZh[1-9]1AY&SY": bz2.open,
    rb"\xfd7zXZ\0": lzma.open,
}
# Compressions that are not undone here -> the program's name and the command that undoes them.
FOREIGN = {b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"), b"\x04\x22\x4d\x18": ("lz4", "lz4 -dc")}
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
    title: str = ""
    """the name of its class, where the label is a number and the source says both"""
    above: str | None = None
    """the folder above its class folder; None where a label or a split says which folder that is"""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a member says of the pictures of its key."""

    label: int | str
    title: str = ""


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

    def __init__(self, reader: Reader, *, at: int = 0, name: str = "-") -> None:
        feed = Feed(reader)
        begin = feed.read(tarfile.BLOCKSIZE)
        feed.return_to(0)
        check_compression(begin, name=name)
        unpacked = next((kind for magic, kind in MAGIC.items() if re.match(magic, begin)), None)
        self.is_plain = unpacked is None
        """whether bytes of the stream are bytes of the tar, so that reading can begin in the middle"""
        self.feed = Feed(unpacked(feed) if unpacked else feed, at=at)


def check_compression(begin: bytes, *, name: str) -> None:
    """Refuse what is compressed in a way that is not undone here."""
    for magic, (program, undo) in FOREIGN.items():
        if begin.startswith(magic):
            what = "the stream" if name == "-" else name
            if is_address(name):
                undo = f"curl -L {name} | {undo}"
            else:
                undo += f" {'FILE.tar.*' if name == '-' else name}"
            raise Problem(
                f"{what} is compressed with {program}, which Stoker does not undo", fix=f"{undo} | stoker pack - DEST"
            )


def check_begin(feed: Feed, *, name: str) -> None:
    """Refuse what is no tar from its first byte on, which is not the same as a damaged one."""
    # As much as is read next anyway, so that what comes after it is read in the same pieces.
    chunk = feed.read(CHUNK_BYTES)
    feed.return_to(feed.at - len(chunk))
    begin = chunk[: tarfile.BLOCKSIZE]
    if len(begin) < tarfile.BLOCKSIZE or not any(begin):
        return
    try:
        tarfile.TarInfo.frombuf(begin, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        raise Problem(
            f"{name} is no tar: it begins with {begin[:24]!r}",
            fix="give a tar, plain or compressed with gzip, bzip2 or xz: tar c FOLDER | stoker pack - DEST",
        ) from None


def samples(opened: Opened, *, name: str) -> Iterator[Arrival]:
    """The samples of a stream. Ends with a Problem where the stream is cut off or damaged."""
    group: list[Member] = []
    try:
        if opened.feed.at == 0:
            check_begin(opened.feed, name=name)
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
            fix="make the tar anew from plain pictures: tar --dereference --hard-dereference -cf NEW.tar -C FOLDER .",
        )
    if info.isdir() or path.name.startswith("."):
        return False
    return path.suffix.lower() in SUFFIXES or (
        path.name.partition(".")[2].lower() in LABELS and info.size <= LARGEST_LABEL_BYTES
    )


def grouped(group: list[Member]) -> Iterator[Arrival]:
    """The samples of members that have one key: one with its label, or a file each in its class folder."""
    ordered = sorted((m for m in group if m.is_label), key=lambda member: LABELS.index(member.suffix))
    said = next((found for member in ordered if (found := said_in(member)) is not None), None)
    pictures = [member for member in group if not member.is_label]
    if said is not None:
        # Beside x.jpg there may be an x.mask.png, which is not what is learned from.
        pictures = [member for member in pictures if f".{member.suffix}" in SUFFIXES]
    if said is not None and len(pictures) > 1:
        raise Problem(
            f"the sample {group[0].key} has {len(pictures)} pictures: {', '.join(m.name for m in pictures[:4])}",
            fix="give a tar with one picture a sample",
        )
    for member in pictures:
        yield arrival(member, said, at=group[0].at)


def said_in(member: Member) -> Said | None:
    """The label that a member holds; None where it holds none. In JSON a name may stand beside a number."""
    if member.suffix != "json":
        label = text_label(member.raw.decode(errors="replace"))
        return None if label is None else Said(label=label)
    try:
        said = json.loads(member.raw)
    except (ValueError, RecursionError):
        raise Problem(f"{member.name} can't be read as JSON", fix="make the tar anew without it") from None
    label, title = json_said(said)
    return None if label is None else Said(label=label, title=title)


def arrival(member: Member, said: Said | None, *, at: int) -> Arrival:
    """A picture as a sample. Without a label, its class is the folder below the split's, or else its own folder."""
    folders = member.name.split("/")[:-1]
    upper = folders if said is not None else folders[:-1]
    named = next((place for place in reversed(range(len(upper))) if upper[place].lower() in SPLITS), None)
    above = None
    if said is None:
        if not folders:
            raise Problem(
                f"the picture {member.name} is in no class folder, and no .cls, .json or .txt beside it has its label",
                fix="give a tar of class folders, or of WebDataset samples",
            )
        above = "/".join(upper) if named is None else None
        said = Said(label=folders[-1 if named is None else named + 1])
    split = "" if named is None else SPLITS[upper[named].lower()]
    sample = Sample(name=member.name, raw=member.raw, label=said.label, split=split)
    return Arrival(sample=sample, at=at, title=said.title, above=above)
