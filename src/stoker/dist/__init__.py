"""Many processes as one. The only part that imports torch.distributed; for one process it is the identity."""

from stoker.dist.agreement import Agreement
from stoker.dist.collective import add_up, barrier, check_equal, least, start, stop
from stoker.dist.gradients import average, overlaps, quietly, sent_bytes, wrapped
from stoker.dist.links import swept
from stoker.dist.peers import PeerLost, told
from stoker.dist.place import World, choose_device, spot_notice_address, world
from stoker.dist.watch import Watch

__all__ = [
    "Agreement",
    "PeerLost",
    "Watch",
    "World",
    "add_up",
    "average",
    "barrier",
    "check_equal",
    "choose_device",
    "least",
    "overlaps",
    "quietly",
    "sent_bytes",
    "spot_notice_address",
    "start",
    "stop",
    "swept",
    "told",
    "world",
    "wrapped",
]
