"""Packing: any source into a pack, on all cores, so that a kill costs no more than the shards in work.

A source whose bytes can be read anywhere is shuffled by the seed, and shards are cut by a number of samples before any
is encoded. One that must be read from front to back keeps its order (see intake.py). Either way a shard's bytes follow
from the source and the settings alone, so that a pack is the same whoever makes it, on how many cores, and after how
many kills. After a kill, whole shards are kept. A plain tar on a server is read on from where they end; other streams
are read from the beginning, and what is packed already is passed over.
"""

import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stoker import progress
from stoker.config import DataConfig
from stoker.data import index, order, pack, sources
from stoker.data.dataset import HELD_OUT, Dataset
from stoker.data.index import Index
from stoker.data.pack import PackRecord
from stoker.data.packing import flows, plans, shards, store
from stoker.data.packing.crew import Crew
from stoker.data.packing.downloads import Mark
from stoker.data.packing.encode import Encoding
from stoker.data.packing.intake import SPLITS, Intake, Point
from stoker.data.packing.pieces import MOST_BYTES, MOST_SAMPLES, Rows
from stoker.data.packing.plans import Settings
from stoker.data.packing.shards import Bad
from stoker.data.packing.store import Store, writing
from stoker.data.sources import lists, rows
from stoker.data.sources.kinds import Kind
from stoker.errors import Problem

