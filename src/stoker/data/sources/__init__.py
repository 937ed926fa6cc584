"""Data as people have it: opened, whatever it is, and indexed in place."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stoker import progress, units
from stoker.config import DataConfig
from stoker.data import dials
from stoker.data.dataset import HELD_OUT, TRAIN, Dataset
from stoker.data.index import Index
from stoker.data.sources import arrays, folders, kinds, lists, recordio, rows, tars, tfrecord
from stoker.data.sources.kinds import Kind, kind
from stoker.data.sources.rows import Rows
from stoker.errors import Problem
from stoker.machine import gauges

__all__ = ["HELD_OUT", "TRAIN", "Dataset", "Kind", "kind", "open_held_out", "open_source", "prepared"]
DIALS_COUNT, DIALS_SIZE = 4000, 96


def open_source(config: DataConfig, *, seed: int, show: bool, with_others: bool = False) -> Dataset:
    """Index a source in place. Reads names, sizes and labels, no pictures.

    Training needs one held-out part. With the others, such as a test folder beside val, Dataset.others has them too.
    """
    found = prepared(config, show=show)
    if found.name == "pack":
        from stoker.data import pack

        return pack.open_pack(found.root, config, seed=seed)
    with reading(config.data):
        if found.name in ("dials", "folder"):
            dataset = folders.opened(found.root, config, seed=seed)
            if with_others:
                dataset = replace(dataset, others=folders.others(found.root, dataset))
        else:
            held, name = rows_of(found, show=show), Path(config.data).name
            dataset = rows.opened(held, where=config.data, name=name, config=config, seed=seed)
    total = len(dataset.train) + len(dataset.held_out) + len(dataset.empty)
    if len(dataset.empty) > config.allow_bad * total:
        what = f"{len(dataset.empty)} of {total} files in {config.data} are empty or not there"
        raise Problem(
            f"{what}, the first: {dataset.empty[0]}",
            fix=f"see all that can't be read with: stoker inspect {config.data}; or allow more with --allow-bad",
        )
    return dataset


def open_held_out(config: DataConfig, *, show: bool) -> tuple[Index, tuple[str, ...]]:
    """The samples to evaluate on, and the source's classes: its own held-out part, or all where it is not split."""
    found = prepared(config, show=show)
    if found.name == "pack":
        from stoker.data import pack

        return pack.held_out(found.root)
    with reading(config.data):
        if found.name in ("dials", "folder"):
            return folders.held_out(found.root)
        return rows.held_out(rows_of(found, show=show), where=config.data)


def prepared(config: DataConfig, *, show: bool) -> Kind:
    """What a source's name stands for, there and readable in place. Draws the dials where they are wanted."""
    with reading(config.data):
        found = kind(config.data)
    if found.name == "dials":
        match = kinds.DIALS.fullmatch(config.data)
        assert match is not None
        return replace(found, root=made_dials(match, Path(config.cache), show=show))
    if not found.in_place:
        raise Problem(found.why_not, fix=found.fix)
    return found


@contextlib.contextmanager
def reading(data: str) -> Iterator[None]:
    """Say in words what the system says of files that can't be read."""
    try:
        yield
    except OSError as error:
        raise Problem(f"{data} can't be read: {error}", fix=f"see whose files these are: ls -l {data}") from None


def made_dials(match: re.Match[str], cache: Path, *, show: bool) -> Path:
    """The folder of the built-in dataset, drawn now if it is not there."""
    count, size = int(match[1] or DIALS_COUNT), int(match[2] or DIALS_SIZE)
    dest = cache / f"dials-{count}x{size}"
    processes = gauges.cores_allotted().allotted
    if not dest.exists():
        steps = dials.make(dest, count=count, size=size, seed=0, processes=processes)
        try:
            progress.follow(steps, total=count + count // 5, what=f"drawing {dest}", show=show)
        except OSError as error:
            raise Problem(f"{dest} can't be made: {error}", fix="give another folder with --cache") from None
    return dest


def rows_of(found: Kind, *, show: bool) -> Rows:
    """Find the samples in files that hold many each."""
    progress.say(f"index    {units.count_text(len(found.files), found.name + ' file')} in {found.root}", show=show)
    match found.name:
        case "tar":
            return tars.rows(found.files, root=found.root)
        case "recordio":
            return recordio.rows(found.files, root=found.root)
        case "tfrecord":
            return tfrecord.rows(found.files, root=found.root)
        case "arrays":
            return arrays.rows(found.files, root=found.root)
        case name:
            assert name == "list"
            return lists.rows(found.files[0])
