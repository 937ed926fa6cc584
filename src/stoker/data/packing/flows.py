"""Sources that are read once, from front to back: tar streams, compressed tars, Parquet and records in parts."""

import dataclasses
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stoker.data.dataset import split_of
from stoker.data.packing import streams
from stoker.data.packing.downloads import Download, Mark
from stoker.data.packing.streams import Arrival, Opened
from stoker.data.sources import lists, parquet, recordio
from stoker.data.sources.kinds import Kind
from stoker.data.sources.pages import Pages
from stoker.errors import Problem


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A source whose samples arrive in its own order."""

    arrivals: Iterator[Arrival]
    total: int | None = None
    """how many samples there are, where that is known"""
    download: Download | None = None
    starts_anywhere: bool = False
    """whether reading may begin in the middle"""


def is_flow(kind: Kind) -> bool:
    """Whether a source must be read from front to back. Looks through a .rec for records in several parts."""
    if kind.name == "recordio" and kind.in_place:
        return any(has_parts(path) for path in kind.files)
    return kind.name in ("stream", "parquet") or (kind.name == "tar" and not kind.in_place)


def has_parts(path: Path) -> bool:
    """Whether a .rec holds a record in several parts."""
    with Pages(path) as pages:
        return any(len(record) > 1 for record in recordio.records(pages))


def base_name(source: str) -> str:
    """The name of a source without its place and its endings."""
    if source == "-":
        return "stdin"
    path = unquote(urlsplit(source).path) if lists.is_address(source) else source
    return re.sub(r"(\.(tar|tgz|gz|bz2|xz|rec|parquet|csv))+$", "", Path(path).name) or "data"


def fingerprint(kind: Kind) -> str | None:
    """A digest of the names and sizes of a source's files; None where it is no files. Copies have other times."""
    if not kind.files:
        return None
    lines = [f"{path.relative_to(kind.root)} {path.stat().st_size}\n" for path in kind.files]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def opened(source: str, kind: Kind, *, at: int = 0, mark: Mark | None = None, show: bool = False) -> Flow:
    """Begin to read a source, in its middle where it can be."""
    if kind.name == "parquet":
        return Flow(arrivals=arrived(kind, "parquet"), total=parquet.count(kind.files))
    if kind.name == "recordio":
        return Flow(arrivals=arrived(kind, "recordio"))
    if kind.name == "tar":
        return Flow(arrivals=unpacked(kind))
    if source == "-":
        return Flow(arrivals=streams.samples(Opened(streams.standard_input()), name="the stream"))
    download = Download(source, at=at, mark=mark, show=show)
    stream = Opened(download, at=at, name=source)
    return Flow(
        arrivals=streams.samples(stream, name=source), download=download, starts_anywhere=stream.is_plain or at > 0
    )


def arrived(kind: Kind, name: str) -> Iterator[Arrival]:
    """The samples of files that hold many each. They are named without the place of the files."""
    for sample in {"parquet": parquet.samples, "recordio": recordio.samples}[name](kind.files):
        yield Arrival(sample=dataclasses.replace(sample, name=sample.name.removeprefix(f"{kind.root}/")), at=0)


def unpacked(kind: Kind) -> Iterator[Arrival]:
    """The samples of compressed tars. A tar's own name may name the split."""
    for path in kind.files:
        split = split_of(str(path.relative_to(kind.root)))
        try:
            with open(path, "rb") as file:
                for arrival in streams.samples(Opened(file, name=str(path)), name=str(path)):
                    sample = arrival.sample
                    sample = dataclasses.replace(sample, split=sample.split or split)
                    yield dataclasses.replace(arrival, sample=sample, at=0)
        except OSError as error:
            raise Problem(f"{path} can't be read: {error}", fix="copy or download it again") from None
