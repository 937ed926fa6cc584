"""What is taken for what: counts of true and predicted classes as a matrix and as tables. Pure."""

import collections

import numpy as np
from numpy.typing import NDArray

from stoker import units
from stoker.records import Exhibit
from stoker.tasks import Shown

# A matrix of more classes can't be read, so it shows the most confused ones.
WHOLE, MOST_CONFUSED = 40, 30
PAIRS, CLASSES, NAMED = 30, 50, 5

Labels = NDArray[np.int64]


def exhibits(classes: tuple[str, ...], true: Labels, predicted: Labels, *, of: str) -> tuple[Shown, ...]:
    """The matrix, the most frequent mistakes, and how well each class is known; `of` says whose answers these are."""
    found = (
        matrix(classes, true, predicted, of=of),
        pairs(classes, true, predicted, of=of),
        by_class(classes, true, predicted, of=of),
    )
    return tuple(Shown(exhibit=exhibit) for exhibit in found)


def matrix(classes: tuple[str, ...], true: Labels, predicted: Labels, *, of: str) -> Exhibit:
    """How many samples of each class (rows) are taken for which (columns); of many classes the most confused."""
    chosen, said = np.arange(len(classes)), [f"{of}: true classes in rows, predicted ones in columns"]
    right = int((true == predicted).sum())
    said.append(f"{right:,} of {len(true):,} are right ({units.percent_text(right / len(true))})")
    if len(classes) > WHOLE:
        chosen = most_confused(len(classes), true, predicted)
        of_them = np.isin(true, chosen)
        elsewhere = int((of_them & ~np.isin(predicted, chosen)).sum())
        said.append(
            f"Of {len(classes):,} classes the {len(chosen)} most confused are shown; of their "
            f"{units.count_text(int(of_them.sum()), 'sample')} {elsewhere:,} are taken for other classes"
        )
    never = np.setdiff1d(true, predicted)
    if len(never):
        more = f" and {len(never) - NAMED:,} more" if len(never) > NAMED else ""
        said.append(f"Never predicted: {', '.join(classes[label] for label in never[:NAMED])}{more}")
    number = np.full(len(classes), -1)
    number[chosen] = np.arange(len(chosen))
    counts = np.zeros((len(chosen), len(chosen)), np.int64)
    is_shown = (number[true] >= 0) & (number[predicted] >= 0)
    np.add.at(counts, (number[true[is_shown]], number[predicted[is_shown]]), 1)
    return Exhibit(
        name="confusion",
        title="What is taken for what",
        caption=". ".join(said) + ".",
        kind="matrix",
        columns=tuple(classes[label] for label in chosen),
        rows=tuple(tuple(row) for row in counts.tolist()),
    )


def most_confused(count: int, true: Labels, predicted: Labels) -> Labels:
    """The classes with the most mistakes, made about them or taken for them, in the order of the classes."""
    wrong = true != predicted
    mistakes = np.bincount(true[wrong], minlength=count) + np.bincount(predicted[wrong], minlength=count)
    chosen = np.argsort(-mistakes, kind="stable")[:MOST_CONFUSED]
    # Where there are few mistakes there is less to show; where there are none, classes that are all right.
    confused = chosen[mistakes[chosen] > 0]
    return np.sort(confused if len(confused) else chosen)


def pairs(classes: tuple[str, ...], true: Labels, predicted: Labels, *, of: str) -> Exhibit:
    """The most frequent mistakes: which class is taken for which other, and how often."""
    wrong = true != predicted
    found = collections.Counter(zip(true[wrong].tolist(), predicted[wrong].tolist()))
    totals = np.bincount(true, minlength=len(classes))
    # Of those that are as frequent, the larger share of its class comes first, then the order of the classes.
    ordered = sorted(found.items(), key=lambda item: (-item[1], totals[item[0][0]], item[0]))[:PAIRS]
    kinds = f"{units.count_text(len(found), 'kind')} of mistakes"
    shown = f"the {len(ordered)} most frequent of {kinds}" if len(found) > len(ordered) else f"all {kinds}"
    return Exhibit(
        name="confusions",
        title="Most frequent mistakes",
        caption=f"{of}: {shown if found else 'not one mistake'}.",
        kind="table",
        columns=("true class", "taken for", "samples", "% of the class"),
        rows=tuple(
            (classes[label], classes[other], count, round(100 * count / int(totals[label]), 1))
            for (label, other), count in ordered
        ),
    )


def by_class(classes: tuple[str, ...], true: Labels, predicted: Labels, *, of: str) -> Exhibit:
    """How many samples of each class are recognised, the worst class first."""
    totals = np.bincount(true, minlength=len(classes))
    right = np.bincount(true[true == predicted], minlength=len(classes))
    present = np.flatnonzero(totals)
    ordered = present[np.argsort(right[present] / totals[present], kind="stable")][:CLASSES]
    shown = f"of {len(present):,} classes the {len(ordered)} worst" if len(present) > len(ordered) else "all classes"
    absent = len(classes) - len(present)
    without = f"; {units.count_text(absent, 'class')} without any of these samples left out" if absent else ""
    return Exhibit(
        name="classes",
        title="How well each class is known",
        caption=f"{of}: {shown}, the worst first{without}.",
        kind="table",
        columns=("class", "samples", "right", "% right"),
        rows=tuple(
            (
                classes[label],
                int(totals[label]),
                int(right[label]),
                round(100 * int(right[label]) / int(totals[label]), 1),
            )
            for label in ordered
        ),
    )
