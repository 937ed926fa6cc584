from pathlib import Path

import pytest

from stoker.config import DataConfig
from stoker.data import sources
from stoker.data.dataset import Dataset
from stoker.data.sources import lists
from stoker.errors import Problem


def listed(text: str, *pictures: str) -> None:
    Path("d/sub").mkdir(parents=True, exist_ok=True)
    Path("d/list.csv").write_text(text)
    for name in pictures:
        Path("d", name).write_bytes(name.encode())


def opened(**settings: float) -> Dataset:
    return sources.open_source(DataConfig(data="d/list.csv", **settings), seed=0, show=False)


def refused() -> Problem:
    with pytest.raises(Problem) as found:
        opened()
    return found.value


def test_paths_are_relative_to_the_list_and_indexed_in_place():
    listed("path,label\na.jpg,dog\nsub/b.png,cat\n", "a.jpg", "sub/b.png")
    found = opened()
    assert found.whole is not None and found.classes == ("cat", "dog")
    assert [found.whole.read(s) for s in range(2)] == [b"a.jpg", b"sub/b.png"]
    assert found.whole.label.tolist() == [1, 0]


def test_paths_may_be_absolute(tmp_path: Path):
    listed(f"path,label\n{tmp_path}/d/a.jpg,0\nb.jpg,1\n", "a.jpg", "b.jpg")
    found = opened()
    assert found.whole is not None and [found.whole.read(s) for s in range(2)] == [b"a.jpg", b"b.jpg"]


def test_labels_are_numbers_where_all_of_them_are():
    listed("image,class\na.jpg,2\nb.jpg,0\n", "a.jpg", "b.jpg")
    assert opened().classes == ("0", "1", "2")
    listed("image,class\na.jpg,2\nb.jpg,none\n")
    assert opened().classes == ("2", "none")


def test_columns_are_found_by_their_names_in_any_order_and_others_are_left():
    listed('\ufeffLabel , width,FILE\ncat,5,"a,1.jpg"\ndog,6,b.jpg\n\n', "a,1.jpg", "b.jpg")
    assert lists.read(Path("d/list.csv")).locations == ["a,1.jpg", "b.jpg"]
    assert opened().classes == ("cat", "dog")


def test_a_column_says_the_split():
    listed(
        "path,label,split\na.jpg,0,Train\nb.jpg,1,train\nc.jpg,0,val\ne.jpg,1,test\n",
        "a.jpg",
        "b.jpg",
        "c.jpg",
        "e.jpg",
    )
    found = opened()
    assert [found.train.read(s) for s in range(len(found.train))] == [b"a.jpg", b"b.jpg"]
    assert [found.held_out.read(s) for s in range(len(found.held_out))] == [b"c.jpg"]


def test_files_that_are_not_there_are_listed_as_empty():
    listed("path,label\na.jpg,0\nb.jpg,1\ngone.jpg,1\nsub,0\n", "a.jpg", "b.jpg")
    assert opened(allow_bad=0.5).empty == (Path("d/gone.jpg"), Path("d/sub"))
    assert "2 of 4 files in d/list.csv are empty or not there" in refused().what


def test_addresses_must_be_packed_first():
    listed("url,label\nhttps://example.org/a.jpg,0\nhttp://example.org/b.jpg,1\n")
    problem = refused()
    assert "https://example.org/a.jpg" in problem.what and "stoker pack d/list.csv DEST" in problem.fix
    assert lists.read(Path("d/list.csv")) == lists.Listed(
        locations=["https://example.org/a.jpg", "http://example.org/b.jpg"], labels=[0, 1], splits=["", ""]
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "d/list.csv is empty"),
        ("path,label\n", "lists no pictures"),
        ("name,label\na,1\n", "no column path or url"),
        ("path,colour\na,1\n", "no column label or class; it has: path, colour"),
        ("path,label\na.jpg,1\nb.jpg\n", "line 3 of d/list.csv does not fill"),
        ("path,label\na.jpg,\n", "line 2 of d/list.csv does not fill"),
        ("path,label\na.jpg,1,2\n", "line 2 of d/list.csv does not fill"),
        ('path,label\n"a.jpg,1\n', "can't be read as CSV"),
        ("path,label\n" + "a" * 200_000 + ",1\n", "can't be read as CSV"),
        ("path,label,split\na.jpg,1,fold3\n", "line 2 of d/list.csv has the split fold3"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(text: str, what: str):
    listed(text)
    assert what in refused().what


def test_paths_need_not_be_possible():
    listed("path,label\n" + "a" * 5000 + ",1\nb\0.jpg,0\nc.jpg,1\ne.jpg,0\n", "c.jpg", "e.jpg")
    assert len(opened(allow_bad=0.5).empty) == 2


def test_labels_with_leading_zeros_are_names():
    Path("d").mkdir(exist_ok=True)
    for number in range(20):
        Path(f"d/{number}.jpg").write_bytes(b"\xff\xd8\xff")
    lines = [f"{number}.jpg,{('007', '7')[number % 2]}" for number in range(20)]
    Path("d/list.csv").write_text("\n".join(["path,label", *lines]))
    assert sources.open_source(DataConfig(data="d/list.csv"), seed=0, show=False).classes == ("007", "7")


def test_a_list_of_files_that_are_not_there_says_so():
    Path("list.csv").write_text("path,label\na/1.jpg,cat\na/2.jpg,dog\n")
    with pytest.raises(Problem, match=r"none of the 2 files that list.csv lists is there, the first: a/1.jpg"):
        sources.open_source(DataConfig(data="list.csv"), seed=0, show=False)
