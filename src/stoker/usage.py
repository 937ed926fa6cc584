"""The commands that put a network to use: each parses, calls api and prints the value."""

from pathlib import Path
from typing import Annotated

import tyro

from stoker import api, shown
from stoker.shown import answer

Network = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WHAT")]


def eval_(
    what: Network,
    /,
    *,
    data: str | None = None,
    checkpoint: str = "best",
    model: str = "",
    batch: int = 64,
    resolution: int = 0,
    json: bool = False,
) -> int:
    """Score a network on held-out samples

    Args:
        what: a run's folder or name, the folder of an export, a .safetensors or .pth file, or pretrained
        data: other data than the run's, of the same classes; ImageNet's may be called by WordNet's names
        checkpoint: of a run: best, latest, epoch_N, a step, or a checkpoint folder
        model: which network a weights file is of, by its name in timm or torchvision
        batch: samples that pass the network together
        resolution: pixels a side; 0 takes what the network was trained for
        json: print the answer as JSON
    """
    scores = api.eval(what, data=data, checkpoint=checkpoint, model=model, batch=batch, resolution=resolution)
    return answer(scores, json=json, show=shown.scores)


def predict(
    what: Network,
    inputs: Annotated[tyro.conf.Positional[list[Path]], tyro.conf.arg(metavar="INPUTS")],
    /,
    *,
    checkpoint: str = "best",
    model: str = "",
    resolution: int = 0,
    json: bool = False,
) -> int:
    """Say what a network sees in pictures

    Args:
        what: a run's folder or name, the folder of an export, a .safetensors or .pth file, or pretrained
        inputs: picture files, and folders of them
        checkpoint: of a run: best, latest, epoch_N, a step, or a checkpoint folder
        model: which network a weights file is of, by its name in timm or torchvision
        resolution: pixels a side; 0 takes what the network was trained for
        json: print the answer as JSON
    """
    answers = api.predict(what, inputs, checkpoint=checkpoint, model=model, resolution=resolution)
    code = 1 if any(one.unreadable for one in answers) else 0
    return answer(answers, json=json, show=shown.answers, code=code)


def export(
    what: Network,
    dest: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DEST")],
    /,
    *,
    onnx: bool = False,
    checkpoint: str = "best",
    model: str = "",
    json: bool = False,
) -> int:
    """Write a network's weights, a model card and ONNX to a folder

    Args:
        what: a run's folder or name, or a .safetensors or .pth file
        dest: the folder that is made, or that of an earlier export
        onnx: also write ONNX, once its answers were seen to be PyTorch's
        checkpoint: of a run: best, latest, epoch_N, a step, or a checkpoint folder
        model: which network a weights file is of, by its name in timm or torchvision
        json: print the answer as JSON
    """
    written = api.export(what, dest, onnx=onnx, checkpoint=checkpoint, model=model)
    return answer(written, json=json, show=shown.export)
