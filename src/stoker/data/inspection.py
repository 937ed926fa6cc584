"""What a source holds, for people who want to know before they train on it. Importing it imports no pictures."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stoker import progress
from stoker.config import DataConfig
from stoker.machine import gauges

if TYPE_CHECKING:
    from stoker.data.survey import Look, Seen


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a source holds."""

    data: str
    classes: dict[str, int]
    """samples by class, training and held out together"""
    train_samples: int
    held_out_samples: int
    held_out: str
    total_bytes: int
    empty: tuple[str, ...]
    ignored_files: int
    look: "Look"
    sheet: Path | None
    """where the contact sheet is"""


def inspected(data: str, *, most: int, sheet: Path | None, cache: str, show: bool) -> Inspection:
    """Decode up to `most` samples of a source to see that they can be, and draw a contact sheet (a PNG)."""
    from stoker.data import sheet as sheets
    from stoker.data import sources, survey

    found = sources.open_source(DataConfig(data=data, allow_bad=1.0, cache=cache), seed=0, show=show)
    if sheet is not None:
        sheets.check_place(sheet)
    threads = gauges.cores_allotted().allotted
    both = (found.train, found.held_out)
    total = sum(len(index) for index in both)
    shares = [-(-most * len(index) // total) for index in both]
    seen: list[Seen] = []

    def counted() -> Iterator[int]:
        for index, share in zip(both, shares, strict=True):
            for one in survey.looks(index, survey.chosen(index, share), threads=threads):
                seen.append(one)
                yield len(seen)

    progress.follow(counted(), total=sum(min(s, len(i)) for s, i in zip(shares, both)), what="decoding", show=show)
    counts = [
        int((found.train.label == n).sum() + (found.held_out.label == n).sum()) for n in range(len(found.classes))
    ]
    if sheet is not None:
        sheets.contact_sheet(found).save(sheet, format="PNG")
    return Inspection(
        data=data,
        classes=dict(zip(found.classes, counts, strict=True)),
        train_samples=len(found.train),
        held_out_samples=len(found.held_out),
        held_out=found.held_out_name,
        total_bytes=sum(index.total_bytes for index in both),
        empty=tuple(str(path) for path in found.empty),
        ignored_files=found.ignored,
        look=survey.summed(seen),
        sheet=sheet,
    )