__all__ = ["Packed", "Settings", "pack_source"]
# No epoch of training has this number, nor the split of a source.
SHUFFLE = 2**32 - 2
# Bytes of a photo's JPEG for each pixel at quality 90, and of a sample's two tar headers, paddings and label.
BYTES_A_PIXEL, BYTES_A_SAMPLE = 0.4, 2048


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A finished pack."""

    folder: Path
    record: PackRecord
    was_done: bool
    """whether there was nothing left to do"""
    note: str = ""
    """what else is to be said of it"""


def pack_source(source: str, dest: Path, settings: Settings, *, workers: int, show: bool) -> Packed:
    """Make a pack of a source, or go on with it: the same call again is resume."""
    began = time.monotonic()
    # Without a holdout all samples are packed as train, whichever share is set aside here.
    holdout = settings.holdout or DataConfig.holdout
    config = DataConfig(data=source, holdout=holdout, allow_bad=settings.allow_bad, cache=settings.cache)
    check_dest(source, dest)
    kind = sources.kind(source)
    is_flow = flows.is_flow(kind)
    found = None if is_flow else opened(kind, config, seed=settings.seed, show=show)
    made = plans.how(source, kind, settings, fingerprint=fingerprint(found) if found else flows.fingerprint(kind))
    if (dest / pack.RECORD).exists():
        return finished(dest, made, source=source)
    with writing(dest), store.held(dest):
        # Another process may just have finished it.
        if not (dest / pack.RECORD).exists():
            plans.check_plan(dest, made)
            with Store(dest, shard_samples=settings.shard_samples, began=began) as kept:
                if found is not None:
                    record = pack_rows(found, kept, settings, made, workers=workers, show=show)
                else:
                    record = pack_flow(source, kind, kept, settings, made, workers=workers, show=show)
            store.remove_unfinished(dest)
            return Packed(folder=dest, record=record, was_done=False)
    return finished(dest, made, source=source)


def fingerprint(found: Dataset) -> str:
    """A digest of all that is packed of a source."""
    return "-".join([found.fingerprint(), *(found.others[name].fingerprint() for name in sorted(found.others))])


def opened(kind: Kind, config: DataConfig, *, seed: int, show: bool) -> Dataset:
    """A source whose samples can be read in any order. Those of a list may be on other machines."""
    if kind.name != "list":
        return sources.open_source(config, seed=seed, show=show, with_others=True)
    path = kind.files[0]
    listed = lists.read(path)
    if not any(map(lists.is_address, listed.locations)):
        return sources.open_source(config, seed=seed, show=show, with_others=True)
    found = rows.Rows(root=path.parent)
    for location, label, split in zip(listed.locations, listed.labels, listed.splits, strict=True):
        size = 0 if lists.is_address(location) else lists.file_bytes(path.parent / location)
        if size or lists.is_address(location):
            found.files.append(location)
            found.add(0, size, label=label, codec=index.codec_of(location), split=split)
        else:
            found.empty.append(path.parent / location)
    return rows.opened(found, where=config.data, name=path.name, config=config, seed=seed)


def check_dest(source: str, dest: Path) -> None:
    """Refuse to write over anything."""
    if dest.exists() and not dest.is_dir():
        raise Problem(f"{dest} is a file", fix="give a folder that is not there yet")
    if Path(source).is_dir() and dest.resolve().is_relative_to(Path(source).resolve()):
        raise Problem(f"{dest} is inside of {source}, which is to be packed", fix="give a folder outside of it")
    if dest.is_dir() and not pack.is_pack(dest) and any(dest.iterdir()):
        raise Problem(f"{dest} is not empty and is no pack", fix="give a folder that is not there yet, or an empty one")


def finished(dest: Path, made: dict[str, Any], *, source: str) -> Packed:
    """A pack that is there already, if it is the one that was asked for."""
    record = pack.read_record(dest)
    old = {name: value for name, value in record.made.items() if name not in plans.VERSIONS}
    plans.check_same(dest, old, {name: value for name, value in made.items() if name not in plans.VERSIONS})
    pack.check_shards(dest, record)
    store.remove_unfinished(dest)
    note = ""
    if made["source_fingerprint"] is None:
        what = "what is piped into it" if source == "-" else source
        note = f"{dest} is finished, so {what} was not read, and may be other data"
    return Packed(folder=dest, record=record, was_done=True, note=note)


def splits_of(found: Dataset, *, holdout: float) -> dict[str, Index]:
    """The splits of a source, as its pack calls them."""
    if holdout == 0 and found.whole is not None:
        return {"train": found.whole}
    held_out_name = found.held_out_name if found.held_out_name in HELD_OUT else "val"
    splits = {"train": found.train}
    for name, part in {held_out_name: found.held_out, **found.others}.items():
        # Where a source has both val and valid, each keeps its name.
        key = SPLITS.get(name, name)
        splits[name if key in splits else key] = part
    return {name: part for name, part in splits.items() if len(part)}


def pack_rows(
    found: Dataset, kept: Store, settings: Settings, made: dict[str, Any], *, workers: int, show: bool
) -> PackRecord:
    """Pack a source whose samples can be read in any order."""
    splits = splits_of(found, holdout=settings.holdout)
    empty = [Bad(place=relative(str(path), found.train.root), reason="the file is empty") for path in found.empty]
    total = sum(map(len, splits.values()))
    check_bad(kept, empty, total=total + len(empty), allow_bad=settings.allow_bad)
    share = 1 - kept.places / total
    store.check_room(kept.dest, share * sum(estimate(part, settings.encoding) for part in splits.values()))
    for name, part in splits.items():
        index.write(part, kept.unfinished / "source" / name)

    def counts() -> Iterator[int]:
        done = kept.places
        pieces = (piece for name, part in splits.items() for piece in row_pieces(part, name, kept, seed=settings.seed))
        with Crew(settings.encoding, workers=workers) as crew:
            for fragment in crew.fragments(pieces):
                left = len(splits[fragment.split]) - fragment.shard * settings.shard_samples
                kept.add(fragment, expected=min(left, settings.shard_samples))
                check_bad(kept, empty, total=total + len(empty), allow_bad=settings.allow_bad)
                done += len(fragment.source_crcs)
                yield done

    progress.follow(counts(), total=total, what=f"packing {kept.dest}", show=show)
    return kept.finish(name=found.name, classes=found.classes, empty=empty, made=made)


def relative(place: str, root: Path) -> str:
    """A place without the folder that the source is in."""
    return place.removeprefix(f"{root}/")


def row_pieces(source: Index, split: str, kept: Store, *, seed: int) -> Iterator[Rows]:
    """The samples of a split in their shuffled order, without those of whole shards."""
    count, size = len(source), kept.shard_samples
    fingerprint = source.fingerprint()
    for shard in range(-(-count // size)):
        if (split, shard) in kept.whole:
            continue
        places = np.arange(shard * size, min((shard + 1) * size, count))
        chosen = order.permuted(places, count=count, seed=seed, epoch=SHUFFLE)
        ends = np.cumsum(source.length[chosen], dtype=np.int64)
        start = 0
        while start < len(chosen):
            within = int(np.searchsorted(ends, (ends[start - 1] if start else 0) + MOST_BYTES, side="right"))
            stop = min(max(within, start + 1), start + MOST_SAMPLES)
            yield Rows(
                split=split,
                shard=shard,
                first=int(places[start]),
                folder=kept.unfinished / "source" / split,
                root=source.root,
                fingerprint=fingerprint,
                rows=chosen[start:stop],
            )
            start = stop


def estimate(source: Index, encoding: Encoding) -> float:
    """About how many bytes a split will take."""
    resized = len(source) * encoding.short_side**2 * 4 / 3 * BYTES_A_PIXEL
    kept = source.total_bytes
    return (kept if encoding.keep else min(kept, resized)) + len(source) * BYTES_A_SAMPLE


def check_bad(kept: Store, empty: list[Bad], *, total: int, allow_bad: float) -> None:
    """Refuse a source of which too much can't be read, as soon as that is certain."""
    bad = len(empty) + kept.bad
    if bad <= allow_bad * total:
        return
    kept.write_bad(empty)
    first = (empty + kept.bad_samples())[0]
    raise Problem(
        f"{bad} of {total} samples can't be read, the first: {first.place}: {first.reason}",
        fix=f"see {kept.dest / pack.BAD} and put them right, or allow more with --allow-bad and run it again: "
        "it goes on with what it has",
    )


