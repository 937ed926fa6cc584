"""What lies beside exported weights: all that one must know to use them, as config.json."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.errors import Problem

WEIGHTS, CONFIG, CARD, ONNX = "model.safetensors", "config.json", "README.md", "model.onnx"
FORMAT, VERSION = "stoker-export", 1


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A network as it must be built, and pictures as it must be shown them."""

    model: str
    """library/NAME"""
    classes: tuple[str, ...]
    """in the order of the outputs"""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resolution: int
    crop: float
    """share of the picture's short side that the centre crop keeps"""
    blurpool: bool = False
    test_flip: bool = False
    """whether scores are of the mean of each picture's answer and its mirror image's"""
    weights_sha256: str = ""
    """digest of the weights file that belongs to this"""


def text(found: Exported) -> str:
    """The config.json of an export."""
    return json.dumps({"format": FORMAT, "version": VERSION, **dataclasses.asdict(found)}, indent=1) + "\n"


def is_export(folder: Path) -> bool:
    """Whether a folder holds exported weights."""
    return values_of(folder / CONFIG).get("format") == FORMAT


def beside(path: Path) -> Exported | None:
    """What an export says of itself, by its folder or its weights; None where there is no export."""
    folder = path if path.is_dir() else path.parent
    if not is_export(folder) or (path != folder and path.name != WEIGHTS):
        return None
    values = values_of(folder / CONFIG)
    try:
        if values.pop("version") != VERSION:
            raise Problem(f"{folder} was exported by another version of Stoker", fix="export the run again")
        values.pop("format")
        lists = {name: tuple(values[name]) for name in ("classes", "mean", "std")}
        return Exported(**{**values, **lists})
    except (TypeError, KeyError) as error:
        raise Problem(f"{folder / CONFIG} can't be used: {error}", fix="export the run again") from None


def values_of(path: Path) -> dict[str, Any]:
    """A file of JSON; empty where it is none."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
