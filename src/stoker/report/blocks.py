"""What a report is made of, before it is HTML or Markdown: both show the same blocks in the same order."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Tone = Literal["good", "busy", "bad", "plain"]


@dataclass(frozen=True, kw_only=True)
class Words:
    """A sentence or two."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Points:
    """Things that stand beside each other."""

    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Command:
    """Something to type, and what it does."""

    what: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text, as people read them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    """columns that hold numbers"""
    code: tuple[int, ...] = ()
    """columns that hold names or values as they are typed"""
    colours: tuple[str, ...] = ()
    """a mark before each row; as many as rows, or none"""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Vega-Lite chart."""

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    is_wide: bool = False
    has_title: bool = True
    """whether its title stands over it; not where it would say again what stands there already"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A picture."""

    path: Path
    kind: str
    """png, jpeg, gif or webp, as its first bytes say"""
    data: bytes
    caption: str


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Pictures beside each other."""

    pictures: tuple[Seen, ...]
    note: str = ""
    """what is not shown here, and where it is"""


@dataclass(frozen=True, kw_only=True)
class Quote:
    """Text as a program wrote it."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A question with its answer, what this rests on, and its chart."""

    key: str
    asked: str
    answer: str
    evidence: tuple[str, ...]
    is_known: bool
    chart: Chart | None = None
    see: Chart | None = None
    """a chart that is shown further up"""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Parts of a whole, as one bar."""

    of: str
    """the whole"""
    parts: tuple["Part", ...]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a whole."""

    name: str
    share: float
    text: str
    colour: str


@dataclass(frozen=True, kw_only=True)
class Folded:
    """What is there for those who open it."""

    title: str
    blocks: tuple["Block", ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Blocks under a heading of their own."""

    title: str
    text: str
    blocks: tuple["Block", ...]


Block: TypeAlias = Words | Points | Command | Table | Chart | Pictures | Quote | Answer | Shares | Folded | Group


@dataclass(frozen=True, kw_only=True)
class Card:
    """A figure that matters, with what belongs to it."""

    title: str
    value: str
    lines: tuple[str, ...]
    is_known: bool = True


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Names and values of one subject."""

    title: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report that has a heading."""

    key: str
    title: str
    text: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of it, in order."""

    name: str
    what: str
    """the run in a line"""
    state: str
    tone: Tone
    told: str
    """how far it is, and why it ended"""
    next: Command | None
    """what goes on with it, where something does"""
    cards: tuple[Card, ...]
    verdict: tuple[Block, ...]
    sentence: str
    facts: tuple[Facts, ...]
    sections: tuple[Section, ...]
    made: str
    """when, and by what"""
