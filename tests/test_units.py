"""Quantities as people read them."""

import pytest

from stoker import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0123, "12.3 ms"), (1, "1.0 s"), (99.94, "99.9 s"), (119.7, "2 min 00 s"), (7379, "2 h 03 min")],
)
def test_a_duration_has_the_units_that_matter(seconds: float, text: str) -> None:
    assert units.seconds_text(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**40, "3.0 TiB")])
def test_a_size_has_the_largest_fitting_unit(count: int, text: str) -> None:
    assert units.bytes_text(count) == text
