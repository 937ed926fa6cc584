"""A finished run, made by hand: a network of chance, and every file that a reader of runs looks at."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from stoker import checkpoint, runs, settings
from stoker.config import Config
from stoker.records import Attempt, MetricRow
from stoker.runs import Run
from stoker.tasks import classify

CLASSES = tuple(f"bar-{number}" for number in range(10))
STEP = 7
FIXED = {"model": "timm/test_resnet", "mean": (0.5, 0.4, 0.3), "std": (0.25, 0.2, 0.3), "resolution": 32}


def tensors(config: Config, *, seed: int) -> dict[str, torch.Tensor]:
    """The weights of a network in which every layer matters, and whose answers differ from picture to picture."""
    torch.manual_seed(seed)
    network = classify.task_of(config).model(classes=len(CLASSES))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        network.train()(torch.randn(64, 3, 32, 32))
    return {name: tensor.contiguous().clone() for name, tensor in network.state_dict().items()}


def run_of(folder: Path, *, data: Path, average: bool = False, **values: Any) -> Run:
    """A run folder with one checkpoint, of seed 0, and an average of seed 1 where one is asked for."""
    run = runs.create(folder, settings.with_values(Config(), {"data": str(data), **values}), resumed_from=None)
    fixed = {**FIXED, **values}
    config = settings.with_values(runs.read_config(run), fixed)
    state = {"version": 1, "model": config.model.model, "classes": len(CLASSES), "step": STEP}
    files = {"model.safetensors": save(tensors(config, seed=0)), "state.json": json.dumps(state).encode()}
    if average:
        files["ema.safetensors"] = save(tensors(config, seed=1))
    checkpoint.write(run, STEP, files)
    for name in ("best", "latest"):
        checkpoint.point(run, name, STEP)
    runs.write_whole(run.classes, json.dumps(CLASSES))
    runs.write_whole(run.machine, json.dumps({"gpus": [{"name": "NVIDIA H200"}] * 2, "cores": {"allotted": 16}}))
    runs.write_whole(run.code, json.dumps({"version": "9.9", "commit": "abc", "packages": {"torch": "2.10.0"}}))
    row = MetricRow(kind="eval", epoch=2, step=STEP, samples=24, lr=None, scores={"loss": 2.25, "top1": 12.5})
    runs.append_line(run.metrics, row)
    runs.update_record(
        run,
        status="done",
        fixed=fixed,
        data={"fingerprint": "f00d", "train_samples": 1200, "held_out_samples": 24, "classes": 10},
        attempts=(Attempt(started_at=0.0, host="h", world=2, ended_at=3720.0, status="done"),),
        result={"epoch": 2, "step": STEP},
    )
    return run
