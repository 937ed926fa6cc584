"""Which of some weights fit a network, and which model they would fit better."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from stoker.errors import Problem
from stoker.tasks import networks

# Where less than this of the network or of the weights finds its counterpart, they were not made for each other.
LEAST_SHARE = 0.5
# Another model is named where so much of it and of the weights agree: all but the head, in practice.
SAME_SHARE = 0.9
CANDIDATES = 6
SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """Weights by the names that a network has for them."""

    source: str
    tensors: dict[str, Tensor]
    classes: tuple[str, ...] | None = None
    """names of the head's outputs, where they are known"""
    model: str | None = None
    """the model they were made with, where that is known"""
    is_blurred: bool = False
    """whether they were made with BlurPool; the names are those without it"""


@dataclass(frozen=True, kw_only=True)
class Matched:
    """What a network took of some weights, and what it did not."""

    source: str
    matched: int
    total: int
    """tensors of the network"""
    new: tuple[str, ...]
    """tensors of the network that begin as in a network without these weights"""
    unused: tuple[str, ...]
    """tensors of the weights that the network has no place for"""
    resized: Mapping[str, str] = field(default_factory=dict)
    """for the new ones that the weights have in another shape: both shapes, in words"""
    is_head_new: bool
    note: str = ""
    """why the head is new although its shape would fit, and what else there is to say"""

    def text(self) -> str:
        """What a person should know of it, in one line."""
        said = f"weights  {self.matched} of {self.total} tensors from {self.source}"
        if self.new:
            said += f"; new: {shortened([f'{n} ({self.resized[n]})' if n in self.resized else n for n in self.new])}"
        if self.unused:
            said += f"; unused: {shortened(self.unused)}"
        return f"{said}; {self.note}" if self.note else said


def shortened(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def give(network: nn.Module, pretrained: Pretrained, *, model: str, classes: Sequence[str] | None = None) -> Matched:
    """Copy every tensor whose name and shape fit into the network. A head for other classes stays new.

    `classes` are the names of the classes to be learned. To be called before BlurPool changes the names.
    """
    head = networks.head(network)
    wanted, held = network.state_dict(), pretrained.tensors
    in_head = {name for name in wanted if name.startswith(f"{head}.")}
    fitting = {name for name, tensor in wanted.items() if name in held and held[name].shape == tensor.shape}
    note = "made with blurpool" if pretrained.is_blurred else ""
    if in_head <= fitting and other_classes(pretrained.classes, classes):
        fitting -= in_head
        note += "; " if note else ""
        note += f"the last layer begins anew: its classes were {shortened(pretrained.classes or ())}"
    if len(fitting) < LEAST_SHARE * max(len(wanted), len(held)):
        raise misfit(pretrained, wanted, fitting=len(fitting), model=model)
    with torch.no_grad():
        for name in fitting:
            wanted[name].copy_(held[name])
    new = tuple(name for name in wanted if name not in fitting)
    return Matched(
        source=pretrained.source,
        matched=len(fitting),
        total=len(wanted),
        new=new,
        unused=tuple(name for name in held if name not in wanted),
        resized={
            name: f"{sizes(wanted[name])}, was {sizes(held[name])}"
            for name in new
            if name in held and held[name].shape != wanted[name].shape
        },
        is_head_new=not in_head <= fitting,
        note=note,
    )


def other_classes(before: Sequence[str] | None, now: Sequence[str] | None) -> bool:
    """Whether both lists of classes are known, and are not the same."""
    return before is not None and now is not None and tuple(before) != tuple(now)


def sizes(tensor: Tensor) -> str:
    """A shape in words."""
    return " x ".join(map(str, tensor.shape)) or "one number"


def misfit(pretrained: Pretrained, wanted: Mapping[str, Tensor], *, fitting: int, model: str) -> Problem:
    """What to say about the weights of another network: which model they are for, as far as can be told."""
    right = pretrained.model if pretrained.model != model else None
    right = right or nearest(pretrained, model=model)
    names = ", ".join(list(pretrained.tensors)[:3])
    absent = ", ".join([name for name in wanted if name not in pretrained.tensors][:3])
    what = f"{pretrained.source} is not made for {model}: of its {len(pretrained.tensors)} tensors {fitting} fit"
    if absent:
        what += f"; it holds {names} ..., and the network wants {absent} ..."
    return Problem(what, fix=f"give --model {right}" if right else "give the --model that the weights were made with")


def nearest(pretrained: Pretrained, *, model: str) -> str | None:
    """The model whose tensors are those of the weights, among those with a name like the model's or the file's."""
    file = re.sub(r"-[0-9a-f]{8}$", "", Path(pretrained.source).stem)
    hints = (model.rpartition("/")[2], file)
    shapes = {name: tensor.shape for name, tensor in pretrained.tensors.items()}
    best, best_share = None, SAME_SHARE
    for library in networks.LIBRARIES:
        known = [name for name in networks.known(library) if "." not in name]
        near = [name for hint in hints for name in difflib.get_close_matches(hint, known, n=CANDIDATES, cutoff=0.4)]
        for name in dict.fromkeys(near):
            share = agreement(shapes, f"{library}/{name}")
            if share == 1:
                return f"{library}/{name}"
            if share > best_share:
                best, best_share = f"{library}/{name}", share
    return best


def agreement(shapes: Mapping[str, torch.Size], full_name: str) -> float:
    """The share of a model's tensors, or of the weights' if they are more, that have the same name and shape."""
    try:
        with torch.device("meta"):
            other = networks.create(full_name, classes=1000).state_dict()
    except Exception:  # some can't be made without memory, as they read numbers back on the way
        return 0.0
    same = len([name for name, tensor in other.items() if shapes.get(name) == tensor.shape])
    return same / max(len(other), len(shapes))
