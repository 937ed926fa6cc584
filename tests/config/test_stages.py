"""Stages as people write them."""

from typing import Any

import pytest

from stoker import api
from stoker.config import Stage
from stoker.config.stages import parsed
from stoker.errors import Problem


def test_stages_are_resolution_batch_epochs_and_perhaps_a_rate() -> None:
    assert parsed("160@4096 x 20, 192@3072x18,224 @ 2048 * 2 lr 0.8") == (
        Stage(resolution=160, batch=4096, epochs=20),
        Stage(resolution=192, batch=3072, epochs=18),
        Stage(resolution=224, batch=2048, epochs=2, peak_rate=0.8),
    )
    assert parsed("") == parsed("  ") == ()


@pytest.mark.parametrize(
    "text", ["160", "160@256", "160@256 x", "160x20", "160@256 x 2,", "4@256 x 2", "160@0 x 2", "160@256 x 0",
             "160@256 x 2 lr 0", "160@256 x 2 lr -1", "160@256 x 2 lr 1e", "160@256 x 2 lr fast", "-160@256 x 2"],
)  # fmt: skip
def test_anything_else_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(Problem, match="stages") as refused:
        parsed(text)
    assert "such as" in refused.value.fix or "at least" in refused.value.fix


@pytest.mark.parametrize("values", [{"epochs": 3}, {"batch": 8}, {"resolution": 64}, {"batch": "auto"}])
def test_a_setting_that_the_stages_contradict_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Problem, match="and the stages") as refused:
        api.configured(stages="32@16 x 1, 40@12 x 1", **values)
    assert "--stages" in refused.value.fix


def test_settings_that_say_what_the_stages_say_are_fine() -> None:
    config = api.configured(stages="32@16 x 1, 40@12 x 1", epochs=2, batch=12, resolution=40)
    assert [stage.batch for stage in config.stages] == [16, 12]
    assert api.configured(batch=64, resolution=96, epochs=3).stages == (Stage(resolution=96, batch=64, epochs=3),)
