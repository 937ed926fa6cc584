"""What a run took: time, money, and how near the plan was. Answers with their evidence. Pure."""

import shlex

from stoker import units
from stoker.machine.verdict import MEANING
from stoker.report import cost as costs
from stoker.report import remainder, summary
from stoker.report.account import Account
from stoker.report.questions.question import Question, unknown

TIME = "How long did it take?"
COST = "What did it cost?"
PLAN = "How near was the plan?"
# What later starts did again.
MEANINGS = {**MEANING, "setup": "libraries, network and data were loaded again by later starts"}


def time(account: Account) -> Question:
    """From the first start to the end, and how much of it was lost work."""
    cost, starts = account.cost, starts_of(account)
    if cost.run_seconds is None:
        return unknown("time", TIME, "the run has not started, or record.json can't be read",
                       fix=f"stoker work {shlex.quote(str(account.folder))} starts it.",
                       evidence=(f"state: {account.evidence.state}",))  # fmt: skip
    held, down = cost.run_seconds, cost.down_seconds or 0.0
    took = "It took" if account.evidence.is_done else "So far it took"
    often = f"; the machine was held for {units.seconds_text(held)} of it, in {units.count_text(starts, 'start')}"
    if starts < 2:
        often = ", in one start"
    answer = f"{took} {units.seconds_text(held + down)} from its first start to {end_text(account)}{often}."
    said = [answer, lost_text(account), left_text(account)]
    lines = (*date_lines(account), *again_lines(account))
    return Question(key="time", asked=TIME, answer=" ".join(filter(None, said)), evidence=lines, chart=None)


def end_text(account: Account) -> str:
    """Up to where a run's time is counted."""
    record = account.evidence.record
    if account.evidence.state == "running":
        return "now"
    is_told = record is not None and record.attempts and record.attempts[-1].ended_at is not None
    return "its end" if is_told else "its last sign of life"


def starts_of(account: Account) -> int:
    """How often a run was started."""
    record = account.evidence.record
    attempts = {row.attempt for rows in account.evidence.rows.values() for row in rows}
    return len(record.attempts) if record is not None and record.attempts else len(attempts)


def lost_text(account: Account) -> str:
    """How much work was lost, and how long the run was down, in a sentence."""
    lost, down = account.cost.lost_seconds, account.cost.down_seconds
    if lost is None:
        return "How much of it was lost work is not known: there is no line of the ledger."
    held = account.cost.run_seconds or 0.0
    share = f" ({units.percent_text(lost / held)})" if held > 0 else ""
    held_text = "that" if down else "it"
    said = f"{units.seconds_text(lost)} of {held_text}{share} were lost work" if lost else "No work was lost"
    return f"{said}; for {units.seconds_text(down)} it was down." if down else f"{said}."


def date_lines(account: Account) -> tuple[str, ...]:
    """When a run started and ended, and its state."""
    record = account.evidence.record
    attempts = record.attempts if record is not None else ()
    lines = [f"state: {account.evidence.state}"]
    if attempts:
        lines.append(f"first start: {summary.moment(attempts[0].started_at)}")
        if attempts[-1].ended_at is not None:
            lines.append(f"end: {summary.moment(attempts[-1].ended_at)}")
        killed = sum(attempt.ended_at is None for attempt in attempts[:-1])
        if killed:
            lines.append(f"{units.count_text(killed, 'start')} ended without a word: killed, or the machine went away")
    return tuple(lines)


def again_lines(account: Account) -> tuple[str, ...]:
    """What interruptions cost, one by one: the time down, and the parts of lost work."""
    found = {"down": account.cost.down_seconds or 0.0, **costs.setbacks(account.evidence)}
    return tuple(
        f"{bucket}: {units.seconds_text(seconds)}: {MEANINGS[bucket]}"
        for bucket, seconds in found.items()
        if seconds > 0
    )


