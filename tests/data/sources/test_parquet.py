import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stoker.config import DataConfig
from stoker.data import sources
from stoker.data.sources import parquet
from stoker.errors import Problem

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def written(path: str, columns: dict[str, Any], *, names: list[str] | None = None) -> Path:
    """A Parquet file with small row groups, and class names where the hub puts them."""
    Path(path).parent.mkdir(exist_ok=True)
    table = pa.table(columns)
    if names is not None:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=2)
    return Path(path)


def pictures(count: int) -> Any:
    return pa.array([{"bytes": b"picture %d" % n, "path": f"{n}.jpg"} for n in range(count)], STRUCT)


def read(*files: Path) -> list[tuple[bytes, int | str, str]]:
    return [(s.raw, s.label, s.split) for s in parquet.samples(files)]


def refused(*files: Path) -> str:
    with pytest.raises(Problem) as found:
        read(*files)
    assert found.value.fix
    return found.value.what


def test_pictures_and_class_names_are_read_as_the_hub_stores_them():
    path = written("d/train-0.parquet", {"image": pictures(5), "label": [0, 1, 0, 1, 1]}, names=["dog", "cat"])
    assert read(path) == [
        (b"picture %d" % n, name, "train") for n, name in enumerate(["dog", "cat", "dog", "cat", "cat"])
    ]
    assert next(parquet.samples([path])).name == "d/train-0.parquet row 0"


def test_plain_bytes_and_plain_labels_are_read():
    raw = pa.array([b"1", b"2"], pa.large_binary())
    path = written("a.parquet", {"id": [7, 8], "jpg": raw, "cls": ["cat", "dog"]})
    assert read(path) == [(b"1", "cat", ""), (b"2", "dog", "")]
    path = written("b.parquet", {"img": raw, "label": pa.array([3, 4], pa.uint8())})
    assert read(path) == [(b"1", 3, ""), (b"2", 4, "")]


def test_rows_are_counted_without_being_read():
    files = [written(f"{n}.parquet", {"image": pictures(n), "label": [0] * n}) for n in (3, 4)]
    assert parquet.count(files) == 7


def test_files_come_in_the_order_given():
    files = [written(f"{n}.parquet", {"image": pictures(n), "label": [n] * n}) for n in (2, 1)]
    assert [label for _, label, _ in read(*files)] == [2, 2, 1]


def test_a_row_without_a_picture_has_no_bytes():
    path = written("a.parquet", {"image": pa.array([None, {"bytes": None, "path": "x"}], STRUCT), "label": [0, 1]})
    assert read(path) == [(b"", 0, ""), (b"", 1, "")]


def test_parquet_must_be_packed_first():
    written("d/data/train-0.parquet".replace("/data", ""), {"image": pictures(2), "label": [0, 1]})
    with pytest.raises(Problem, match="is Parquet") as found:
        sources.open_source(DataConfig(data="d"), seed=0, show=False)
    assert found.value.fix == "stoker pack d DEST, and then give DEST"


@pytest.mark.parametrize("label", [-1, 2, None])
def test_a_label_that_is_no_class_is_refused_with_its_row(label: int | None):
    path = written("a.parquet", {"image": pictures(2), "label": pa.array([0, label], pa.int64())}, names=["a", "b"])
    assert refused(path) == f"a.parquet row 1 has the label {label}, which is no class"


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"text": ["a"], "label": [0]}, "no column of pictures"),
        ({"image": ["a path"], "label": [0]}, "no column of pictures"),
        ({"image": pictures(1), "caption": ["a"]}, "no column of labels"),
        ({"image": pictures(1), "label": [0.5]}, "no column of labels"),
    ],
)
def test_a_file_without_the_columns_is_refused_with_those_it_has(columns: dict[str, Any], what: str):
    found = refused(written("a.parquet", columns))
    assert what in found and all(name in found for name in columns)


@pytest.mark.parametrize("spoil", ["text", "truncated", "flipped"])
def test_a_damaged_file_is_refused(spoil: str):
    path = written("a.parquet", {"image": pictures(50), "label": [0] * 50})
    raw = bytearray(path.read_bytes())
    match spoil:
        case "text":
            raw = bytearray(b"no Parquet")
        case "truncated":
            raw = raw[: len(raw) // 2]
        case "flipped":
            raw[4:600] = bytes(byte ^ 0xFF for byte in raw[4:600])
    path.write_bytes(raw)
    assert "a.parquet can't be read" in refused(path)


@pytest.mark.parametrize("said", ["{", "[]", '{"info": {"features": {"label": {"names": [1, 2]}}}}', "[" * 100_000])
def test_class_names_that_make_no_sense_are_left(said: str):
    table = pa.table({"image": pictures(1), "label": [0]}).replace_schema_metadata({"huggingface": said})
    pq.write_table(table, "a.parquet")
    assert read(Path("a.parquet")) == [(b"picture 0", 0, "")]


def test_where_pyarrow_is_missing_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch):
    path = written("a.parquet", {"image": pictures(1), "label": [0]})
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Problem) as found:
        parquet.count([path])
    assert "pip install" in found.value.fix
