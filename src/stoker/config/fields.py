"""What a setting is made of: its default, whether it changes the result, and what it may be."""

from dataclasses import field
from typing import Any

from stoker.errors import Problem


def identity(default: Any) -> Any:
    """A setting that changes the result: a run with another value is another run."""
    return field(default=default, metadata={"identity": True})


def operational(default: Any) -> Any:
    """A setting that changes how the result is reached, and may change between two starts of one run."""
    return field(default=default, metadata={"identity": False})


def part(cls: type) -> Any:
    """A group of settings that one part of the program owns."""
    return field(default_factory=cls)


def demand(fine: bool, what: str, *, fix: str) -> None:
    """Refuse a setting before anything is done with it."""
    if not fine:
        raise Problem(what, fix=fix)
