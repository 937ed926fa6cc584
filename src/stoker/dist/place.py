"""Which of how many processes this is, and on which device of which machine, as the environment says."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.errors import Problem

if TYPE_CHECKING:
    import torch

METADATA = "http://169.254.169.254"
"""where an instance of a cloud asks what becomes of it"""


@dataclass(frozen=True, kw_only=True)
class World:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """processes on this machine"""

    @property
    def is_first(self) -> bool:
        """whether this process writes the run folder and talks to the user"""
        return self.rank == 0


def world() -> World:
    """This process's place, as torchrun says in the environment. Needs no torch."""
    try:
        place = World(
            rank=int(os.environ.get("RANK", 0)),
            size=int(os.environ.get("WORLD_SIZE", 1)),
            local_rank=int(os.environ.get("LOCAL_RANK", 0)),
            local_size=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        )
    except ValueError as error:
        raise Problem(f"RANK, WORLD_SIZE or LOCAL_RANK is not a number: {error}", fix="start with torchrun") from None
    if not 0 <= place.rank < place.size:
        raise Problem(f"RANK is {place.rank} of WORLD_SIZE {place.size}", fix="start with torchrun, which sets both")
    return place


def choose_device(wanted: str, place: World) -> "torch.device":
    """The device this process trains on."""
    import torch

    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Problem("device is cuda, but torch sees no working GPU", fix="see what is wrong with: stoker doctor")
    if place.local_rank >= torch.cuda.device_count():
        raise Problem(
            f"process {place.local_rank} of this machine has no GPU: there are {torch.cuda.device_count()}",
            fix=f"start at most {torch.cuda.device_count()} processes here, or train with --device cpu",
        )
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)


def spot_notice_address() -> str | None:
    """Where the instance metadata service answers, by the variables that the AWS tools know; None if it is off."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    return (os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or METADATA).rstrip("/")
