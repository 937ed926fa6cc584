"""A list of pictures with their labels: a CSV file of paths or addresses."""

import csv
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.data import index
from stoker.data.dataset import SPLITS
from stoker.data.sources.rows import MOST_BYTES, Label, Rows
from stoker.errors import Problem

LOCATION = ("path", "url", "file", "image", "filename", "file_name")
LABEL = ("label", "class")
SPLIT = ("split",)
EXAMPLE = "give it a first line such as: path,label"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What a list says: one entry of each column for each picture."""

    locations: list[str]
    """addresses, and paths, which are relative to the list"""
    labels: list[Label]
    """numbers where all of them are, else names"""
    splits: list[str]
    """empty where the list gives none"""


def is_address(location: str) -> bool:
    """Whether a picture is on the web."""
    return location.lower().startswith(("http://", "https://"))


def lines(path: Path) -> Iterator[list[str]]:
    """The lines of a CSV file as their fields."""
    try:
        # Spreadsheets put a mark before the first line. Paths need not be UTF-8.
        with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            yield from csv.reader(file, strict=True)
    except csv.Error as error:
        raise Problem(f"{path} can't be read as CSV: {error}", fix="put fields that hold commas into quotes") from None


def columns(path: Path, head: list[str]) -> tuple[int, int, int | None]:
    """Where the location, the label and the split are."""
    names = [name.strip().lower() for name in head]
    location, label, split = (
        next((names.index(name) for name in wanted if name in names), None) for wanted in (LOCATION, LABEL, SPLIT)
    )
    if location is None or label is None:
        wanted = LOCATION if location is None else LABEL
        raise Problem(f"{path} has no column {' or '.join(wanted)}; it has: {', '.join(head)}", fix=EXAMPLE)
    return location, label, split


def read(path: Path) -> Listed:
    """Read a list: a line that names the columns, and then a line for each picture."""
    found = Listed(locations=[], labels=[], splits=[])
    rest = lines(path)
    head = next(rest, None)
    if head is None:
        raise Problem(f"{path} is empty", fix=EXAMPLE)
    location, label, split = columns(path, head)
    labels: list[str] = []
    for number, fields in enumerate(rest, 2):
        if not fields:
            continue
        if len(fields) != len(head) or not fields[location].strip() or not fields[label].strip():
            raise Problem(
                f"line {number} of {path} does not fill the columns {', '.join(head)}: {','.join(fields)[:200]}",
                fix="correct the line, or remove it",
            )
        found.locations.append(fields[location].strip())
        labels.append(fields[label].strip())
        found.splits.append(known_split(path, number, fields[split]) if split is not None else "")
    if not labels:
        raise Problem(f"{path} lists no pictures", fix="add a line for each picture")
    # 007 is a name: as a number it would be another one's.
    numbered = all(text.isascii() and text.isdigit() and len(text) < 10 and str(int(text)) == text for text in labels)
    found.labels.extend(map(int, labels) if numbered else labels)
    return found


def known_split(path: Path, number: int, text: str) -> str:
    """A split's name as it stands in a list."""
    name = text.strip().lower()
    if name and name not in SPLITS:
        raise Problem(f"line {number} of {path} has the split {text}", fix=f"give one of {', '.join(SPLITS)}")
    return SPLITS.get(name, "")


def rows(path: Path) -> Rows:
    """Find the pictures of a list, which are files. Reads their sizes, no pictures."""
    listed, found = read(path), Rows(root=path.parent)
    for location, label, split in zip(listed.locations, listed.labels, listed.splits, strict=True):
        if is_address(location):
            raise Problem(
                f"{path} lists addresses, such as {location}",
                fix=f"fetch them once: stoker pack {path} DEST, and then give DEST",
            )
        size = file_bytes(os.path.join(path.parent, location))
        if 0 < size <= MOST_BYTES:
            found.files.append(location)
            found.add(0, size, label=label, codec=index.codec_of(location), split=split)
        else:
            found.empty.append(path.parent / location)
    if not found.file:
        raise Problem(
            f"none of the {len(found.empty)} files that {path} lists is there, the first: {found.empty[0]}",
            fix=f"give whole paths, or paths from {path.parent.absolute()} on",
        )
    return found


def file_bytes(path: str | Path) -> int:
    """The size of a plain file; 0 where there is none."""
    try:
        said = os.stat(path)
    except (OSError, ValueError):
        return 0
    return said.st_size if stat.S_ISREG(said.st_mode) else 0
