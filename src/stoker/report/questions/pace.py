"""What a step of a run takes, and how much that varies. The answer with its evidence. Pure."""

from collections.abc import Sequence

from stoker import units
from stoker.machine.evidence import ENOUGH_STEPS, STEP_BUCKETS, steady
from stoker.records import LedgerRow
from stoker.report.account import Account
from stoker.report.questions import learning
from stoker.report.questions.question import Question, unknown
from stoker.report.questions.traffic import step_seconds

ASKED = "What does a step take on average, and how much does it vary?"


def asked(account: Account) -> Question:
    """The mean of a step and its spread, without evaluation and checkpoints."""
    rows = judged(account)
    steps = sum(row.steps for row in rows)
    taken = summarised(rows)
    if taken is None or steps < ENOUGH_STEPS:
        lines = (f"those took {units.seconds_text(taken.mean)} each, warming up included",) if taken else ()
        return unknown(
            "step", ASKED, f"the ledger tells of {units.count_text(steps, 'step')}, and {ENOUGH_STEPS} are needed",
            fix="Look again when the run has gone on.", evidence=lines,
        )  # fmt: skip
    samples, seconds = sum(row.samples for row in rows), sum(map(step_seconds, rows))
    rate = f", {samples / seconds:,.1f} samples/s" if samples and seconds > 0 else ""
    answer = (
        f"{units.seconds_text(taken.mean)} +- {units.seconds_text(taken.deviation)}{rate}, without evaluation and "
        f"checkpoints. Nine of ten are between {units.seconds_text(taken.low)} and {units.seconds_text(taken.high)}."
    )
    return Question(key="step", asked=ASKED, answer=answer, evidence=lines_of(account, rows, steps), chart="step_times")


def judged(account: Account) -> list[LedgerRow]:
    """The lines of the first process to judge steps by: of its last start that has enough, with as many processes."""
    rows = account.evidence.rows[min(account.evidence.rows)] if account.evidence.rows else ()
    return steady([row for row in rows if row.world == rows[-1].world])


def summarised(rows: Sequence[LedgerRow]) -> learning.Summary | None:
    """Seconds of a step over lines, each of which counts by its steps."""
    known = [row for row in rows if row.steps > 0]
    return learning.summary([step_seconds(row) / row.steps for row in known], [row.steps for row in known])


def lines_of(account: Account, rows: Sequence[LedgerRow], steps: int) -> tuple[str, ...]:
    """Quantiles, what they are over, and what a step is made of."""
    taken = summarised(rows)
    assert taken is not None  # there are steps
    each = steps / len(rows)
    means = {
        bucket: sum(row.seconds.get(bucket) or 0.0 for row in rows) / steps
        for bucket in STEP_BUCKETS
        if any(row.seconds.get(bucket) for row in rows)
    }
    parts = [
        f"{bucket} {units.seconds_text(seconds)}"
        for bucket, seconds in sorted(means.items(), key=lambda part: -part[1])
        if seconds >= 0.01 * taken.mean
    ]
    lines = [
        f"5 % {units.seconds_text(taken.low)}, median {units.seconds_text(taken.middle)}, "
        f"95 % {units.seconds_text(taken.high)}; standard deviation {units.seconds_text(taken.deviation)}",
        f"over {units.count_text(steps, 'step')} in {units.count_text(len(rows), 'line')} of the ledger, of the last "
        f"start, without its first line" + (f"; a line is a mean of {each:.1f} steps, and single steps vary more"
                                            if each > 1 else ""),
        f"a step is made of {', '.join(parts)}",
    ]  # fmt: skip
    samples = sum(row.samples for row in rows)
    if samples:
        lines.append(f"{samples / steps:,.0f} samples a step, over all processes")
    paused = [
        f"{share.bucket} {units.seconds_text(share.seconds)}"
        for share in account.verdict.shares
        if share.bucket in ("eval", "checkpoint")
    ]
    return (*lines, *([f"not in it: {', '.join(paused)} in the whole run"] if paused else []))
