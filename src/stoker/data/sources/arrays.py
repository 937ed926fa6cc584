"""Pictures as plain pixels: MNIST's idx files and the binary version of CIFAR-10, indexed in place."""

import struct
from collections.abc import Sequence
from pathlib import Path

from stoker.data.index import GREY, PLANES
from stoker.data.sources.rows import Rows
from stoker.errors import Problem

# Two zeros, 8 for bytes, and the number of dimensions: pictures have three and labels have one.
IDX_PICTURES, IDX_LABELS = b"\0\0\x08\x03", b"\0\0\x08\x01"
CIFAR_SIDE = 32
CIFAR_BYTES = 3 * CIFAR_SIDE * CIFAR_SIDE
CIFAR_NAMES = "batches.meta.txt"
CIFAR_FILES = ("data_batch", "test_batch")
MOST_SIDE = 2**16 - 1


def is_cifar(path: Path) -> bool:
    """Whether a file is named as one of CIFAR-10's binary files."""
    return path.suffix == ".bin" and path.name.startswith(CIFAR_FILES)


def is_idx(head: bytes) -> bool:
    """Whether a file begins as one of MNIST's does."""
    return head.startswith((IDX_PICTURES, IDX_LABELS))


def rows(files: Sequence[Path], *, root: Path) -> Rows:
    """Find the samples of some idx files (those of the labels are found beside the pictures) or CIFAR-10 files."""
    found = Rows(root=root)
    for path in files:
        if is_cifar(path):
            add_cifar(found, path)
        elif not head_of(path).startswith(IDX_LABELS):
            add_idx(found, path)
    if not found.files:
        raise Problem(f"{files[0]} holds labels but no pictures", fix="give the file of the pictures, or their folder")
    return found


def head_of(path: Path) -> bytes:
    """The first bytes of an idx file: what it is, and up to three dimensions."""
    with open(path, "rb") as file:
        return file.read(16)


def labels_beside(path: Path) -> bytes:
    """The labels of an idx file of pictures, one byte each."""
    beside = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if beside == path or not beside.exists():
        raise Problem(f"there are no labels beside {path}", fix=f"put them there as {beside.name}")
    raw = beside.read_bytes()
    if raw[:4] != IDX_LABELS or len(raw) != 8 + int.from_bytes(raw[4:8], "big"):
        raise Problem(f"{beside} is no whole idx file of labels", fix="copy or download it again")
    return raw[8:]


def add_idx(found: Rows, path: Path) -> None:
    """Add the pictures of an idx file."""
    head = head_of(path)
    if len(head) < 16 or not head.startswith(IDX_PICTURES):
        raise Problem(f"{path} is no idx file of grey pictures", fix="copy or download it again")
    count, height, width = struct.unpack(">III", head[4:])
    size, labels = height * width, labels_beside(path)
    wrong = f"{path} should hold {count} pictures of {width} x {height} pixels"
    if path.stat().st_size != 16 + count * size or not (0 < width <= MOST_SIDE and 0 < height <= MOST_SIDE):
        raise Problem(f"{wrong}, but it is {path.stat().st_size} bytes long", fix="copy or download it again")
    if len(labels) != count:
        raise Problem(
            f"{wrong}, but there are {len(labels)} labels", fix="give pictures and labels that belong together"
        )
    found.begin(path)
    for number, label in enumerate(labels):
        found.add(16 + number * size, size, label=label, codec=GREY, size=(width, height))


def add_cifar(found: Rows, path: Path) -> None:
    """Add the pictures of a CIFAR-10 file: a byte of label and three planes each."""
    raw, each = path.read_bytes(), 1 + CIFAR_BYTES
    if not raw or len(raw) % each:
        raise Problem(
            f"{path} is {len(raw)} bytes long, which is no whole number of pictures of {each} bytes",
            fix="copy or download it again",
        )
    names = path.with_name(CIFAR_NAMES)
    if names.exists() and not found.names:
        found.names = dict(enumerate(line.strip() for line in names.read_text().splitlines() if line.strip()))
    found.begin(path)
    side = (CIFAR_SIDE, CIFAR_SIDE)
    for number, label in enumerate(raw[::each]):
        found.add(number * each + 1, CIFAR_BYTES, label=label, codec=PLANES, size=side)
