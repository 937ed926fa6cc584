"""The processes of a start find each other in a store that earlier starts have used."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed

from stoker.dist import PeerLost, World, meeting

MINUTE = datetime.timedelta(minutes=1)
SIZE = 3


def met(store: torch.distributed.Store) -> list[str]:
    """The name that each process of a start gets."""
    with ThreadPoolExecutor(SIZE) as pool:
        # The first process comes last: what others left must not answer in its place.
        coming = [
            pool.submit(meeting.agreed_name, store.clone(), World(rank=rank, size=SIZE), timeout=MINUTE)
            for rank in reversed(range(SIZE))
        ]
        return [one.result() for one in coming]


def test_each_start_agrees_on_a_name_of_its_own() -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    names = [met(store) for _ in range(3)]
    assert all(len(set(one)) == 1 for one in names)
    assert len({one[0] for one in names}) == 3


def test_a_process_that_never_comes_is_missed_by_its_number() -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("stoker/asked/2", "the question of a process that is dead")
    with pytest.raises(PeerLost, match="process 1 has not come"):
        meeting.agreed_name(store, World(size=SIZE), timeout=datetime.timedelta(seconds=0.1))


def test_without_a_launcher_there_is_no_store() -> None:
    assert meeting.launcher_store(World(size=2), timeout=MINUTE) is None
