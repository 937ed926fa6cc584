import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from stoker.doctor import profile
from tests.doctor import speeds


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(asdict(value)))


def test_what_was_measured_comes_back_from_json_as_it_was() -> None:
    whole = speeds.measured(missing={"GPU 0 clock under load": "NVML gives no answer"})
    assert profile.read(as_json(whole)) == whole


def test_a_machine_without_anything_comes_back_too() -> None:
    nothing = profile.Measured(at=1.0)
    assert profile.read(as_json(nothing)) == nothing


def test_a_whole_number_is_a_number() -> None:
    values = as_json(speeds.measured()) | {"at": 5}
    assert profile.read(values).at == 5.0


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda v: v.pop("cpu"), "measured"),
        (lambda v: v.update(more=1), "measured"),
        (lambda v: v.update(at="yesterday"), "measured.at"),
        (lambda v: v.update(gpus=None), "measured.gpus"),
        (lambda v: v["gpus"][0].update(clock_mhz="fast"), r"gpus.clock_mhz"),
        (lambda v: v["gpus"][0].update(peer_bytes_per_second={"one": 1.0}), "one"),
        (lambda v: v["cpu"].update(decode_one_per_second=None), "decode_one_per_second"),
        (lambda v: v["disk"].update(is_cold=1), "is_cold"),
        (lambda v: v["link"].update(points=[[1]]), "points"),
        (lambda v: v["missing"].update(x=1), "missing.x"),
    ],
)
def test_what_is_no_measurement_is_refused_with_its_place(spoil: Callable[[Any], Any], where: str) -> None:
    values = as_json(speeds.measured())
    spoil(values)
    with pytest.raises(ValueError, match=where):
        profile.read(values)


@pytest.mark.parametrize("values", [None, [], "text", 3])
def test_other_json_is_refused(values: object) -> None:
    with pytest.raises(ValueError, match="measured is no Measured"):
        profile.read(values)
