"""What is taken for what, counted by hand."""

import json

import numpy as np
import pytest

from stoker.records import Exhibit
from stoker.tasks import confusion

ANIMALS = ("cat", "dog", "owl", "eel")


def shown(classes: tuple[str, ...], pairs: list[tuple[int, int]]) -> dict[str, Exhibit]:
    """The exhibits of some (true, predicted) classes, which must go through JSON as they are."""
    true, predicted = np.array(pairs).T
    found = {one.exhibit.name: one.exhibit for one in confusion.exhibits(classes, true, predicted, of="Weights")}
    for exhibit in found.values():
        assert json.loads(json.dumps(exhibit.rows)) == [list(row) for row in exhibit.rows]
        assert exhibit.caption.startswith("Weights: ") and exhibit.caption.endswith(".")
    return found


def numbered(count: int) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(count))


def test_rows_are_true_classes_and_columns_predicted_ones() -> None:
    exhibit = shown(ANIMALS, [(0, 0), (0, 1), (0, 1), (1, 1), (2, 0), (3, 3)])["confusion"]
    assert exhibit.kind == "matrix" and exhibit.columns == ANIMALS
    assert exhibit.rows == ((1, 2, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1))
    assert "3 of 6 are right (50.0 %)" in exhibit.caption


def test_a_class_that_is_never_predicted_is_named_and_one_without_samples_is_not() -> None:
    caption = shown(ANIMALS, [(0, 0), (1, 0), (2, 0)])["confusion"].caption
    assert caption.endswith("Never predicted: dog, owl.")
    assert "Never" not in shown(ANIMALS, [(0, 0), (1, 1)])["confusion"].caption
    many = shown(numbered(20), [(number, 0) for number in range(20)])["confusion"].caption
    assert many.endswith("Never predicted: c1, c2, c3, c4, c5 and 14 more.")


def test_forty_classes_are_shown_whole() -> None:
    exhibit = shown(numbered(40), [(number, 0) for number in range(40)])["confusion"]
    assert len(exhibit.rows) == 40 and sum(map(sum, exhibit.rows)) == 40


def test_of_45_classes_the_30_most_confused_are_shown() -> None:
    # Class k is taken for the next one; those from 40 on twice, and class 44 now and then for class 0.
    pairs = [(k, k) for k in range(45)] + [(k, k + 1) for k in range(44)] + [(k, k + 1) for k in range(40, 44)]
    pairs += [(44, 0)] * 3
    exhibit = shown(numbered(45), pairs)["confusion"]
    assert len(exhibit.columns) == len(exhibit.rows) == 30
    chosen = [int(name[1:]) for name in exhibit.columns]
    assert chosen == sorted(chosen) and {0, 40, 41, 42, 43, 44} <= set(chosen)
    for row, true in zip(exhibit.rows, chosen, strict=True):
        assert row == tuple(pairs.count((true, predicted)) for predicted in chosen)
    theirs = [pair for pair in pairs if pair[0] in chosen]
    elsewhere = [pair for pair in theirs if pair[1] not in chosen]
    assert f"Of 45 classes the 30 most confused are shown; of their {len(theirs)} samples {len(elsewhere)} " in (
        exhibit.caption
    )
    assert elsewhere and f"45 of {len(pairs)} are right" in exhibit.caption


def test_of_many_classes_of_which_few_are_confused_only_these_are_shown() -> None:
    exhibit = shown(numbered(50), [(k, k) for k in range(50)] + [(7, 48)])["confusion"]
    assert exhibit.columns == ("c7", "c48") and exhibit.rows == ((1, 1), (0, 1))


def test_many_classes_without_a_mistake_are_shown_all_the_same() -> None:
    found = shown(numbered(50), [(k, k) for k in range(50)])
    assert len(found["confusion"].rows) == 30 and found["confusions"].rows == ()
    assert found["confusions"].caption == "Weights: not one mistake."


def test_mistakes_are_listed_by_how_often_they_are_made() -> None:
    pairs = [(0, 1)] * 2 + [(2, 3)] * 3 + [(1, 0)] * 2 + [(0, 0)] * 3 + [(3, 1)]
    exhibit = shown(ANIMALS, pairs)["confusions"]
    assert exhibit.kind == "table" and len(exhibit.columns) == 4
    assert exhibit.rows == (
        ("owl", "eel", 3, 100.0), ("dog", "cat", 2, 100.0), ("cat", "dog", 2, 40.0), ("eel", "dog", 1, 100.0),
    )  # fmt: skip
    assert "all 4 kinds of mistakes" in exhibit.caption


def test_the_list_of_mistakes_ends_somewhere() -> None:
    exhibit = shown(numbered(99), [(k, (k + 1) % 99) for k in range(99)])["confusions"]
    assert len(exhibit.rows) == 30 and "the 30 most frequent of 99 kinds" in exhibit.caption


def test_classes_are_listed_from_the_worst_on() -> None:
    exhibit = shown(ANIMALS, [(0, 0), (0, 0), (0, 1), (1, 1), (3, 0), (3, 0)])["classes"]
    assert exhibit.rows == (("eel", 2, 0, 0.0), ("cat", 3, 2, 66.7), ("dog", 1, 1, 100.0))
    assert "all classes, the worst first; 1 class without any of these samples left out" in exhibit.caption


@pytest.mark.parametrize(("classes", "rows"), [(50, 50), (51, 50)])
def test_the_list_of_classes_ends_somewhere(classes: int, rows: int) -> None:
    exhibit = shown(numbered(classes), [(k, k) for k in range(classes - 1)] + [(classes - 1, 0)])["classes"]
    assert len(exhibit.rows) == rows and exhibit.rows[0] == (f"c{classes - 1}", 1, 0, 0.0)
    assert ("of 51 classes the 50 worst" in exhibit.caption) == (classes == 51)
