"""Parquet files with pictures in them, as the Hugging Face hub stores data sets. They are read from front to back."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.data import dataset
from stoker.data.samples import Sample
from stoker.errors import Problem

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
PICTURE = ("image", "img", "picture", "jpg", "jpeg", "png", "webp", "bytes")
LABEL = ("label", "labels", "class", "cls", "fine_label", "target", "class_name", "label_name")
# Few enough that a batch of large pictures is small, many enough that a batch costs little.
BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where pictures and labels are in a file."""

    picture: str
    """a column of bytes, or of structures that hold bytes"""
    label: str
    names: tuple[str, ...]
    """names of the classes that the labels number, where the file gives them"""


def opened(path: Path) -> "pq.ParquetFile":
    """Open a Parquet file, so that no more than a part of a row group is in memory."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Problem("Parquet files are read with pyarrow, which is not installed",
                      fix="pip install 'stoker[parquet]'") from None  # fmt: skip
    try:
        return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise Problem(f"{path} can't be read as Parquet: {error}", fix="copy or download it again") from None


def count(files: Sequence[Path]) -> int:
    """How many rows some files have. Reads only their ends."""
    total = 0
    for path in files:
        with opened(path) as file:
            total += file.metadata.num_rows
    return total


def samples(files: Sequence[Path]) -> Iterator[Sample]:
    """Every row's picture and label, in the order of the files. A row without a picture has no bytes."""
    for path in files:
        split = dataset.split_of(f"{path.parent.name}/{path.name}")
        with opened(path) as file:
            columns = columns_of(path, file.schema_arrow)
            for number, (raw, label) in enumerate(values(path, file, columns)):
                where = f"{path} row {number}"
                yield Sample(name=where, raw=raw or b"", label=named(where, label, columns), split=split)


def values(path: Path, file: "pq.ParquetFile", columns: Columns) -> Iterator[tuple[bytes | None, Any]]:
    """The picture and the label of each row."""
    import pyarrow as pa

    wanted = [columns.picture, columns.label]
    try:
        for batch in file.iter_batches(BATCH, columns=wanted, use_threads=False):
            pictures, labels = (batch.column(name).to_pylist() for name in wanted)
            for picture, label in zip(pictures, labels, strict=True):
                yield picture["bytes"] if isinstance(picture, dict) else picture, label
    except (pa.ArrowException, OSError) as error:
        raise Problem(f"{path} can't be read: {error}", fix="copy or download it again") from None


def columns_of(path: Path, schema: Any) -> Columns:
    """Find the columns of pictures and labels by their types and names."""
    pictures = [field.name for field in schema if is_picture(field.type)]
    labels = [field.name for field in schema if is_label(field.type)]
    picture = next((name for name in (*PICTURE, *pictures) if name in pictures), None)
    label = next((name for name in LABEL if name in labels), None)
    if picture is None or label is None:
        what = f"pictures ({', '.join(PICTURE)})" if picture is None else f"labels ({', '.join(LABEL)})"
        raise Problem(
            f"{path} has no column of {what}; it has: {', '.join(f'{f.name} ({f.type})' for f in schema)}",
            fix="give a file with a column image of bytes, or of bytes and path, and a column label",
        )
    return Columns(picture=picture, label=label, names=class_names(schema.metadata or {}, label))


def is_picture(kind: Any) -> bool:
    """Whether a column's type is bytes, or a structure with bytes in it."""
    import pyarrow as pa

    if not pa.types.is_struct(kind):
        return is_binary(kind)
    return any(kind.field(k).name == "bytes" and is_binary(kind.field(k).type) for k in range(kind.num_fields))


def is_binary(kind: Any) -> bool:
    """Whether a column's type is bytes."""
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_label(kind: Any) -> bool:
    """Whether a column's type is a number or a text."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_label(kind.value_type)
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def class_names(metadata: dict[bytes, bytes], label: str) -> tuple[str, ...]:
    """The class names that the hub stores beside the columns; empty where there are none."""
    try:
        said = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(said) if isinstance(said, list) and all(isinstance(name, str) for name in said) else ()


def named(where: str, label: Any, columns: Columns) -> int | str:
    """A row's label: the name of its class where names are given."""
    if isinstance(label, str) and label:
        return label
    # The hub numbers what has no label -1.
    if not isinstance(label, int) or label < 0 or (columns.names and label >= len(columns.names)):
        raise Problem(
            f"{where} has the {columns.label} {label}, which is no class",
            fix="leave the files without true labels out, by a pattern such as 'DATA/{train,val}-*.parquet'",
        )
    return columns.names[label] if columns.names else label
