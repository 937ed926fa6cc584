"""A sample on its way from a source that can only be read from front to back."""

from dataclasses import dataclass

# What is larger is no picture.
LARGEST_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One picture file's bytes, and what its source says of it."""

    name: str
    """where it is from, for messages: "train.parquet row 7" or a member's name in a tar"""
    raw: bytes
    label: int | str
    """a number, or a class's name"""
    split: str = ""
    """train, val or another name that its source gives; empty where it gives none"""
