"""Facts that all processes learn of at the same step, without stopping a GPU."""

from collections.abc import Sequence
from typing import Any

from stoker.dist.collective import silence
from stoker.dist.peers import PeerLost, is_of_a_peer
from stoker.dist.place import World


class Agreement:
    """Flags that are up for all processes once they are up for one. Each telling is answered exactly once.

    Every process makes one at the same place, and then calls it equally often: it has a way of its own between the
    processes, over the CPU, so that neither the GPU nor the exchange of gradients is kept waiting.
    """

    def __init__(self, place: World, *, count: int) -> None:
        self.count = count
        self._group: Any = None
        self._under_way: tuple[Any, Any] | None = None
        if place.size > 1:
            import torch.distributed

            with silence():
                self._group = torch.distributed.new_group(backend="gloo")

    def tell(self, facts: Sequence[bool]) -> tuple[bool, ...]:
        """Tell the others, and hear what any process told at the call before. One process hears itself at once."""
        assert len(facts) == self.count
        if self._group is None:
            return tuple(facts)
        import torch.distributed

        flags = torch.tensor([int(fact) for fact in facts], dtype=torch.uint8)
        try:
            work = torch.distributed.all_reduce(
                flags, op=torch.distributed.ReduceOp.MAX, group=self._group, async_op=True
            )
        except RuntimeError as error:
            raise lost(error) from error
        before, self._under_way = self._under_way, (work, flags)
        return self._heard(before)

    def _heard(self, under_way: tuple[Any, Any] | None) -> tuple[bool, ...]:
        """The flags of an exchange, which is waited for; all down where there was none."""
        if under_way is None:
            return (False,) * self.count
        work, flags = under_way
        try:
            work.wait()
        except RuntimeError as error:
            raise lost(error) from error
        return tuple(bool(flag) for flag in flags.tolist())


def lost(error: RuntimeError) -> Exception:
    """The same error as the loss of another process, if it is one."""
    return PeerLost(str(error)) if is_of_a_peer(error) else error
