"""Learning rates are those of torch's own schedulers, as a function of the step."""

import math
from typing import Any

import pytest
import torch

from stoker.config import OptimConfig
from stoker.train import optim

STEPS, EPOCHS = 10, 6


def ours(config: OptimConfig, *, batch: int = 256) -> list[float]:
    return [
        optim.rate(config, step=step, steps_an_epoch=STEPS, epochs=EPOCHS, batch=batch)
        for step in range(STEPS * EPOCHS)
    ]


def theirs(make: Any, *, lr: float, every: int = 1) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    schedule = make(optimizer)
    found = []
    for step in range(STEPS * EPOCHS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0:
            schedule.step()
    return found


def test_cosine_is_torchs_cosine() -> None:
    expected = theirs(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, STEPS * EPOCHS), lr=0.1)
    assert ours(OptimConfig(lr=0.1, schedule="cosine")) == pytest.approx(expected)


def test_step_is_torchs_multistep() -> None:
    expected = theirs(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4], gamma=0.2), lr=0.1, every=STEPS)
    config = OptimConfig(lr=0.1, schedule="step", drop_epochs=(2, 4), drop_factor=0.2)
    assert ours(config) == pytest.approx(expected)


@pytest.mark.parametrize(("warmup", "share"), [(0.0, 0.3), (2.0, 1 / 3)])
def test_onecycle_is_torchs_onecycle(warmup: float, share: float) -> None:
    def make(o: Any) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(
            o, max_lr=0.1, total_steps=STEPS * EPOCHS, pct_start=share, cycle_momentum=False
        )

    config = OptimConfig(lr=0.1, schedule="onecycle", warmup_epochs=warmup)
    assert ours(config) == pytest.approx(theirs(make, lr=0.1))


def test_constant_stays_and_warm_up_rises_in_equal_steps() -> None:
    rates = ours(OptimConfig(lr=0.1, schedule="constant", warmup_epochs=1))
    assert rates[:STEPS] == pytest.approx([0.1 * (k + 1) / STEPS for k in range(STEPS)])
    assert set(rates[STEPS:]) == {0.1}


def test_the_rate_grows_with_the_batch_linearly_for_sgd_and_by_the_root_for_adamw() -> None:
    assert optim.peak_rate(OptimConfig(lr=0.1), batch=2048) == pytest.approx(0.8)
    assert optim.peak_rate(OptimConfig(lr=0.02), batch=16) == pytest.approx(0.00125)
    assert optim.peak_rate(OptimConfig(lr=0.1, optimizer="adamw"), batch=1024) == pytest.approx(0.1 * math.sqrt(4))


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_optimiser_gets_its_settings(name: Any) -> None:
    config = OptimConfig(optimizer=name, momentum=0.8, nesterov=True, weight_decay=0.3)
    group = optim.optimizer(config, [torch.nn.Parameter(torch.zeros(1))]).param_groups[0]
    assert group["weight_decay"] == 0.3
    if name == "sgd":
        assert (group["momentum"], group["nesterov"]) == (0.8, True)
