"""All that a run is at a moment, as one value: what exact resume needs, and nothing else.

There is no generator state in it: order and augmentation follow from (seed, epoch, position), and torch's generators
are seeded anew for every atom.
"""

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch.amp.grad_scaler import GradScaler

from stoker.errors import Problem
from stoker.records import Seconds
from stoker.runs import Run
from stoker.train import checkpoint

MODEL, OPTIMIZER, EMA, STATE = "model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"
VERSION = 1


@dataclass(kw_only=True)
class Position:
    """Where a run is: the plain values of its state."""

    seed: int
    epoch: int = 0
    position: int = 0
    """samples of this epoch that the weights have seen"""
    step: int = 0
    """optimiser updates so far; the place in the schedule"""
    evaluated: int = 0
    """the last epoch whose evaluation is in metrics.jsonl"""
    best: dict[str, float] | None = None
    """the best held-out top-1 so far, and its step and epoch"""
    line_sums: list[float] = field(default_factory=list)
    """sums of the scores since the last line of metrics.jsonl"""
    ledger: Seconds = field(default_factory=dict)
    saved_at: float = 0.0
    model: str = ""
    classes: int = 0
    data: str = ""
    """fingerprint of the data"""
    optimizer: str = ""
    amp: str = ""


@dataclass(kw_only=True)
class TrainState:
    """The one value. `network` is the bare model, without what distribution wraps around it."""

    network: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scaler: GradScaler
    at: Position
    ema: dict[str, torch.Tensor] | None = None
    """the averaged weights, where a run keeps any"""


def to_files(state: TrainState) -> dict[str, bytes]:
    """A state as the files of a checkpoint."""
    plain = {"version": VERSION, **dataclasses.asdict(state.at), "scaler": state.scaler.state_dict()}
    files = {
        MODEL: bytes_of(on_host(state.network.state_dict())),
        OPTIMIZER: bytes_of(on_host(optimizer_tensors(state))),
        STATE: json.dumps(plain, indent=1).encode(),
    }
    if state.ema is not None:
        files[EMA] = bytes_of(on_host(state.ema))
    return files


def on_host(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies in main memory, each with storage of its own, as safetensors wants them."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def optimizer_tensors(state: TrainState) -> dict[str, torch.Tensor]:
    """The optimiser's memory by the names of the weights: "layer.weight/momentum_buffer"."""
    found = {}
    for name, parameter in state.network.named_parameters():
        for key, value in state.optimizer.state.get(parameter, {}).items():
            if value is not None:
                found[f"{name}/{key}"] = value
    return found


def load_weights(network: torch.nn.Module, files: dict[str, bytes], *, where: str) -> dict[str, Any]:
    """Give a network the weights of a checkpoint. Nothing is unpickled. Returns the plain values beside them."""
    plain: dict[str, Any] = json.loads(files[STATE])
    if plain.pop("version") != VERSION:
        raise Problem(f"{where} was written by another version of Stoker", fix="use the version in its run's code.json")
    weights = tensors_of(files[MODEL])
    check_weights(weights, network.state_dict(), saved=plain, where=where)
    network.load_state_dict(weights)
    return plain


def from_files(state: TrainState, files: dict[str, bytes], *, where: str) -> None:
    """Bring a state to where a checkpoint was. Nothing is unpickled."""
    saved = json.loads(files[STATE])
    for name, wanted in (("optimizer", state.at.optimizer), ("amp", state.at.amp)):
        if saved[name] != wanted:
            raise Problem(
                f"{where} was made with {name} {saved[name]}, and this run has {wanted}", fix=f"give the same {name}"
            )
    plain = load_weights(state.network, files, where=where)
    state.scaler.load_state_dict(plain.pop("scaler"))
    memory = tensors_of(files[OPTIMIZER])
    state.optimizer.state.clear()
    for name, parameter in state.network.named_parameters():
        state.optimizer.state[parameter] = {
            place.rpartition("/")[2]: restored(value, place.rpartition("/")[2], parameter)
            for place, value in memory.items()
            if place.rpartition("/")[0] == name
        }
    if EMA in files:
        device = next(state.network.parameters()).device
        state.ema = {name: tensor.to(device) for name, tensor in tensors_of(files[EMA]).items()}
    state.at = Position(**plain)


def restored(value: torch.Tensor, key: str, parameter: torch.nn.Parameter) -> torch.Tensor:
    """An optimiser's tensor as it was: beside its weights and laid out like them. Step counts stay on the host."""
    if key == "step":
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def check_weights(
    saved_weights: dict[str, torch.Tensor],
    wanted_weights: dict[str, torch.Tensor],
    *,
    saved: dict[str, Any],
    where: str,
) -> None:
    """Refuse the weights of another network, and say how they differ."""
    shapes = {name: tuple(t.shape) for name, t in saved_weights.items()}
    expected = {name: tuple(t.shape) for name, t in wanted_weights.items()}
    if shapes == expected:
        return
    places = sorted(name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name))
    first = "\n".join(
        f"    {name}: {shapes.get(name, 'absent')} -> {expected.get(name, 'absent')}" for name in places[:4]
    )
    raise Problem(
        f"{where} holds {saved['model']} with {saved['classes']} classes, which is not the network of this run; "
        f"{len(places)} weights differ:\n{first}",
        fix="give the model that the checkpoint was made with, or another checkpoint",
    )


def save(run: Run, state: TrainState, *, ledger: Seconds) -> Path:
    """Write the state down as the newest checkpoint."""
    state.at.ledger, state.at.saved_at = ledger, time.time()
    written = checkpoint.write(run, state.at.step, to_files(state))
    checkpoint.point(run, "latest", state.at.step)
    return written


def load_newest(run: Run, state: TrainState) -> list[str]:
    """Bring a state to the newest whole checkpoint, if there is any. Returns what is wrong with newer ones."""
    torn = []
    for step in checkpoint.steps(run):
        place = checkpoint.folder(run, step)
        try:
            from_files(state, checkpoint.read(place), where=str(place))
        except checkpoint.Torn as error:
            torn.append(str(error))
        else:
            break
    return torn
