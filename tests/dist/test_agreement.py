"""A flag that is up for one process is up for all, at the same call."""

from typing import Any

import pytest

from stoker.dist import Agreement, PeerLost, World
from stoker.dist import agreement as agreement_module


def test_one_process_hears_itself_at_once() -> None:
    agreement = Agreement(World(), count=2)
    assert agreement.tell([True, False]) == (True, False)
    assert agreement.tell([False, False]) == (False, False), "each telling is answered once"


def test_two_processes_hear_each_other_at_the_same_call(pair: list[dict[str, Any]]) -> None:
    for found in pair:
        assert found["agreed"] == [(False, False), (False, True), (True, False), (False, False)]


def test_the_number_of_facts_is_held() -> None:
    with pytest.raises(AssertionError):
        Agreement(World(), count=2).tell([True])


def test_only_an_error_about_a_peer_becomes_the_loss_of_one() -> None:
    gone, other = RuntimeError("gloo/transport/tcp/pair.cc: Connection closed by peer"), RuntimeError("shape mismatch")
    assert isinstance(agreement_module.lost(gone), PeerLost)
    assert agreement_module.lost(other) is other
