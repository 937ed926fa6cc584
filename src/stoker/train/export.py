"""A trained network as files that others can use: safetensors, a model card, and ONNX that was seen to be right."""

import contextlib
import copy
import hashlib
import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save as bytes_of

from stoker import runs
from stoker.errors import Problem
from stoker.tasks import exported
from stoker.tasks.exported import CARD, CONFIG, ONNX, WEIGHTS
from stoker.train import card, trained
from stoker.train.trained import Answerer

NEEDED = ("onnx", "onnxscript", "onnxruntime")
BATCHES = (1, 3)
# Of the largest logit. Another order of adding changes the sixth digit; a wrong layer changes the first.
MOST_DIFFERENCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written, and how true it is."""

    folder: Path
    source: str
    """the checkpoint or file that the weights come from"""
    is_average: bool
    files: dict[str, int]
    """bytes by name"""
    onnx_difference: float | None
    """largest difference of a logit from PyTorch's; None without ONNX"""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far ONNX is from PyTorch."""

    most: float
    """of a logit"""
    relative: float
    """to the largest logit"""


def export(net: Answerer, dest: Path, *, onnx: bool) -> Export:
    """Write a network to a folder. Everything is made and checked before anything is written."""
    check_place(dest)
    said = trained.describe(net)
    # A copy of each: safetensors takes no two names for one memory.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in net.network.state_dict().items()}
    weights = bytes_of(tensors, metadata={"format": "pt"})
    said = replace(said, weights_sha256=hashlib.sha256(weights).hexdigest())
    program, difference = None, None
    if onnx:
        network = copy.deepcopy(net.network).cpu().eval()
        program = onnx_bytes(network, said.resolution, model=said.model)
        difference = checked(program, network, said.resolution)
    told = None if difference is None else f"differs from PyTorch's by {difference.most:.1e} at most"
    text = card.text(said, net.config, net.run, source=net.source, is_average=net.is_average, onnx=told)
    files = {CONFIG: exported.text(said).encode(), WEIGHTS: weights, CARD: text.encode()}
    if program is not None:
        files[ONNX] = program
    write(dest, files)
    return Export(
        folder=dest,
        source=net.source,
        is_average=net.is_average,
        files={name: len(data) for name, data in files.items()},
        onnx_difference=None if difference is None else difference.most,
    )


def check_packages() -> None:
    """Refuse ONNX where something for it is not installed."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise Problem(f"ONNX needs {', '.join(absent)}, not installed here", fix="pip install 'stoker[onnx]'")


def check_place(dest: Path) -> None:
    """Refuse to write among other things."""
    if dest.exists() and not dest.is_dir():
        raise Problem(f"{dest} is a file", fix="give the path of a new folder")
    if dest.is_dir() and any(dest.iterdir()) and not exported.is_export(dest):
        raise Problem(f"{dest} is not empty, and holds no earlier export", fix="give the path of a new folder")


def write(dest: Path, files: dict[str, bytes]) -> None:
    """Write files whole, over those of an earlier export. The digest in the first tells torn ones."""
    try:
        for name, data in files.items():
            runs.write_whole(dest / name, data)
        if ONNX not in files:
            # An earlier one is of other weights.
            (dest / ONNX).unlink(missing_ok=True)
    except OSError as error:
        raise Problem(
            f"{dest} can't be written: {error}", fix="give the path of a folder that you may write to"
        ) from None


def onnx_bytes(network: torch.nn.Module, resolution: int, *, model: str) -> bytes:
    """A network as ONNX: normalised pixels in, logits out, any number of pictures at a time."""
    example = torch.zeros(2, 3, resolution, resolution)
    try:
        with quiet(), tempfile.TemporaryDirectory() as folder:
            program = torch.onnx.export(
                network,
                (example,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=["pixels"],
                output_names=["logits"],
                verbose=False,
            )
            assert program is not None
            program.save(Path(folder) / ONNX, external_data=False)
            return (Path(folder) / ONNX).read_bytes()
    except Exception as error:  # the exporter and what it calls raise anything
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise Problem(f"{model} can't be written as ONNX: {why[0]}", fix="leave --onnx out") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep to itself what the exporter says about its own code and torchvision's."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def checked(program: bytes, network: torch.nn.Module, resolution: int) -> Difference:
    """How far ONNX's answers are from PyTorch's on random pixels, in batches of two sizes; refused where too far."""
    import onnxruntime

    session = onnxruntime.InferenceSession(program, providers=["CPUExecutionProvider"])
    most = largest = 0.0
    for count in BATCHES:
        pixels = torch.randn(count, 3, resolution, resolution, generator=torch.Generator().manual_seed(count))
        with torch.inference_mode():
            wanted = network(pixels)
        given = torch.from_numpy(session.run(["logits"], {"pixels": pixels.numpy()})[0])
        most = max(most, float((given - wanted).abs().max()))
        largest = max(largest, float(wanted.abs().max()))
    found = Difference(most=most, relative=most / max(largest, 1e-12))
    # Written so that NaN is refused too.
    if not found.relative <= MOST_DIFFERENCE:
        raise Problem(
            f"as ONNX the network answers differently: by {found.most:.3g}, which is {found.relative:.1%} of the "
            f"largest logit; nothing was written",
            fix="leave --onnx out",
        )
    return found
