"""What is learned. A task is any object with these methods; its scores are sums and counts, so adding reduces them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from stoker.data.index import Index
from stoker.data.loader import Batch, Loader
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.records import Exhibit
from stoker.tasks.mixing import DeviceMix


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """A batch on the device."""

    pixels: torch.Tensor
    labels: torch.Tensor
    mix: DeviceMix | None = None
    """what is done to an atom before the network sees it"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """Something that a task shows in a report, with the pictures that belong to it."""

    exhibit: Exhibit
    files: dict[str, bytes] = field(default_factory=dict)
    """the pictures as files, by the names that the exhibit gives them"""


class Task(Protocol):
    """What the loop asks of a task."""

    @property
    def score_names(self) -> tuple[str, ...]:
        """The sums that loss and score return, in this order; one more, the count of samples, follows them."""
        ...

    def open(self, *, seed: int, show: bool) -> Dataset:
        """Index the data."""
        ...

    def batches(self, index: Index, plans: Iterator[Plan], *, seed: int | None, threads: int, pin: bool) -> Loader:
        """Batches for training (with the seed of their augmentation) or for evaluation (without)."""
        ...

    def bare(self, *, classes: int) -> torch.nn.Module:
        """The network with fresh weights, under the names that its library gives them."""
        ...

    def fitted(self, network: torch.nn.Module) -> torch.nn.Module:
        """A bare network as it is trained."""
        ...

    def model(self, *, classes: int) -> torch.nn.Module:
        """The network, with fresh weights."""
        ...

    def moved(self, batch: Batch, device: torch.device) -> Inputs:
        """A batch on the device."""
        ...

    def loss(self, model: Any, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean loss of an atom of training, to go down, and the sums and count of the scores."""
        ...

    def score(self, model: Any, inputs: Inputs) -> torch.Tensor:
        """The sums and count of the scores of an evaluation, without gradients."""
        ...

    def exhibits(
        self,
        model: Any | None,
        data: Dataset,
        plans: Iterator[Plan],
        *,
        seed: int,
        threads: int,
        device: torch.device,
        of: str,
        is_over: Callable[[], bool],
    ) -> tuple[Shown, ...]:
        """What a report shows: without a network, how the training samples of some plans are given to it; with one,
        where it goes wrong on the held-out samples of some plans, or of as many as are seen until it is over. `of`
        says whose weights these are."""
        ...
