"""Rows of a run that may be a million steps long, as few enough to draw. Neighbours become their mean."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from stoker.records import LedgerRow, MetricRow

Row = TypeVar("Row", LedgerRow, MetricRow)
MOST = 300


class History(Generic[Row]):
    """Rows in their order. Where there are too many, those of the same stretch of steps are joined to one."""

    def __init__(self, join: Callable[[Row, Row], Row | None], rows: Iterable[Row] = (), *, most: int = MOST) -> None:
        self.rows: list[Row] = []
        self.width = 1
        """steps of a stretch"""
        self._join: Callable[[Row, Row], Row | None] = join
        self._most = most
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Take in the next row."""
        self._take(row)
        while len(self.rows) > self._most:
            if self.width > 2 * max(one.step for one in self.rows):
                # Nothing joins any more, as with hundreds of starts: the oldest make room.
                self.rows = self.rows[-self._most :]
                return
            self.width *= 2
            before, self.rows = self.rows, []
            for one in before:
                self._take(one)

    def _take(self, row: Row) -> None:
        last = self.rows[-1] if self.rows else None
        if last is not None and (last.step - 1) // self.width == (row.step - 1) // self.width:
            joined = self._join(last, row)
            if joined is not None:
                self.rows[-1] = joined
                return
        self.rows.append(row)


def joined_scores(first: MetricRow, then: MetricRow) -> MetricRow:
    """Two rows of scores as one: the mean over the samples of both. What is not finite in one is left to the other."""
    scores = {}
    for name in {**first.scores, **then.scores}:
        known = [(row.scores[name], row.samples) for row in (first, then) if row.scores.get(name) is not None]
        weight = sum(samples for _, samples in known)
        if weight:
            scores[name] = sum(value * samples for value, samples in known) / weight
    return dataclasses.replace(then, samples=first.samples + then.samples, scores=scores)


def joined_ledger(first: LedgerRow, then: LedgerRow) -> LedgerRow | None:
    """Two rows of the ledger as one, with the times of both; None for rows of different starts."""
    if first.attempt != then.attempt or first.world != then.world:
        return None
    seconds = {
        bucket: None if first.seconds.get(bucket) is None and value is None
        else (first.seconds.get(bucket) or 0.0) + (value or 0.0)
        for bucket, value in then.seconds.items()
    }  # fmt: skip
    return dataclasses.replace(
        then, steps=first.steps + then.steps, samples=first.samples + then.samples, seconds=seconds,
        read_seconds=first.read_seconds + then.read_seconds,
        decode_seconds=first.decode_seconds + then.decode_seconds,
        write_seconds=first.write_seconds + then.write_seconds,
    )  # fmt: skip
