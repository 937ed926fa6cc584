"""Which of a network's outputs a dataset's classes are."""

import sys
from pathlib import Path

import pytest

from stoker.data import index
from stoker.data.index import Index
from stoker.errors import Problem
from stoker.tasks import labels
from stoker.tasks.labels import Labels, Numbered


def samples(*numbers: int) -> Index:
    """Samples of which nothing but the class matters."""
    return index.of_files(
        Path("d"), [f"{n}.jpg" for n in range(len(numbers))], sizes=[1] * len(numbers), labels=[*numbers]
    )


def numbered(own: list[str], known: Labels, *present: int) -> Numbered:
    return labels.numbered(samples(*(present or range(len(own)))), own, known, where="d")


def test_a_thousand_outputs_are_imagenets_in_the_order_of_their_wordnet_names() -> None:
    found = labels.of_outputs(1000)
    assert found.ids[0] == "n01440764" and found.ids[-1] == "n15075141" and [*found.ids] == sorted(found.ids)
    assert found.names[0] == "tench" and found.names[4] == "hammerhead" and len({*found.names}) == 1000


def test_another_number_of_outputs_has_no_names() -> None:
    assert labels.of_outputs(3) == Labels(names=("0", "1", "2"), is_guess=True)


def test_a_class_is_found_by_its_wordnet_name_with_or_without_words_behind_it() -> None:
    own = ["n01494475_hammerhead", "n01440764", "n15075141-toilet tissue"]
    found = numbered(own, labels.of_outputs(1000))
    assert found.samples.label.tolist() == [4, 0, 999] and found.how == "by WordNet's names"


@pytest.mark.parametrize("strange", ["n00000001", "n014944750_hammerhead", "nothing"])
def test_a_class_that_imagenet_has_not_is_refused_by_name(strange: str) -> None:
    with pytest.raises(Problem, match=f"d holds classes that the network does not know: {strange}\n"):
        numbered(["n01440764", strange], labels.of_outputs(1000))


def test_exported_names_of_imagenets_classes_still_go_by_their_wordnet_names() -> None:
    known = labels.named(labels.imagenet_names())
    assert not known.is_guess and numbered(["hammerhead", "n01440764"], known).samples.label.tolist() == [4, 0]
    assert labels.named(("cat", "dog")).ids == ()


def test_a_run_on_classes_called_by_wordnets_names_knows_them_with_words_behind() -> None:
    known = labels.named(("n02123045", "n02099601"))
    assert numbered(["n02099601_golden_retriever", "n02123045"], known).samples.label.tolist() == [1, 0]


def test_classes_are_found_by_name_in_any_order() -> None:
    assert numbered(["dog", "cat"], Labels(names=("bee", "cat", "dog"))).samples.label.tolist() == [2, 1]


def test_names_that_a_run_gave_are_never_matched_by_order() -> None:
    with pytest.raises(Problem, match="does not know: spoon") as found:
        numbered(["cat", "spoon"], Labels(names=("cat", "dog")))
    assert "cat, dog" in found.value.fix


def test_as_many_classes_as_nameless_outputs_are_matched_by_order_and_said_to_be() -> None:
    found = numbered(["cat", "dog"], labels.of_outputs(2))
    assert found.samples.label.tolist() == [0, 1] and found.how.startswith("by order")
    with pytest.raises(Problem, match="does not know: cat, dog"):
        numbered(["cat", "dog"], labels.of_outputs(3))


def test_numbers_are_outputs_whatever_their_order() -> None:
    assert numbered(["0", "1", "10", "2"], labels.of_outputs(1000)).samples.label.tolist() == [0, 1, 10, 2]
    assert numbered(["0", "1", "10", "2"], labels.of_outputs(11)).samples.label.tolist() == [0, 1, 10, 2]


def test_a_class_without_samples_need_not_be_known() -> None:
    assert numbered(["cat", "spoon", "dog"], Labels(names=("cat", "dog")), 2, 0).samples.label.tolist() == [1, 0]


def test_without_timm_imagenets_classes_are_a_problem_with_the_command_that_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timm.data", None)
    labels.wnids.cache_clear()
    with pytest.raises(Problem, match="pip install timm"):
        labels.wnids()
