"""What the name of a source stands for: decided by names and first bytes."""

import glob
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.data.dataset import HELD_OUT, TRAIN
from stoker.data.sources import arrays, folders, parquet, recordio, tars, tfrecord
from stoker.errors import Problem

DIALS = re.compile(r"dials(?::(\d+)(?:x(\d+))?)?")
STREAM = re.compile(r"-|https?://.*", re.IGNORECASE)
BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
PACK, UNFINISHED_PACK = "pack.json", ".packing"
# The hub keeps its files in a folder of that name.
FOLDERS_OF_FILES = (*TRAIN, *HELD_OUT, "data")
# By the end of a file's name, less that of a compression.
NAMES = {
    "tar": re.compile(r"\.(tar|tgz|tbz2|txz)$"),
    "recordio": re.compile(r"\.rec$"),
    "parquet": re.compile(r"\.parquet$"),
    "arrays": re.compile(r"idx[13]-ubyte$|^(data|test)_batch.*\.bin$"),
    "list": re.compile(r"\.csv$"),
    "tfrecord": re.compile(r"\.tfrecords?$|-\d+-of-\d+$"),
}
COMPRESSED = re.compile(r"\.(gz|bz2|xz|zst)$")
WANTED = "a folder with a folder for each class, a pack, or tar, .rec, TFRecord, idx, CIFAR-10, Parquet or CSV files"
ZIP = b"PK\x03\x04"
GZIP, OTHER_COMPRESSIONS = b"\x1f\x8b", (b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a source is, and where."""

    name: str
    """dials, pack, folder, tar, recordio, tfrecord, arrays, list, parquet or stream"""
    root: Path = Path()
    """the folder that holds it all"""
    files: tuple[Path, ...] = ()
    in_place: bool = True
    """whether samples can be read where they are; records in parts and lists of addresses show only when read"""
    why_not: str = ""
    fix: str = ""
    """what makes it readable in place, where it is not"""


def kind(data: str) -> Kind:
    """Decide what the name of a source stands for. Reads no more than the first bytes of each file."""
    if STREAM.fullmatch(data):
        why = f"{data} can be read only once, from front to back"
        return Kind(name="stream", in_place=False, why_not=why, fix=pack_first(data))
    if DIALS.fullmatch(data):
        return Kind(name="dials")
    path = Path(data)
    if path.is_dir():
        return kind_of_folder(path)
    if not path.exists() and re.search(r"[{*?\[]", data):
        return kind_of_files(data, expanded(data))
    if not path.exists():
        what = "file" if path.suffix else "folder"
        raise Problem(f"there is no {what} {path}", fix=f"check the path; wanted is {WANTED}, or dials")
    return kind_of_files(data, [path])


def pack_first(data: str) -> str:
    """The command that makes a source readable in place."""
    quoted = f"'{data}'" if re.search(r"[{*?\[ ]", data) else data
    return f"stoker pack {quoted} DEST, and then give DEST"


def kind_of_folder(root: Path) -> Kind:
    """A pack, a folder of files that hold many samples each, or a folder of class folders."""
    if (root / PACK).exists():
        return Kind(name="pack", root=root)
    if (root / UNFINISHED_PACK).exists():
        raise Problem(f"{root} is a pack that was not finished", fix=f"stoker pack SOURCE {root} goes on with it")
    inside = folders.class_names(root)
    if all(name in FOLDERS_OF_FILES for name in inside):
        places = [root, *(root / name for name in inside)]
        files = [path for place in places for path in sorted(place.iterdir()) if path.is_file()]
        held = [path for path in files if named(path.name) not in ("", "list")]
        # Where train/ has class folders, a tar beside them is somebody's copy.
        if held and not any(folders.class_names(root / name) for name in inside):
            return kind_of_files(str(root), held)
    return Kind(name="folder", root=root)


def kind_of_files(data: str, files: list[Path]) -> Kind:
    """Files that hold many samples each."""
    kinds = {path: kind_of_file(path) for path in files}
    names = sorted({name for name, _ in kinds.values()})
    if len(names) > 1 or (names == ["list"] and len(files) > 1):
        what = f"files of several kinds: {', '.join(names)}" if len(names) > 1 else f"{len(files)} lists"
        raise Problem(f"{data} stands for {what}", fix="give those of one kind by a pattern, such as 'DATA/*.tar'")
    name, root = names[0], Path(os.path.commonpath([path.parent for path in files]))
    compressed = [path for path, (_, packed) in kinds.items() if packed]
    why, fix = "", ""
    if name == "parquet":
        why = f"{files[0]} is Parquet, in which pictures are stored in columns that may be compressed"
        fix = pack_first(data)
    elif compressed:
        why = f"{compressed[0]} is compressed, so that its pictures can't be read where they are"
        fix = pack_first(data) if name == "tar" else f"gunzip {compressed[0]}" + " ..." * (len(compressed) > 1)
    return Kind(name=name, root=root, files=tuple(files), in_place=not why, why_not=why, fix=fix)


def kind_of_file(path: Path) -> tuple[str, bool]:
    """What one file is, by its first bytes or else by its name, and whether it is compressed."""
    with open(path, "rb") as file:
        head = file.read(4096)
    compressed = head.startswith((GZIP, *OTHER_COMPRESSIONS))
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, tars.BLOCK)
        except zlib.error:
            head = b""
    found = by_head(head) or named(path.name)
    if not found:
        fix = f"unzip it: unzip {path} -d FOLDER, and give FOLDER" if head.startswith(ZIP) else f"give {WANTED}"
        raise Problem(f"{path} is a file of no kind that is known", fix=fix)
    return found, compressed


def by_head(head: bytes) -> str:
    """What a file is by its first bytes; empty where they don't say."""
    says = {
        "parquet": head.startswith(parquet.MAGIC),
        "recordio": head.startswith(recordio.MAGIC),
        "arrays": arrays.is_idx(head),
        "tar": tars.is_header(head[: tars.BLOCK]),
        "tfrecord": tfrecord.is_header(head[: tfrecord.HEADER.size]),
    }
    return next((name for name, yes in says.items() if yes), "")


def named(name: str) -> str:
    """What a file is by its name; empty where that doesn't say."""
    bare = COMPRESSED.sub("", name.lower())
    return next((kind for kind, pattern in NAMES.items() if pattern.search(bare)), "")


def expanded(pattern: str) -> list[Path]:
    """The files that a pattern stands for: {0000..0099} and {a,b} as WebDataset has them, *, ? and [...]."""
    paths: list[Path] = []
    for one in unbraced(pattern):
        if glob.has_magic(one):
            paths += [path for match in sorted(glob.glob(one, recursive=True)) if (path := Path(match)).is_file()]
        elif Path(one).is_file():
            paths.append(Path(one))
        else:
            raise Problem(f"{pattern} stands for {one}, which is not there", fix=f"check the path: ls {pattern}")
    if not paths:
        raise Problem(f"no file is named like {pattern}", fix=f"check the path: ls {pattern}")
    return paths


def unbraced(pattern: str) -> Iterator[str]:
    """A pattern without braces, once for each thing that these stand for."""
    found = BRACES.search(pattern)
    if found is None:
        yield pattern
        return
    before, after = pattern[: found.start()], pattern[found.end() :]
    numbers = RANGE.fullmatch(found[1])
    words: Iterable[str] = found[1].split(",")
    if numbers:
        width = len(numbers[1])
        words = (f"{number:0{width}d}" for number in range(int(numbers[1]), int(numbers[2]) + 1))
    for word in words:
        yield from unbraced(f"{before}{word}{after}")
