"""Plans against what came of them: written into each run when it is done, and shown over all runs."""

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker import lines, runs
from stoker.records import LedgerRow
from stoker.runs import Run

# What a plan says nothing about: the start, and what went wrong.
NOT_PLANNED = ("setup", "restore", "compile", "lost", "rollback", "down")


@dataclass(frozen=True, kw_only=True)
class Past:
    """A run that is done, and what was planned for it."""

    run: str
    limit: str
    planned_seconds: float
    low_seconds: float
    high_seconds: float
    actual_seconds: float
    error: float
    """how much longer than planned, as a share: -0.1 is 10 % shorter"""
    held: bool
    """whether it came out within the bounds"""


@dataclass(frozen=True, kw_only=True)
class History:
    """How good the plans of all runs were."""

    runs: tuple[Past, ...]
    median_error: float | None
    """without its sign"""
    worst_error: float | None
    held_share: float | None
    version: int = 1


def finished(run: Run) -> None:
    """Write into the plan of a run that is done what it took."""
    plan, rows = read(run), lines.last(run.ledger, LedgerRow, 2).rows
    if plan is None or not rows or rows[-1].step < plan["forecast"]["steps"]:
        # A run that came to its target early is not what was planned.
        return
    actual = sum(seconds or 0.0 for bucket, seconds in rows[-1].totals.items() if bucket not in NOT_PLANNED)
    runs.write_whole(run.plan, json.dumps({**plan, "actual": {"seconds": actual}}, indent=1))


def read(run: Run) -> dict[str, Any] | None:
    """The plan of a run; None where there is none that can be read."""
    try:
        plan = json.loads(run.plan.read_text())
    except (OSError, ValueError):
        return None
    return plan if isinstance(plan, dict) and plan.get("version") == 1 else None


def past(run: Run) -> Past | None:
    """What was planned for a run and what came of it; None where one of them is not known."""
    plan = read(run)
    if plan is None or not plan.get("actual"):
        return None
    forecast, actual = plan["forecast"], plan["actual"]["seconds"]
    # The ledger's buckets that are added up leave the setup out.
    setup = forecast["setup_seconds"] or 0.0
    low, likely, high = (max(forecast["total"][end] - setup, 1e-9) for end in ("low", "likely", "high"))
    return Past(
        run=run.folder.name,
        limit=forecast["limit"],
        planned_seconds=likely,
        low_seconds=low,
        high_seconds=high,
        actual_seconds=actual,
        error=actual / likely - 1,
        held=low <= actual <= high,
    )


def over(folders: Iterable[Path]) -> History:
    """The plans of many runs against what came of them."""
    found = tuple(one for folder in folders if (one := past(Run(folder))) is not None)
    errors = [abs(one.error) for one in found]
    return History(
        runs=found,
        median_error=statistics.median(errors) if errors else None,
        worst_error=max(errors, default=None),
        held_share=statistics.mean(one.held for one in found) if found else None,
    )