def left_text(account: Account) -> str | None:
    """How much longer a run takes that is not done; None where it is."""
    if account.evidence.is_done:
        return None
    place = f"step {account.verdict.step:,}" + (f" of {account.steps:,}" if account.steps is not None else "")
    record, done = account.evidence.record, f"It is at {place}"
    if record is not None and record.status not in remainder.HOPEFUL:
        return f"It ended at {place}."
    if why := summary.unmeasured_text(account):
        return f"{done}; how long the rest will take is not known: {why}."
    if account.cost.left_seconds is None:
        return f"{done}; how long the rest will take is not known."
    left = units.seconds_text(account.cost.left_seconds)
    if account.evidence.state == "running":
        return f"{done}, and has about {left} left."
    return f"{done}, and would have about {left} left if it went on."


def cost(account: Account) -> Question:
    """Dollars so far and in all, with packing and lost work."""
    found = account.cost
    if found.dollars_per_hour is None or found.so_far_dollars is None:
        is_priced = found.dollars_per_hour is not None
        return unknown(
            "cost", COST, "how long it ran is not known" if is_priced else "no price is known",
            fix=f"stoker report {shlex.quote(str(account.folder))} --dollars-per-hour PRICE says what an hour of all "
            "its machines costs.",
            evidence=time_lines(account),
        )  # fmt: skip
    record = account.evidence.record
    if account.evidence.is_done:
        said = f"{units.dollars_text(found.so_far_dollars)} in all"
    elif record is not None and record.status not in remainder.HOPEFUL:
        said = f"{units.dollars_text(found.so_far_dollars)} up to its end"
    elif found.in_all_dollars is not None:
        whole = units.dollars_text(found.in_all_dollars)
        said = f"{units.dollars_text(found.so_far_dollars)} so far, and {whole} when it is done"
    else:
        said = f"{units.dollars_text(found.so_far_dollars)} so far; what the rest will cost is not known"
    parts = [
        f"{name} {units.dollars_text(dollars)}"
        for name, dollars in (("lost work", found.lost_dollars), ("packing", found.pack_dollars))
        if dollars
    ]
    included = f" In it: {', '.join(parts)}." if parts else ""
    answer = f"{said}, at {units.dollars_text(found.dollars_per_hour)} an hour.{included}"
    return Question(key="cost", asked=COST, answer=answer, evidence=time_lines(account))


def time_lines(account: Account) -> tuple[str, ...]:
    """The times that money is made of."""
    found = account.cost
    named = {
        "the machine was held": found.run_seconds,
        "of it lost work (done for nothing, or by later starts only to go on)": found.lost_seconds,
        "packing": found.pack_seconds,
        "left": found.left_seconds,
    }
    lines = [
        f"{name}: {units.seconds_text(seconds)}" if seconds is not None else f"{name}: not known"
        for name, seconds in named.items()
    ]
    if found.pack_seconds:
        lines.append("packing is charged in full, at this run's price; other runs of the same pack are charged it, too")
    if found.down_seconds:
        lines.append("what the machine may have cost while the run was down is not in it")
    return tuple(lines)


def plan(account: Account) -> Question:
    """What was planned against what it took."""
    past = account.past
    if past is None:
        return unplanned(account)
    longer = "longer" if past.error > 0 else "shorter"
    held = "within" if past.held else "outside of"
    answer = (
        f"It took {units.seconds_text(past.actual_seconds)}, {units.percent_text(abs(past.error))} {longer} than the "
        f"{units.seconds_text(past.planned_seconds)} that were planned, and {held} the bounds."
    )
    lines = (
        f"planned: {units.seconds_text(past.low_seconds)} to {units.seconds_text(past.high_seconds)}, "
        f"limited by {past.limit}",
        "the start and what went wrong are no part of a plan, and not counted here",
    )
    return Question(key="plan", asked=PLAN, answer=answer, evidence=lines, chart="planned")


def unplanned(account: Account) -> Question:
    """Why a run can't be compared with its plan."""
    if not account.evidence.plan.get("forecast"):
        fix = "A run is tried and planned before its first start, unless it is very short or --no-plan is given."
        return unknown("plan", PLAN, "there is no plan of it (plan.json)", fix=fix)
    if account.evidence.is_done:
        fix = "This one ended before its last step, or by another Stoker."
        return unknown("plan", PLAN, "what it took was not written into its plan", fix=fix)
    return unknown("plan", PLAN, "the run is not done", fix="Look again when it is.")
