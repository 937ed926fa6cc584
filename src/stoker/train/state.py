"""All that a run is at a moment, as one value: what exact resume needs, and nothing else.

There is no generator state in it: order and augmentation follow from (seed, epoch, position), and torch's generators
are seeded anew for every atom.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import load as tensors_of
from torch.amp.grad_scaler import GradScaler

from stoker import checkpoint, records
from stoker.checkpoint import EMA, MODEL, OPTIMIZER, STATE
from stoker.dist import World
from stoker.errors import Problem
from stoker.records import Seconds
from stoker.runs import Run
from stoker.train import tensors
from stoker.train.divergence import Trend

VERSION = 1
GROUP = "group."


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
    line_sums: list[list[float]] = field(default_factory=list)
    """sums of the scores since the last line of metrics.jsonl, by process: they are added up in the same order again"""
    ledger: Seconds = field(default_factory=dict)
    saved_at: float = 0.0
    model: str = ""
    classes: int = 0
    data: str = ""
    """fingerprint of the data"""
    optimizer: str = ""
    amp: str = ""
    trend: Trend = field(default_factory=Trend)
    """how the loss has gone so far, and how often the run was taken back"""
    sound_step: int = 0
    """the last step at which the scores were seen to be well"""


@dataclass(kw_only=True)
class TrainState:
    """The one value. `network` is the bare model, without what distribution wraps around it."""

    network: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scaler: GradScaler
    at: Position
    ema: dict[str, torch.Tensor] | None = None
    """the averaged weights, where a run keeps any"""


def sums_of(at: Position, world: World, *, count: int) -> list[float]:
    """What a process had summed up since the last line; on another number of processes the first has it all."""
    if len(at.line_sums) == world.size:
        return at.line_sums[world.rank]
    if world.is_first and at.line_sums:
        return [sum(values) for values in zip(*at.line_sums, strict=True)]
    return [0.0] * count


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """A state as it was at a step, copied to main memory: training goes on while it is written down."""

    step: int
    files: dict[str, memoryview]
    """tensors as the bytes of safetensors files"""
    plain: dict[str, Any]

    @property
    def bytes(self) -> int:
        """size of the tensors"""
        return sum(len(file) for file in self.files.values())


def snapshot(state: TrainState) -> Snapshot:
    """Copy a state to main memory. The one thing that a save makes training wait for."""
    groups = {MODEL: state.network.state_dict(), OPTIMIZER: optimizer_tensors(state)}
    if state.ema is not None:
        groups[EMA] = state.ema
    plain = {"version": VERSION, **dataclasses.asdict(state.at), "scaler": state.scaler.state_dict()}
    files = {file: tensors.packed(group) for file, group in groups.items()}
    return Snapshot(step=state.at.step, files=files, plain=plain)


def files_of(taken: Snapshot) -> dict[str, memoryview | bytes]:
    """A snapshot as the files of a checkpoint. Any thread may do it."""
    return {**taken.files, STATE: json.dumps(records.finite(taken.plain), indent=1).encode()}


def optimizer_tensors(state: TrainState) -> dict[str, torch.Tensor]:
    """The optimiser's memory by the names of the weights: "layer.weight/momentum_buffer"."""
    found = {}
    for name, parameter in state.network.named_parameters():
        for key, value in state.optimizer.state.get(parameter, {}).items():
            if value is not None:
                found[f"{name}/{key}"] = value
    for number, group in enumerate(state.optimizer.param_groups):
        if "step" in group:  # LAMB counts by group
            found[f"{GROUP}{number}/step"] = group["step"]
    return found


def load_weights(
    network: torch.nn.Module, files: dict[str, bytes], *, where: str, averaged: bool = True
) -> dict[str, Any]:
    """Give a network the weights of a checkpoint: their average, if it has one and that is asked for.

    Nothing is unpickled. Returns the plain values beside them.
    """
    plain: dict[str, Any] = json.loads(files[STATE])
    if plain.pop("version") != VERSION:
        raise Problem(f"{where} was written by another version of Stoker", fix="use the version in its run's code.json")
    weights = tensors_of(files[EMA] if averaged and EMA in files else files[MODEL])
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
    plain = load_weights(state.network, files, where=where, averaged=False)
    state.scaler.load_state_dict(plain.pop("scaler"))
    restore_optimizer(state, tensors_of(files[OPTIMIZER]))
    if state.ema is not None:
        # A run that begins to average begins with the weights it has.
        found = tensors_of(files[EMA]) if EMA in files else state.network.state_dict()
        for name, tensor in state.ema.items():
            tensor.copy_(found[name])
    state.at = Position(**{**plain, "trend": Trend(**plain.get("trend", {}))})


def restore_optimizer(state: TrainState, memory: dict[str, torch.Tensor]) -> None:
    """Give an optimiser its memory back. What was frozen has none."""
    held: dict[str, dict[str, torch.Tensor]] = {}
    for place, value in memory.items():
        name, _, key = place.rpartition("/")
        held.setdefault(name, {})[key] = value
    state.optimizer.state.clear()
    for name, parameter in state.network.named_parameters():
        if name in held:
            state.optimizer.state[parameter] = {k: restored(v, k, parameter) for k, v in held[name].items()}
    for number, group in enumerate(state.optimizer.param_groups):
        group.pop("step", None)
        group.update(held.get(f"{GROUP}{number}", {}))


def restored(value: torch.Tensor, key: str, parameter: torch.nn.Parameter) -> torch.Tensor:
    """An optimiser's tensor as it was: beside its weights and laid out like them."""
    if key == "step":
        # A fused optimiser counts on the GPU, every other on the host.
        return value.to(parameter.device) if parameter.device.type == "cuda" else value
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


def load_newest(run: Run, state: TrainState, *, at_most: int | None = None) -> list[str]:
    """Bring a state to the newest whole checkpoint, if there is any. Returns what is wrong with newer ones.

    Where a step is given, later checkpoints are not taken, and it is a Problem if no other is whole.
    """
    torn = []
    for step in checkpoint.steps(run):
        if at_most is not None and step > at_most:
            continue
        place = checkpoint.folder(run, step)
        try:
            from_files(state, checkpoint.read(place), where=str(place))
        except checkpoint.Torn as error:
            torn.append(str(error))
        else:
            return torn
    if at_most is not None:
        raise Problem(
            "; ".join([f"{run.folder} has no whole checkpoint up to step {at_most}, where it was last well", *torn]),
            fix="begin a new run with another --name, and with a lower --lr if this one diverged",
        )
    return torn
