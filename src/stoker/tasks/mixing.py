"""Shifting, erasing and mixing on the device: whole atoms at a time, and nothing that waits for a GPU."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from stoker.data.mix import Mix


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceMix:
    """What is done to the samples of an atom, with what differs from sample to sample on the device."""

    drawn: Mix
    shifts: torch.Tensor | None
    erased: torch.Tensor | None


def moved(mix: Mix, device: torch.device) -> DeviceMix:
    """Draws on the device. Goes through pinned memory, so that the copy waits for nothing."""
    shifts, erased = (
        None if numbers is None else _pinned(torch.from_numpy(numbers), device).to(device, non_blocking=True)
        for numbers in (mix.shifts, mix.erased)
    )
    return DeviceMix(drawn=mix, shifts=shifts, erased=erased)


def _pinned(numbers: torch.Tensor, device: torch.device) -> torch.Tensor:
    return numbers.pin_memory() if device.type == "cuda" else numbers


def translated(pixels: torch.Tensor, mix: DeviceMix | None) -> torch.Tensor:
    """Pictures as bytes (count x height x width x 3), each moved down and to the right; what comes in is black."""
    if mix is None or mix.shifts is None:
        return pixels
    count, height, width, _ = pixels.shape
    sample = torch.arange(count, device=pixels.device)[:, None, None]
    row = torch.arange(height, device=pixels.device)[None, :, None] - mix.shifts[:, 0, None, None]
    column = torch.arange(width, device=pixels.device)[None, None, :] - mix.shifts[:, 1, None, None]
    is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    found = pixels[sample, row.clamp(0, height - 1), column.clamp(0, width - 1)]
    return found.mul_(is_inside[..., None])


def blended(pictures: torch.Tensor, mix: DeviceMix | None) -> torch.Tensor:
    """Normalised pictures (count x 3 x height x width), erased and mixed. May use up the ones it is given."""
    if mix is None:
        return pictures
    if mix.erased is not None:
        pictures = erased(pictures, mix.erased)
    rest, box = 1 - mix.drawn.weight, mix.drawn.box
    if mix.drawn.kind == "mixup":
        # Each picture and the next one, without a copy of them all in another order.
        out = torch.empty_like(pictures)
        torch.lerp(pictures[:-1], pictures[1:], rest, out=out[:-1])
        torch.lerp(pictures[-1:], pictures[:1], rest, out=out[-1:])
        return out
    if mix.drawn.kind == "cutmix":
        assert box is not None
        top, left = int(box.top), int(box.left)
        part = pictures[:, :, top : top + int(box.height), left : left + int(box.width)]
        part.copy_(torch.cat([part[1:], part[:1]]))
    return pictures


def erased(pictures: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Pictures without a box each, in place. Zero is the mean colour, for they are normalised."""
    row = torch.arange(pictures.shape[2], device=pictures.device)[None, :, None]
    column = torch.arange(pictures.shape[3], device=pictures.device)[None, None, :]
    top, left, height, width = (numbers[:, None, None] for numbers in boxes.unbind(1))
    is_in_rows = (row >= top) & (row < top + height)
    is_in_columns = (column >= left) & (column < left + width)
    return pictures.masked_fill_((is_in_rows & is_in_columns)[:, None], 0)


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, mix: DeviceMix | None, *, smoothing: float
) -> torch.Tensor:
    """The mean loss: against a sample's own label and that of the next one, by their shares of the picture."""
    own = functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    if mix is None or mix.drawn.kind == "plain":
        return own
    other = functional.cross_entropy(logits, labels.roll(-1), label_smoothing=smoothing)
    return own * mix.drawn.weight + other * (1 - mix.drawn.weight)


def hits(logits: torch.Tensor, labels: torch.Tensor, mix: DeviceMix | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Top-1 and top-5 hits (in percent) summed over an atom. A hit of either label counts by its share."""
    best = logits.topk(min(5, logits.shape[1])).indices
    counted = (best == labels[:, None]).double()
    if mix is not None and mix.drawn.kind != "plain":
        counted = counted.lerp((best == labels.roll(-1)[:, None]).double(), 1 - mix.drawn.weight)
    return counted[:, 0].sum() * 100, counted.sum() * 100
