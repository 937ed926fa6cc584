"""Image classification: which of the classes does a picture show?"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from stoker.config import AugmentConfig, Config, DataConfig, ImageConfig, LoaderConfig, ModelConfig
from stoker.data import sources
from stoker.data.index import Index
from stoker.data.loader import Batch, Loader
from stoker.data.order import Plan
from stoker.data.sources import Dataset
from stoker.tasks import Inputs, Shown, blurpool, exhibits, mixing, networks

# Mean and standard deviation of ImageNet's pixels, which pretrained networks expect.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Classify:
    """Pictures and one label each."""

    data: DataConfig
    image: ImageConfig
    augment: AugmentConfig
    loader: LoaderConfig
    network: ModelConfig
    score_names: tuple[str, ...] = ("loss", "top1", "top5")

    def open(self, *, seed: int, show: bool) -> Dataset:
        """Index the data."""
        return sources.open_source(self.data, seed=seed, show=show)

    def batches(self, index: Index, plans: Iterator[Plan], *, seed: int | None, threads: int, pin: bool) -> Loader:
        """Batches of pictures, cropped and flipped at random where a seed is given."""
        return Loader(
            index, plans, image=self.image, augment=self.augment, seed=seed, threads=threads, ahead=self.loader.ahead,
            pin=pin,
        )  # fmt: skip

    def bare(self, *, classes: int) -> torch.nn.Module:
        """The network with fresh weights, under the names that its library gives them."""
        return networks.create(self.network.model, classes=classes)

    def fitted(self, network: torch.nn.Module) -> torch.nn.Module:
        """A bare network as it is trained: with what the settings add to it, in the memory layout they ask for."""
        model = blurpool.blurred(network) if self.network.blurpool else network
        return model.to(memory_format=torch.channels_last) if self.network.channels_last else model  # type: ignore[call-overload]

    def model(self, *, classes: int) -> torch.nn.Module:
        """The network as it is trained, with fresh weights."""
        return self.fitted(self.bare(classes=classes))

    def moved(self, batch: Batch, device: torch.device) -> Inputs:
        """A batch on the device, still as bytes: a quarter of the traffic that floats would be."""
        return Inputs(
            pixels=batch.pixels.to(device, non_blocking=True),
            labels=batch.labels.to(device, non_blocking=True),
            mix=None if batch.mix is None else mixing.moved(batch.mix, device),
        )

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Bytes (count x height x width x 3) as the numbers a network takes (count x 3 x height x width)."""
        mean, scale = normalisation(pixels.device, self.image.mean or MEAN, self.image.std or STD)
        floats = pixels.permute(0, 3, 1, 2).float().sub_(mean).mul_(scale)
        return floats if self.network.channels_last else floats.contiguous()

    def bytes_of(self, pictures: torch.Tensor) -> torch.Tensor:
        """What a network takes, as bytes again: the way back from `normalised`."""
        mean, scale = normalisation(pictures.device, self.image.mean or MEAN, self.image.std or STD)
        return (pictures / scale + mean).round_().clamp_(0, 255).permute(0, 2, 3, 1).byte()

    def altered(self, inputs: Inputs) -> torch.Tensor:
        """The pictures of an atom as the network is given them in training: shifted, erased and mixed."""
        return mixing.blended(self.normalised(mixing.translated(inputs.pixels, inputs.mix)), inputs.mix)

    def loss(self, model: Any, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross-entropy over the atom, with smoothed labels and mixed pictures as the settings say, and the scores."""
        labels, mix = inputs.labels, inputs.mix
        pictures = self.altered(inputs)
        with self.precision(pictures.device):
            logits = model(pictures)
        loss = mixing.cross_entropy(logits.float(), labels, mix, smoothing=self.augment.label_smoothing)
        return loss, sums(logits.detach(), labels, loss.detach(), mix)

    def score(self, model: Any, inputs: Inputs) -> torch.Tensor:
        """The scores of a batch of an evaluation: plain cross-entropy and hits."""
        with torch.no_grad():
            logits = self.answers(model, inputs.pixels)
            return sums(logits, inputs.labels, functional.cross_entropy(logits, inputs.labels))

    def answers(self, model: Any, pixels: torch.Tensor) -> torch.Tensor:
        """A network's logits; with the mirror image, the logarithm of the mean of both probabilities."""
        with self.precision(pixels.device):
            logits: torch.Tensor = model(self.normalised(pixels)).float()
            if not self.image.test_flip:
                return logits
            mirrored = model(self.normalised(pixels.flip(2))).float()
        return torch.logaddexp(logits.log_softmax(1), mirrored.log_softmax(1)) - math.log(2)

    def exhibits(
        self, model: Any | None, data: Dataset, plans: Iterator[Plan], *, seed: int, threads: int,
        device: torch.device, of: str, is_over: Callable[[], bool],
    ) -> tuple[Shown, ...]:  # fmt: skip
        """Before training the pictures that it begins with; after it what is taken for what, and the worst mistakes."""
        if model is None:
            return exhibits.before(self, data, plans, seed=seed, threads=threads, device=device)
        return exhibits.after(self, model, data, plans, threads=threads, device=device, of=of, is_over=is_over)

    def precision(self, device: torch.device) -> torch.autocast:
        """Mixed precision as the settings say."""
        dtype = torch.float16 if self.network.amp == "fp16" else torch.bfloat16
        return torch.autocast(device.type, dtype=dtype, enabled=self.network.amp != "off")


def task_of(config: Config) -> Classify:
    """What a run's network is taught to do, as its settings say."""
    return Classify(
        data=config.data, image=config.image, augment=config.augment, loader=config.loader, network=config.model
    )


@functools.lru_cache
def normalisation(
    device: torch.device, mean: tuple[float, ...], std: tuple[float, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is taken from a byte, and the factor for the rest. Made once: a copy to a GPU waits for all its work."""
    # Training may use what an evaluation was the first to ask for.
    with torch.inference_mode(False):
        taken = torch.tensor(mean, device=device).mul_(255).view(1, 3, 1, 1)
        scale = torch.tensor(std, device=device).mul_(255).reciprocal_().view(1, 3, 1, 1)
    return taken, scale


def sums(
    logits: torch.Tensor, labels: torch.Tensor, mean_loss: torch.Tensor, mix: mixing.DeviceMix | None = None
) -> torch.Tensor:
    """Loss, top-1 and top-5 hits (in percent) summed over a batch, then its count."""
    count = len(labels)
    top1, top5 = mixing.hits(logits, labels, mix)
    return torch.stack([mean_loss.double() * count, top1, top5, torch.full_like(top1, count)])
