"""What trained networks are used for, as functions that return values."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.train.answers import Answer, Scores
    from stoker.train.export import Export


def eval(  # noqa: A001
    what: str | Path, *, data: str | None = None, checkpoint: str = "best", model: str = "", batch: int = 64,
    resolution: int = 0, show: bool = True,
) -> "Scores":  # fmt: skip
    """Score the network of a run, an export or a weights file on held-out samples: the run's own, or other data."""
    from stoker.train import answers, trained

    net = trained.load(what, model=model, name=checkpoint, resolution=resolution)
    return answers.evaluate(net, data=data, batch=batch, show=show)


def predict(
    what: str | Path, inputs: Sequence[str | Path], *, checkpoint: str = "best", model: str = "", resolution: int = 0,
    show: bool = True,
) -> "list[Answer]":  # fmt: skip
    """What the network of a run, an export or a weights file sees in pictures, or in all pictures of folders."""
    from stoker.train import answers, trained

    net = trained.load(what, model=model, name=checkpoint, resolution=resolution)
    return answers.predict(net, [Path(path) for path in inputs], show=show)


def export(
    what: str | Path, dest: str | Path, *, onnx: bool = False, checkpoint: str = "best", model: str = ""
) -> "Export":
    """Write a network to a folder, with all that is needed to use it elsewhere."""
    from stoker.train import export as exports
    from stoker.train import trained

    if onnx:
        exports.check_packages()
    exports.check_place(Path(dest))
    return exports.export(trained.load(what, model=model, name=checkpoint), Path(dest), onnx=onnx)
