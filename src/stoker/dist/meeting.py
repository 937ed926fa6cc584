"""Where the processes of a launcher meet: in its store, under a name that no earlier start has used."""

import datetime
import os
import time
import uuid
from typing import TYPE_CHECKING

from stoker.dist.peers import PeerLost
from stoker.dist.place import World

if TYPE_CHECKING:
    import torch.distributed

LOOK_SECONDS = 0.02
"""between two looks at who has come"""


def launcher_store(place: World, *, timeout: datetime.timedelta) -> "torch.distributed.Store | None":
    """The store of torchrun with all that its earlier starts left out of sight; None where it keeps no store.

    torchrun keeps one store for all its restarts (seen with torch 2.10), where the addresses of dead processes are
    still to be found. Its count of restarts can't tell them apart, because each machine counts its own.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    import torch.distributed

    store = torch.distributed.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timeout,
        wait_for_workers=False,
    )
    return torch.distributed.PrefixStore(agreed_name(store, place, timeout=timeout), store)


def agreed_name(store: "torch.distributed.Store", place: World, *, timeout: datetime.timedelta) -> str:
    """A name that only the processes of this start know. The first one draws it, and gives it to each that asks.

    Whoever asks draws a number first, under which the answer is left: so no answer is that of an earlier start.
    """
    drawn = uuid.uuid4().hex
    if not place.is_first:
        store.set(f"stoker/asked/{place.rank}", drawn)
        name: str = store.get(f"stoker/answer/{drawn}").decode()
        store.set(f"stoker/heard/{name}/{place.rank}", "")
        return name
    missing, since = set(range(1, place.size)), time.monotonic()
    while missing:
        for rank in tuple(missing):
            if store.check([f"stoker/heard/{drawn}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"stoker/asked/{rank}"]):
                # Perhaps the question of a process that is dead: it will be asked again.
                store.set(f"stoker/answer/{store.get(f'stoker/asked/{rank}').decode()}", drawn)
        if missing and time.monotonic() - since > timeout.total_seconds():
            raise PeerLost(f"process {min(missing)} has not come within {timeout.total_seconds():.0f} s")
        time.sleep(LOOK_SECONDS)
    return drawn
