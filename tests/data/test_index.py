from pathlib import Path

import numpy as np
import pytest

from stoker.data import index
from stoker.errors import Problem


def thousand(root: Path) -> index.Index:
    numbers = np.arange(1000)
    columns = {
        "file": numbers // 100, "offset": numbers % 100 * 512, "length": numbers + 1, "label": numbers % 7,
        "width": numbers + 8, "height": numbers + 9, "crc": numbers * 4_000_000,
    }  # fmt: skip
    return index.made(root, [f"{k}.tar" for k in range(10)], columns)


def test_an_index_comes_back_as_it_was_written(tmp_path: Path):
    made = thousand(tmp_path)
    index.write(made, tmp_path / "index")
    found = index.open_index(tmp_path / "index", root=tmp_path)
    assert all(np.array_equal(getattr(found, name), getattr(made, name)) for name in index.COLUMNS)
    assert found.fingerprint() == made.fingerprint()
    assert found.path(999) == tmp_path / "9.tar" and found.place(999) == f"{tmp_path}/9.tar at byte {99 * 512}"


def test_an_index_takes_at_most_40_bytes_a_sample(tmp_path: Path):
    many = thousand(tmp_path).taken(np.arange(100_000) % 1000)
    index.write(many, tmp_path / "index")
    assert sum(path.stat().st_size for path in (tmp_path / "index").iterdir()) <= 40 * 100_000


def test_columns_that_are_not_known_stay_unknown(tmp_path: Path):
    index.write(index.of_files(tmp_path, ["a.jpg", "b.png"], sizes=[3, 4], labels=[0, 1]), tmp_path / "index")
    found = index.open_index(tmp_path / "index", root=tmp_path)
    assert (found.width, found.height, found.crc) == (None, None, None)
    assert found.codec.tolist() == [index.JPEG, index.OTHER]


@pytest.mark.parametrize("name", ["file", "offset", "crc", "name_ends"])
@pytest.mark.parametrize("how", ["empty", "missing", "short", "another kind"])
def test_a_damaged_index_is_refused(tmp_path: Path, name: str, how: str):
    index.write(thousand(tmp_path), tmp_path / "index")
    path = tmp_path / "index" / f"{name}.npy"
    match how:
        case "empty":
            path.write_bytes(b"")
        case "missing":
            path.unlink()
        case "short":
            np.save(path, np.load(path)[:-1])
        case "another kind":
            np.save(path, np.load(path).astype(np.float32))
    if (name, how) == ("crc", "missing"):
        assert index.open_index(tmp_path / "index", root=tmp_path).crc is None
        return
    with pytest.raises(Problem, match="index"):
        index.open_index(tmp_path / "index", root=tmp_path)


@pytest.mark.parametrize(("name", "value"), [("name_ends", 10**9), ("file", 10)])
def test_an_index_that_points_outside_of_its_table_is_refused(tmp_path: Path, name: str, value: int):
    index.write(thousand(tmp_path), tmp_path / "index")
    path = tmp_path / "index" / f"{name}.npy"
    column = np.load(path)
    column[-1] = value
    np.save(path, column)
    with pytest.raises(Problem, match="damaged"):
        index.open_index(tmp_path / "index", root=tmp_path)
