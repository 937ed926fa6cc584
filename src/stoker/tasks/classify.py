"""Image classification: which of the classes does a picture show?"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from stoker.config import DataConfig, ImageConfig, LoaderConfig, ModelConfig
from stoker.data import decode, sources
from stoker.data.index import Index
from stoker.data.loader import Batch, Loader
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.tasks import Inputs, networks

# Mean and standard deviation of ImageNet's pixels, which pretrained networks expect.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a network says a picture shows, most likely first."""

    input: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Classify:
    """Pictures and one label each."""

    data: DataConfig
    image: ImageConfig
    loader: LoaderConfig
    network: ModelConfig
    score_names: tuple[str, ...] = ("loss", "top1", "top5")

    def open(self, *, seed: int, show: bool) -> Dataset:
        """Index the data."""
        return sources.open_source(self.data, seed=seed, show=show)

    def batches(self, index: Index, plans: Iterator[Plan], *, seed: int | None, threads: int, pin: bool) -> Loader:
        """Batches of pictures, cropped and flipped at random where a seed is given."""
        return Loader(index, plans, image=self.image, seed=seed, threads=threads, ahead=self.loader.ahead, pin=pin)

    def model(self, *, classes: int) -> torch.nn.Module:
        """The network, with fresh weights."""
        model = networks.create(self.network.model, classes=classes)
        return model.to(memory_format=torch.channels_last) if self.network.channels_last else model  # type: ignore[call-overload]

    def moved(self, batch: Batch, device: torch.device) -> Inputs:
        """A batch on the device, still as bytes: a quarter of the traffic that floats would be."""
        return batch.pixels.to(device, non_blocking=True), batch.labels.to(device, non_blocking=True)

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Bytes (count x height x width x 3) as the numbers a network takes (count x 3 x height x width)."""
        mean, scale = normalisation(pixels.device)
        floats = pixels.permute(0, 3, 1, 2).float().sub_(mean).mul_(scale)
        return floats if self.network.channels_last else floats.contiguous()

    def loss(self, model: Any, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross-entropy over the atom, and the scores."""
        pixels, labels = inputs
        with self.precision(pixels.device):
            logits = model(self.normalised(pixels))
        loss = functional.cross_entropy(logits.float(), labels)
        return loss, sums(logits.detach(), labels, loss.detach())

    def score(self, model: Any, inputs: Inputs) -> torch.Tensor:
        """The scores of a batch."""
        with torch.no_grad():
            return self.loss(model, inputs)[1]

    def precision(self, device: torch.device) -> torch.autocast:
        """Mixed precision as the settings say."""
        dtype = torch.float16 if self.network.amp == "fp16" else torch.bfloat16
        return torch.autocast(device.type, dtype=dtype, enabled=self.network.amp != "off")

    def predict(
        self, model: Any, inputs: Sequence[bytes], *, names: Sequence[str], classes: Sequence[str], device: torch.device
    ) -> list[Answer]:
        """What each picture shows: the five likeliest classes with their probabilities."""
        answers = []
        for name, raw in zip(names, inputs, strict=True):
            pixels = torch.from_numpy(decode.evaluation_pixels(raw, config=self.image).copy())[None].to(device)
            with torch.inference_mode(), self.precision(device):
                likelihoods = model(self.normalised(pixels)).float().softmax(1)[0]
            best = likelihoods.topk(min(5, len(classes)))
            found = tuple(classes[i] for i in best.indices.tolist())
            answers.append(Answer(input=name, classes=found, probabilities=tuple(best.values.tolist())))
        return answers


@functools.lru_cache
def normalisation(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """What is taken from a byte, and the factor for the rest. Made once: a copy to a GPU waits for all its work."""
    mean = torch.tensor(MEAN, device=device).mul_(255).view(1, 3, 1, 1)
    scale = torch.tensor(STD, device=device).mul_(255).reciprocal_().view(1, 3, 1, 1)
    return mean, scale


def sums(logits: torch.Tensor, labels: torch.Tensor, mean_loss: torch.Tensor) -> torch.Tensor:
    """Loss, top-1 and top-5 hits (in percent) summed over a batch, then its count."""
    count = len(labels)
    ranked = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
    top1 = ranked[:, 0].sum(dtype=torch.float64) * 100
    top5 = ranked.sum(dtype=torch.float64) * 100
    return torch.stack([mean_loss.double() * count, top1, top5, torch.full_like(top1, count)])
