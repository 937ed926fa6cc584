"""When a run first was as good as was asked for, and what that cost. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.records import LedgerRow
from stoker.report.account import Account
from stoker.report.cost import Cost


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The moment at which the evaluation that reached a target was over."""

    step: int
    wall_seconds: float
    """since the first start"""
    down_seconds: float
    """of these, in which the run was not running"""

    def dollars(self, cost: Cost) -> float | None:
        """What it had cost by then, with the packing of the data where that is known."""
        if cost.dollars_per_hour is None:
            return None
        held = self.wall_seconds - self.down_seconds + (cost.pack_seconds or 0.0)
        return held / 3600 * cost.dollars_per_hour


def reached(account: Account, target_percent: float) -> Reached | None:
    """The first evaluation with that top-1 or more; None where there is none, or where the ledger is not known."""
    good = (one for one in account.evaluations if (one.scores.get("top1") or 0.0) >= target_percent)
    first, rows = next(good, None), account.evidence.rows
    return moment(rows[min(rows)], first.step) if first is not None and rows else None


def moment(rows: Sequence[LedgerRow], step: int) -> Reached | None:
    """When the evaluation after some step was over. Its time is in the line after the one that ends with that step."""
    lasting = survivors(rows)
    for row in lasting:
        evaluated = row.seconds.get("eval") or 0.0
        is_after = row.step > step or (row.step == step and row.steps == 0)
        if is_after and evaluated:
            later = sum(value or 0.0 for value in row.seconds.values()) - evaluated
            return at(row, step=step, later_seconds=later)
    # Killed before the next line: all but the evaluation itself is known.
    before = next((row for row in lasting if row.step >= step), None)
    return at(before, step=step, later_seconds=0.0) if before is not None else None


def at(row: LedgerRow, *, step: int, later_seconds: float) -> Reached:
    """The moment so many seconds before the end of a line."""
    wall = sum(value or 0.0 for value in row.totals.values())
    return Reached(step=step, wall_seconds=wall - later_seconds, down_seconds=row.totals.get("down") or 0.0)


def survivors(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """The lines whose steps were not undone later, by a kill or by going back after a divergence."""
    kept: list[LedgerRow] = []
    for row in reversed(rows):
        if not kept or row.step <= kept[-1].step:
            kept.append(row)
    return kept[::-1]
