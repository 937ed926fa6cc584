"""WebDataset tar shards, indexed in place: the headers and the labels are read, the pictures are not."""

import functools
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.data import index
from stoker.data.dataset import SPLITS, split_among
from stoker.data.sources.pages import Pages
from stoker.data.sources.pictures import SUFFIXES
from stoker.data.sources.rows import MOST_BYTES, Label, Rows
from stoker.errors import Problem

BLOCK = 512
END = bytes(BLOCK)
FILES, FOLDER, LONG_NAME, EXTENDED, EXTENDED_FOR_ALL = (b"0", b"\0", b"7"), b"5", b"L", b"x", b"g"
REFUSED = {b"1": "a link", b"2": "a link", b"K": "a link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
PICTURES = frozenset(suffix.removeprefix(".") for suffix in SUFFIXES)
# Where labels are looked for, in this order.
LABELS = ("cls", "json", "txt")
NUMBERS = ("label", "cls", "class", "class_id")
NAMES = ("class_name", "label_name", "label", "cls", "class")
# What is longer is no label, and no header that belongs to a name.
MOST_TEXT_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file in a tar."""

    name: str
    folder: str
    stem: str
    """its name below the folder up to the first dot, which all members of a sample share"""
    suffix: str
    """what follows that dot, in small letters"""
    offset: int
    size: int


def damaged(pages: Pages, place: int, what: str) -> Problem:
    """The problem of a tar that is not as it should be."""
    return Problem(f"{pages.path} is damaged at byte {place}: {what}", fix="copy or download it again")


def is_header(head: bytes) -> bool:
    """Whether some bytes are a tar header: its checksum says so."""
    try:
        stored = int(head[148:156].strip(b" \0"), 8)
    except ValueError:
        return False
    # The low half of Adler-32 is one more than the sum of the bytes, modulo 65521.
    total = zlib.adler32(head[:148] + b" " * 8 + head[156:BLOCK]) & 0xFFFF
    return len(head) >= BLOCK and (stored + 1) % 65521 == total


def header(pages: Pages, place: int) -> bytes | None:
    """The header at a place; None at the end mark."""
    head = pages.at(place, BLOCK)
    if head == END:
        return None
    if not head:
        raise Problem(
            f"{pages.path} ends at byte {pages.size} without the end mark of a tar, so more of it may be missing",
            fix=f"copy or download it again; if it is whole: head -c 1024 /dev/zero >> {pages.path}",
        )
    if len(head) < BLOCK:
        raise damaged(pages, place, f"the file ends at byte {pages.size}, in the middle of a header")
    if not is_header(head):
        raise damaged(pages, place, "there is no tar header")
    return head


def number(pages: Pages, place: int, raw: bytes) -> int:
    """A number of a header: octal digits, or binary where the first bit is set."""
    if raw[0] == 0x80:
        return int.from_bytes(raw[1:], "big")
    digits = raw.strip(b" \0")
    if digits.translate(None, b"01234567"):
        raise damaged(pages, place, f"{raw!r} is no size")
    return int(digits or b"0", 8)


def extended(pages: Pages, place: int, raw: bytes) -> dict[bytes, bytes]:
    """The records of an extended header: "LENGTH KEY=VALUE\\n", one after another."""
    found = {}
    while raw:
        digits, _, _ = raw.partition(b" ")
        if not (digits.isdigit() and len(digits) < 8 and len(digits) + 3 <= int(digits) <= len(raw)):
            raise damaged(pages, place, "an extended header can't be read")
        key, _, value = raw[len(digits) + 1 : int(digits) - 1].partition(b"=")
        found[key] = value
        raw = raw[int(digits) :]
    return found


def plain_name(head: bytes) -> bytes:
    """The name in a header itself."""
    name = head[:100].partition(b"\0")[0]
    # GNU writes "ustar " and other things into the place of the prefix.
    prefix = head[345:500].partition(b"\0")[0] if head[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def members(pages: Pages) -> Iterator[Member]:
    """The files in a tar, from front to back. Refuses links, devices, ways out of the tar, and what is cut off."""
    place, more = 0, dict[bytes, bytes]()
    while head := header(pages, place):
        kind = head[156:157]
        size = int(more[b"size"]) if b"size" in more else number(pages, place, head[124:136])
        name = os.fsdecode(more.get(b"path") or plain_name(head))
        start = place + BLOCK
        if start + size > pages.size:
            what = f"{name} would end at byte {start + size}, but the file ends at byte {pages.size}"
            raise damaged(pages, place, what)
        if kind in (EXTENDED, EXTENDED_FOR_ALL, LONG_NAME):
            more |= attributes(pages, place, kind, size)
        else:
            check(pages, place, kind, name)
            if kind in FILES and not name.endswith("/"):
                name = name.removeprefix("./")
                folder, _, base = name.rpartition("/")
                stem, _, suffix = base.partition(".")
                yield Member(name=name, folder=folder, stem=stem, suffix=suffix.lower(), offset=start, size=size)
            more = {}
        place = start + -(-size // BLOCK) * BLOCK


def attributes(pages: Pages, place: int, kind: bytes, size: int) -> dict[bytes, bytes]:
    """What a header says of the member after it."""
    if size > MOST_TEXT_BYTES:
        raise damaged(pages, place, f"a header of {size} bytes")
    raw = pages.at(place + BLOCK, size)
    if kind == LONG_NAME:
        return {b"path": raw.rstrip(b"\0")}
    found = extended(pages, place, raw)
    if kind == EXTENDED_FOR_ALL and not found.keys() & {b"path", b"size"}:
        # What git and others write there, such as a comment, changes nothing.
        return {}
    wrong = kind == EXTENDED_FOR_ALL or any(key.startswith(b"GNU.sparse") for key in found)
    size_said = found.get(b"size", b"0")
    if wrong or not (size_said.isdigit() and len(size_said) < 20):
        raise damaged(pages, place, "an extended header that no data set has")
    return found


def check(pages: Pages, place: int, kind: bytes, name: str) -> None:
    """Refuse a member that no data set has."""
    wrong = REFUSED.get(kind)
    if wrong is None and kind not in (*FILES, FOLDER):
        wrong = f"of the unknown type {kind!r}"
    if name.startswith("/") or ".." in name.split("/"):
        wrong = "outside of the tar"
    if wrong is not None:
        raise Problem(
            f"{pages.path} holds {name} at byte {place}, which is {wrong}",
            fix="make the tar anew from plain files: tar --dereference --hard-dereference -cf NEW.tar -C FOLDER .",
        )


def rows(files: Sequence[Path], *, root: Path) -> Rows:
    """Find the samples of some tars. Labels are those of label members, or the class folders in the members' names."""
    found = Rows(root=root)
    first: dict[bool, Path] = {}
    for path in files:
        found.begin(path)
        with Pages(path) as pages:
            for _, group in itertools.groupby(members(pages), key=lambda member: (member.folder, member.stem)):
                parts = {member.suffix: member for member in group}
                pictures = pictures_of(parts)
                found.ignored += not pictures
                for picture in pictures:
                    if picture.size == 0:
                        found.empty.append(path / picture.name)
                        continue
                    labelled = add(found, pages, picture, parts)
                    if labelled not in first:
                        first[labelled] = path / picture.name
    if False in first:
        if True in first or "" in found.labels:
            raise Problem(
                f"{first[False]} has no label" + (f", but {first[True]} has one" if True in first else ""),
                fix="put a .cls, .json or .txt beside each picture in the tar, or name the pictures CLASS/NAME.jpg",
            )
        found.relabel(folder_classes(str(folder) for folder in found.labels))
    return found


def pictures_of(parts: dict[str, Member]) -> list[Member]:
    """The picture of a sample. Where nothing is a label, names may hold dots, and each picture is its own sample."""
    if any(suffix in parts for suffix in LABELS):
        picture = next((member for suffix, member in parts.items() if suffix in PICTURES), None)
        return [picture] if picture is not None and picture.stem else []
    return [m for suffix, m in parts.items() if m.stem and suffix.rpartition(".")[2] in PICTURES]


def add(found: Rows, pages: Pages, picture: Member, parts: dict[str, Member]) -> bool:
    """Add a sample, by its folder where it has no label; says whether it has one."""
    if picture.size > MOST_BYTES:
        raise damaged(pages, picture.offset, f"a picture of {picture.size} bytes")
    label = label_of(pages, parts, found.names)
    found.add(
        picture.offset,
        picture.size,
        label=picture.folder if label is None else label,
        codec=index.codec_of(picture.name),
        split=split_in(picture.folder, labelled=label is not None) or None,
    )
    return label is not None


@functools.cache
def split_in(folder: str, *, labelled: bool) -> str:
    """The split that a member's folder speaks of. The last folder is the class where there is no other label."""
    return split_among(folder.lower().split("/")[: None if labelled else -1])


def folder_classes(folders: Iterable[str]) -> dict[Label, Label]:
    """The class of each folder of an archive: what follows train/ or val/, or else what follows all that they share."""
    below: dict[str, list[str]] = {}
    for folder in folders:
        parts = folder.split("/")
        splits = [place for place, part in enumerate(parts[:-1]) if part.lower() in SPLITS]
        below[folder] = parts[splits[-1] + 1 :] if splits else parts
    alike = itertools.takewhile(lambda column: len({*column}) == 1, zip(*below.values()))
    shared = min(len([*alike]), min(map(len, below.values())) - 1)
    return {folder: parts[shared] for folder, parts in below.items()}


def label_of(pages: Pages, parts: dict[str, Member], names: dict[int, str]) -> Label | None:
    """A sample's label as its label members say it; None where it has none."""
    for suffix in LABELS:
        member = parts.get(suffix)
        if member is None or member.size > MOST_TEXT_BYTES:
            continue
        raw = pages.at(member.offset, member.size)
        label = json_label(pages, member, raw, names) if suffix == "json" else text_label(raw.decode(errors="replace"))
        if label is not None:
            return label
    return None


def text_label(text: str) -> Label | None:
    """A number, or else a class's name; None where there is nothing."""
    text = text.strip()
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text or None


def json_label(pages: Pages, member: Member, raw: bytes, names: dict[int, str]) -> Label | None:
    """The label in a JSON object. Where both a number and a name are there, the name is the number's."""
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        raise damaged(pages, member.offset, f"{member.name} can't be read as JSON") from None
    label, title = json_said(said)
    if title and isinstance(label, int):
        names[label] = title
    return label


def json_said(said: object) -> tuple[Label | None, str]:
    """The label in some JSON, and a name that stands beside a number; nothing where there is none."""
    if type(said) is int:
        return said, ""
    values = said if isinstance(said, dict) else {}
    number: int | None = next((values[key] for key in NUMBERS if type(values.get(key)) is int), None)
    # JSON can hold halves of characters, which no file can.
    texts = (values[key].encode(errors="replace").decode() for key in NAMES if isinstance(values.get(key), str))
    title = next(texts, "")
    return (text_label(title), "") if number is None else (number, title)
