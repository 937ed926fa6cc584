"""The contestants: what a user would pick instead of Stoker's loader, each an optional package of the benchmark."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from stoker.bench import ffcv_peer
from stoker.bench import thread_peers as threads
from stoker.bench import worker_peers as workers
from stoker.bench.job import Job
from stoker.bench.worker_peers import Batches
from stoker.errors import Problem


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A way to load."""

    key: str
    name: str
    load: Callable[[Job], Batches]
    needs: tuple[str, ...] = ()
    """modules that must be there"""
    install: str = ""
    has_processes: bool = False
    """whether it loads in worker processes, and can do without them"""
    is_loop: bool = False
    """whether it is one loop on one core, which is compared where others have one core too"""
    is_ours: bool = False
    """whether it is Stoker in one thread, which shows what more threads are worth"""

    def fits(self, workers: int) -> bool:
        """Whether a comparison on so many cores says anything."""
        return workers == 1 if self.is_loop else workers > 1 or not self.is_ours

    def missing(self) -> list[str]:
        """The modules that are not installed."""
        return [name for name in self.needs if not is_installed(name)]


def is_installed(module: str) -> bool:
    """Whether a module can be found. Imports nothing but the packages it is in."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


STOKER = Peer(key="stoker", name="Stoker", load=threads.stoker, is_ours=True)
PEERS = (
    Peer(key="loop", name="Pillow, one loop", load=threads.pillow_loop, is_loop=True),
    Peer(key="ours", name="Stoker, one thread", load=threads.stoker_alone, is_ours=True),
    Peer(key="pillow", name="torch DataLoader, Pillow", load=workers.torch_pillow, has_processes=True),
    Peer(key="torchvision", name="torch DataLoader, torchvision.io", load=workers.torch_io, has_processes=True),
    Peer(
        key="webdataset", name="WebDataset, Pillow", load=workers.webdataset, has_processes=True,
        needs=("webdataset",), install="pip install webdataset",
    ),
    Peer(
        key="litdata", name="LitData, Pillow", load=workers.litdata, has_processes=True,
        needs=("litdata",), install="pip install litdata",
    ),
    Peer(
        key="dali", name="DALI on the CPU", load=threads.dali,
        needs=("nvidia.dali",), install="pip install nvidia-dali-cuda120",
    ),
    Peer(
        key="simplejpeg", name="simplejpeg, Pillow's resize", load=threads.simplejpeg,
        needs=("simplejpeg",), install="pip install simplejpeg",
    ),
    Peer(
        key="opencv", name="simplejpeg, OpenCV area", load=threads.opencv,
        needs=("simplejpeg", "cv2"), install="pip install simplejpeg opencv-python-headless",
    ),
    Peer(
        key="spdl", name="SPDL", load=threads.spdl,
        needs=("spdl.io", "spdl.pipeline"), install="pip install spdl; apt-get install ffmpeg",
    ),
    Peer(
        key="ffcv", name="FFCV", load=ffcv_peer.ffcv, needs=("ffcv", "numba"),
        install="apt-get install libopencv-dev libturbojpeg0-dev pkg-config; pip install numba ffcv",
    ),
)  # fmt: skip


def chosen(keys: str) -> tuple[Peer, ...]:
    """The peers that a list of keys with commas between them names; all where it is empty."""
    if not keys:
        return PEERS
    known = {peer.key: peer for peer in PEERS}
    wanted = [key.strip() for key in keys.split(",")]
    strange = [key for key in wanted if key not in known]
    if strange:
        raise Problem(f"there is no peer called {', '.join(strange)}", fix=f"choose from {', '.join(known)}")
    return tuple(known[key] for key in dict.fromkeys(wanted))


def found(key: str) -> Peer:
    """The contestant of a key."""
    return next(peer for peer in (STOKER, *PEERS) if peer.key == key)
