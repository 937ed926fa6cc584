"""Stages of training, as text and as values: 160@4096 x 20, 192@3072 x 20, 224@2048 x 20."""

import re
from dataclasses import dataclass

from stoker.config.fields import demand

FORM = re.compile(r"(\d+)\s*@\s*(\d+)\s*[x*]\s*(\d+)(?:\s+lr\s+([0-9.eE+-]+))?")
HOW = "write resolution@batch x epochs, with commas between, such as: 160@4096 x 20, 224@2048 x 20 lr 0.8"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Some epochs at one resolution and one batch."""

    resolution: int
    batch: int
    epochs: int
    peak_rate: float | None = None
    """peak learning rate of this stage; None scales that of the run by the batch"""


def parsed(text: str) -> tuple[Stage, ...]:
    """The stages that a text names; none for an empty one."""
    return tuple(one(part.strip()) for part in text.split(",")) if text.strip() else ()


def one(text: str) -> Stage:
    """One stage from its text."""
    found = FORM.fullmatch(text)
    demand(found is not None, f"stages: '{text}' can't be understood", fix=HOW)
    assert found is not None
    resolution, batch, epochs = (int(found[n]) for n in (1, 2, 3))
    try:
        rate = float(found[4]) if found[4] else None
    except ValueError:
        rate = 0.0
    fine = resolution >= 8 and batch >= 1 and epochs >= 1 and (rate is None or rate > 0)
    demand(fine, f"stages: '{text}' asks for {resolution} pixels, {batch} samples, {epochs} epochs"
           + ("" if rate is None else f", a rate of {found[4]}"),
           fix="give at least 8 pixels, 1 sample, 1 epoch and a rate above 0")  # fmt: skip
    return Stage(resolution=resolution, batch=batch, epochs=epochs, peak_rate=rate)
