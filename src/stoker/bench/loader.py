"""Stoker's loader against what a user would pick instead: same files, boxes, sizes and cores, in turn, as ratios."""

import dataclasses
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from stoker import progress
from stoker.bench import contest, peers
from stoker.bench.contest import Contestant, Failed
from stoker.bench.job import BATCH, Job, Photos, made, photos
from stoker.bench.peers import Peer
from stoker.config import DataConfig, ImageConfig
from stoker.data import sources
from stoker.errors import Problem

# Samples of a round for each worker: about two seconds for the fastest, several for the others.
ROUND = 1000
# The most that pixels may differ from Pillow's, of 255, on average, to be of equal quality. Dropping the antialiasing
# costs several times as much.
EQUAL = 0.5
COMPARED = 4 * BATCH


@dataclass(frozen=True, kw_only=True)
class Rival:
    """One peer and how it did. What was not measured is None."""

    peer: str
    name: str
    note: str
    difference: float | None = None
    """from Pillow's pixels, of 255, on average"""
    is_equal_quality: bool | None = None
    rounds: int = 0
    ours_per_second: float | None = None
    peer_per_second: float | None = None
    ratio: float | None = None
    """how many times as fast Stoker is: the middle of the rounds"""
    ratio_least: float | None = None
    ratio_most: float | None = None


@dataclass(frozen=True, kw_only=True)
class LoaderBench:
    """What a loader benchmark found, and on what."""

    data: str
    files: int
    samples: int
    """loaded in each round by each"""
    resolution: int
    workers: int
    cores: tuple[int, ...]
    """numbers of the cores that everyone ran on; empty where the system can't tell"""
    difference: float
    """of Stoker's own pixels from Pillow's, of 255, on average"""
    fastest: str | None
    """the peer that came nearest to Stoker, or went past it, with equal quality"""
    rivals: tuple[Rival, ...]


