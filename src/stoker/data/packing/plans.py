"""The plan of a pack: how it is made, written down when it begins, so that nothing else is mixed into it."""

import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import PIL

from stoker.config import demand
from stoker.data.pack import UNFINISHED
from stoker.data.packing import flows, shards
from stoker.data.packing.encode import Encoding
from stoker.data.sources.kinds import Kind
from stoker.errors import Problem

PLAN, POINT = "plan.json", "stream.json"
# Of no consequence for what the pack holds, once it is finished.
VERSIONS = ("stoker", "pillow")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a source becomes a pack."""

    encoding: Encoding
    shard_samples: int = 1024
    holdout: float = 0.1
    """share of the samples that becomes val where the source has no split of its own; 0 leaves all in train"""
    seed: int = 0
    allow_bad: float = 0.01
    cache: str = "data"

    def __post_init__(self) -> None:
        fix = "give at least 1 sample a shard, such as 1024"
        demand(self.shard_samples >= 1, f"shard_samples is {self.shard_samples}", fix=fix)
        fix = "give a share such as 0.1, or 0 to keep all samples for training"
        demand(0 <= self.holdout < 1, f"holdout is {self.holdout}", fix=fix)
        demand(self.seed >= 0, f"seed is {self.seed}", fix="give 0 or more")


def how(source: str, kind: Kind, settings: Settings, *, fingerprint: str | None) -> dict[str, Any]:
    """How a pack is made: all that its bytes follow from. No path, so that a pack does not tell where it was made."""
    encoding = settings.encoding
    size = {"keep": True} if encoding.keep else {"short_side": encoding.short_side, "quality": encoding.quality}
    return {
        "source": kind.name,
        "source_name": flows.base_name(source),
        "source_fingerprint": fingerprint,
        "seed": settings.seed,
        "holdout": settings.holdout,
        "shard_samples": settings.shard_samples,
        **size,
        "stoker": metadata.version("stoker"),
        "pillow": PIL.__version__,
    }


def check_plan(dest: Path, made: dict[str, Any]) -> None:
    """Go on with a pack only if it was begun in the same way; write down how, if it begins now."""
    path = dest / UNFINISHED / PLAN
    if path.exists() and any(path.parent.glob("*.tar.npz")):
        check_same(dest, json.loads(path.read_bytes()), made)
        return
    # Before the first whole shard there is nothing to lose by other settings.
    (dest / UNFINISHED / POINT).unlink(missing_ok=True)
    if not path.exists() and any(item.name != UNFINISHED for item in dest.iterdir()):
        raise Problem(f"{dest} is not empty and is no pack", fix="give a folder that is not there yet, or an empty one")
    shards.save(path, json.dumps(made, indent=1).encode())


def check_same(dest: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse other settings, or another source, than those that a pack was made with."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        listed = "\n".join(f"    {name}: {old.get(name)} -> {new.get(name)}" for name in names)
        raise Problem(
            f"{dest} was begun with other settings or another source:\n{listed}",
            fix=f"give the old ones, or another folder; to start over: rm -r {dest}",
        )
