"""Ledger -> what a run spends its time on, in words. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.records import LedgerRow, Seconds

MEANING = {
    "data_wait": "the training thread waited for samples",
    "transfer": "samples were copied to the device",
    "compute": "the network went forward and backward",
    "host": "the GPU was idle because its work came late",
    "comm": "gradients were exchanged, waiting for other processes included",
    "peer_wait": "waited for a slower process",
    "optimizer": "the weights were updated",
    "checkpoint": "the state was saved",
    "eval": "the held-out samples were scored",
    "logging": "lines were written and shown",
    "other": "none of these",
    "setup": "data was indexed, libraries and the network were loaded",
    "compile": "the network was compiled, with its first step",
    "restore": "a checkpoint was read",
    "lost": "work that an interruption undid",
    "rollback": "work that was undone after a divergence",
    "down": "the run was not running",
}
LIMITS = {
    "data_wait": "data",
    "transfer": "copies to the device",
    "compute": "compute",
    "optimizer": "compute",
    "comm": "communication",
    "checkpoint": "checkpoints",
    "eval": "evaluation",
    "setup": "setup",
    "compile": "compilation",
    "lost": "interruptions",
    "down": "interruptions",
}
# Fewer steps than this say more about the start than about the run.
ENOUGH_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Share:
    """A bucket of the ledger."""

    bucket: str
    seconds: float
    share: float
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Where a run's time went, and what limits it."""

    state: str
    """what the run is doing"""
    step: int
    """up to which the ledger goes"""
    wall_seconds: float
    steps: int
    samples: int
    shares: tuple[Share, ...]
    not_measured: tuple[str, ...]
    useful_share: float
    """compute and optimiser, of the wall clock"""
    limit: str | None
    """what most of the time goes to; None where there is not enough evidence"""
    sentence: str
    version: int = 1


def judge(rows: Sequence[LedgerRow], *, state: str) -> Verdict:
    """What the ledger of one process says about its run."""
    totals: Seconds = rows[-1].totals if rows else {}
    wall = sum(value or 0.0 for value in totals.values())
    shares = tuple(
        Share(bucket=bucket, seconds=value, share=value / wall, meaning=MEANING[bucket])
        for bucket, value in sorted(totals.items(), key=lambda item: -(item[1] or 0.0))
        if value
    )
    by_limit: dict[str, float] = {}
    for share in shares:
        if share.bucket in LIMITS:
            by_limit[LIMITS[share.bucket]] = by_limit.get(LIMITS[share.bucket], 0.0) + share.seconds
    steps = sum(row.steps for row in rows)
    limit = max(by_limit, key=lambda name: by_limit[name]) if steps >= ENOUGH_STEPS else None
    useful = sum(share.seconds for share in shares if LIMITS.get(share.bucket) == "compute")
    return Verdict(
        state=state,
        step=rows[-1].step if rows else 0,
        wall_seconds=wall,
        steps=steps,
        samples=sum(row.samples for row in rows),
        shares=shares,
        not_measured=tuple(bucket for bucket, value in totals.items() if value is None),
        useful_share=useful / wall if wall else 0.0,
        limit=limit,
        sentence=sentence(limit, by_limit, wall, steps),
    )


def sentence(limit: str | None, by_limit: dict[str, float], wall: float, steps: int) -> str:
    """The verdict in words."""
    if limit is None:
        return f"No verdict yet: the ledger holds {steps} steps, and {ENOUGH_STEPS} are needed."
    share = by_limit[limit] / wall
    if limit == "interruptions":
        return (
            f"Bound by interruptions: {share:.0%} of the time. More frequent checkpoints lose less: --checkpoint-steps."
        )
    if limit == "compute":
        return f"Bound by compute: {share:.0%} of the time went into the network and its update."
    faster = 1 / (1 - share) if share < 1 else float("inf")
    return f"Bound by {limit}: {share:.0%} of the time. Without it the run would be {faster:.2g} times as fast."