@dataclass(kw_only=True, eq=False)
class Entrant:
    """A contestant with what was measured of it so far."""

    contestant: Contestant
    processes: int
    difference: float
    note: str
    pairs: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    """our rate and its own, one right after the other"""
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Field:
    """The ground of a contest: the jobs of its rounds are made here."""

    photos: Photos
    image: ImageConfig
    workers: int
    count: int
    folder: Path

    def round(self, turn: int, *, processes: int, share: float = 1.0) -> Job:
        """The job of a round, or of a share of one; another round has other boxes."""
        count = max(round(self.count * share) // BATCH, fewest(self.workers)) * BATCH
        return self._job(count, epoch=turn, processes=processes)

    def look(self) -> Job:
        """A short job whose pixels are compared."""
        return self._job(COMPARED, epoch=0, processes=self.workers)

    def _job(self, count: int, *, epoch: int, processes: int) -> Job:
        # What a peer keeps of a short job would not do for a long one, so each length has its own folder.
        folder = self.folder / str(count)
        folder.mkdir(exist_ok=True)
        return made(
            self.photos, count=count, epoch=epoch, image=self.image, workers=self.workers, processes=processes,
            folder=folder,
        )  # fmt: skip


def fewest(workers: int) -> int:
    """The batches of the shortest round in which some can be left out at either end."""
    return 4 * workers + 8


def compare(
    data: str, *, resolution: int, workers: int, rounds: int, repeat: int, keys: str, show: bool
) -> LoaderBench:
    """Load the same samples with each loader in turn, round after round, and set the rates side by side."""
    wanted = peers.chosen(keys)
    image = ImageConfig(resolution=resolution)
    source = sources.open_source(DataConfig(data=data), seed=0, show=show)
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="stoker-bench-")))
        taken = photos(source.train, source.held_out, folder=folder / "files")
        if not taken.files:
            raise Problem(f"{data} has no three-colour JPEGs", fix="give a folder of photos, or dials:2000x256")
        # Whole batches only, and enough of them that a few at either end can be left out.
        batches = -(-(repeat * len(taken.files) or ROUND * workers) // BATCH)
        count = max(batches, fewest(workers)) * BATCH
        ground = Field(photos=taken, image=image, workers=workers, count=count, folder=folder)
        cores = held.enter_context(contest.pinned(workers))
        progress.say(f"{count:,} samples a round; first a round to warm up", show=show)
        ours = entered(held, ground, peers.STOKER, show=show)
        if isinstance(ours, Rival):
            raise Problem(f"Stoker's own loader failed: {ours.note}", fix=f"see: stoker inspect {data}")
        entries = [entered(held, ground, peer, show=show) for peer in wanted if peer.fits(workers)]
        entrants = [entry for entry in entries if isinstance(entry, Entrant)]
        steps = measured(ground, ours, entrants, rounds=rounds)
        progress.follow(steps, total=rounds * len(entrants), what="measuring", show=show)
        rivals = tuple(entry if isinstance(entry, Rival) else rival(entry) for entry in entries)
    return LoaderBench(
        data=data, files=len(taken.files), samples=count, resolution=resolution, workers=workers, cores=cores,
        difference=ours.difference, fastest=fastest(rivals), rivals=rivals,
    )  # fmt: skip


def entered(held: ExitStack, ground: Field, peer: Peer, *, show: bool) -> Entrant | Rival:
    """Start a contestant, compare its pixels and let it warm up; says why where that is not possible."""
    if missing := peer.missing():
        return Rival(peer=peer.key, name=peer.name, note=f"not installed ({', '.join(missing)}): {peer.install}")
    progress.say(f"  {peer.name}", show=show)
    contestant = Contestant(peer)
    held.callback(contestant.close)
    # On one core a worker process and the one that asks share it: what is faster is found out.
    tried = [ground.workers, 0] if peer.has_processes and ground.workers == 1 else [ground.workers]
    try:
        difference = contestant.difference(ground.look())
        warm = {number: contestant.rate(ground.round(0, processes=number, share=0.5)) for number in tried}
    except Failed as failure:
        return Rival(peer=peer.key, name=peer.name, note=f"failed: {failure}")
    processes = max(tried, key=lambda tried: warm[tried])
    note = f"num_workers={processes}" if peer.has_processes else ""
    return Entrant(contestant=contestant, processes=processes, difference=difference, note=note)


def measured(ground: Field, ours: Entrant, entrants: list[Entrant], *, rounds: int) -> Iterator[int]:
    """Let everyone load in turn, Stoker before each peer; yields how many turns are over."""
    done = 0
    for turn in range(1, rounds + 1):
        for entrant in entrants:
            if entrant.failure is None:
                mine = ours.contestant.rate(ground.round(turn, processes=0))
                try:
                    other = entrant.contestant.rate(ground.round(turn, processes=entrant.processes))
                    entrant.pairs.append((mine, other))
                except Failed as failure:
                    entrant.failure = str(failure)
            done += 1
            yield done


def rival(entrant: Entrant) -> Rival:
    """The ratios of neighbouring measurements, which share the machine's mood."""
    peer, ratios = entrant.contestant.peer, [mine / other for mine, other in entrant.pairs]
    if entrant.failure is not None:
        return Rival(peer=peer.key, name=peer.name, note=f"failed: {entrant.failure}", difference=entrant.difference)
    is_equal = entrant.difference <= EQUAL
    notes = [entrant.note, "" if is_equal else "not of equal quality"]
    return Rival(
        peer=peer.key,
        name=peer.name,
        note=", ".join(note for note in notes if note),
        difference=entrant.difference,
        is_equal_quality=is_equal,
        rounds=len(ratios),
        ours_per_second=statistics.median(mine for mine, _ in entrant.pairs),
        peer_per_second=statistics.median(other for _, other in entrant.pairs),
        ratio=statistics.median(ratios),
        ratio_least=min(ratios),
        ratio_most=max(ratios),
    )


def fastest(rivals: tuple[Rival, ...]) -> str | None:
    """The key of the fastest peer of equal quality."""
    ratios = {
        rival.peer: rival.ratio
        for rival in rivals
        if rival.is_equal_quality and rival.ratio is not None and not peers.found(rival.peer).is_ours
    }
    return min(ratios, key=lambda key: ratios[key], default=None)