def pack_flow(
    source: str, kind: Kind, kept: Store, settings: Settings, made: dict[str, Any], *, workers: int, show: bool
) -> PackRecord:
    """Pack a source that is read from front to back."""
    saved = kept.unfinished / plans.POINT
    values = json.loads(saved.read_bytes()) if saved.exists() else {"point": {}, "mark": None}
    point, mark = Point(**values["point"]), Mark(**values["mark"]) if values["mark"] else None
    flow = flows.opened(source, kind, at=point.at, mark=mark, show=show)
    intake = Intake(kept, point=point, seed=settings.seed, holdout=settings.holdout)
    length = flow.download.mark.length if flow.download and flow.download.mark else None
    if length and settings.encoding.keep:
        store.check_room(kept.dest, length - point.at)

    def remember() -> None:
        begin = intake.resume_point()
        if begin and begin["at"] != values["point"].get("at") and flow.starts_anywhere and flow.download:
            values["point"], values["mark"] = begin, dataclasses.asdict(flow.download.mark or Mark())
            shards.save(saved, json.dumps(values).encode())

    def counts() -> Iterator[int]:
        with Crew(settings.encoding, workers=workers) as crew:
            for fragment in crew.fragments(intake.pieces(flow.arrivals)):
                remember()
                if kept.add(fragment, expected=settings.shard_samples):
                    del intake.begins[fragment.split, fragment.shard]
                    remember()
                yield flow.download.at // 10**6 if length and flow.download else intake.now.arrivals
        for key in list(kept.parts):
            kept.close(key)

    total = length // 10**6 if length else flow.total
    progress.follow(counts(), total=total, what=f"packing {kept.dest}{' (MB)' if length else ''}", show=show)
    intake.check_end()
    if not kept.places:
        raise Problem(f"{source} holds no pictures", fix="give a tar of class folders, or of WebDataset samples")
    check_bad(kept, [], total=kept.places, allow_bad=settings.allow_bad)
    intake.check_classes(where=source)
    return kept.finish(name=flows.base_name(source), classes=intake.classes(), empty=[], made=made)
