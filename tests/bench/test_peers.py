import importlib.util
from pathlib import Path

import pytest

from stoker.bench import contest, peers
from stoker.bench import job as jobs
from stoker.config import ImageConfig
from stoker.data import dials, index
from stoker.errors import Problem

# Filters other than Pillow's, or colour cut at half its resolution; the benchmark shows by how much they differ.
OTHER_PIXELS = {"opencv", "ffcv", "spdl"}
INSTALLED = [peer for peer in (peers.STOKER, *peers.PEERS) if not peer.missing()]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> jobs.Photos:
    folder = tmp_path_factory.mktemp("photos") / "dials"
    list(dials.make(folder, count=12, size=150, seed=0, processes=1))
    files = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.jpg"))]
    sizes = [(folder / file).stat().st_size for file in files]
    whole = index.of_files(folder, files, sizes=sizes, labels=[0] * len(files))
    return jobs.photos(whole, folder=folder / "copies")


def job_of(photos: jobs.Photos, folder: Path) -> jobs.Job:
    return jobs.made(photos, count=64, epoch=3, image=ImageConfig(resolution=48), workers=1, processes=0, folder=folder)


@pytest.mark.filterwarnings("ignore")  # what other packages warn of is not ours to mend
@pytest.mark.parametrize("peer", INSTALLED, ids=lambda peer: peer.key)
def test_a_peer_gives_every_sample_once_with_pixels_close_to_pillows(
    peer: peers.Peer, photos: jobs.Photos, tmp_path: Path
) -> None:
    assert contest.mean_difference(peer.key, job_of(photos, tmp_path)) < (3 if peer.key in OTHER_PIXELS else 0.5)


def test_a_flip_or_a_box_that_is_not_heeded_shows_in_the_difference(photos: jobs.Photos, tmp_path: Path) -> None:
    job = job_of(photos, tmp_path)
    assert contest.mean_difference("loop", job) == 0
    moved = jobs.made(photos, count=64, epoch=4, image=ImageConfig(resolution=48), workers=1, processes=0,
                      folder=tmp_path)  # fmt: skip
    # Stoker's own loop draws its boxes by the epoch; here they are those of another.
    object.__setattr__(moved, "epoch", 3)
    object.__setattr__(moved, "rows", job.rows)
    assert contest.mean_difference("ours", moved) > 3


def test_a_module_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = peers.found("opencv")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "cv2" else name)
    assert peer.missing() == ["cv2"]
    assert not peers.is_installed("cv2") and peers.is_installed("simplejpeg")
    monkeypatch.undo()
    assert not peers.is_installed("a_package_that_nobody.has_written")


def test_peers_are_chosen_by_their_keys() -> None:
    assert [peer.key for peer in peers.chosen("dali, pillow,dali")] == ["dali", "pillow"]
    assert peers.chosen("") == peers.PEERS
    with pytest.raises(Problem, match="no peer called daly"):
        peers.chosen("daly")


def test_every_optional_peer_says_how_to_install_it() -> None:
    assert [peer.key for peer in peers.PEERS if bool(peer.needs) != bool(peer.install)] == []
