"""One measurement among many: where it fails, the others go on, and what it said is kept."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def tried(
    missing: dict[str, str],
    what: str,
    measure: Callable[Arguments, Value],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Value | None:
    """What a measurement gives; None where it fails, with the reason under its name in `missing`."""
    try:
        return measure(*args, **kwargs)
    except Exception as error:  # drivers, disks and libraries fail with anything; none may end the examination
        missing[what] = first_line(error)
        return None


def first_line(error: object) -> str:
    """An error's text up to its first line break, or its kind where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
