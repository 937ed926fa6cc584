"""A question that people ask about a run, with its answer."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a run: what is asked, what is answered, and what the answer rests on."""

    key: str
    """a short name that does not change"""
    asked: str
    answer: str
    """one or two sentences; where there is no evidence, what is missing and how to get it"""
    evidence: tuple[str, ...] = ()
    """lines of figures"""
    is_known: bool = True
    """whether there is evidence enough for an answer"""
    chart: str | None = None
    """the function of charts that draws it"""


def unknown(key: str, asked: str, missing: str, *, fix: str, evidence: Iterable[str] = ()) -> Question:
    """A question that can't be answered: what is missing, and how to get it."""
    return Question(
        key=key, asked=asked, answer=f"Can't tell: {missing}. {fix}", evidence=tuple(evidence), is_known=False
    )
