"""Settings as they are given on the command line."""

from collections.abc import Mapping
from typing import Any


def flags(values: Mapping[str, Any]) -> list[str]:
    """Each setting as its flag and its value, or its values; one that is on or off as --name or --no-name."""
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return words
