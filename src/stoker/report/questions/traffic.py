"""How step time follows network traffic. Pure."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from stoker import units
from stoker.machine.evidence import STEP_BUCKETS, steady
from stoker.records import GaugeRow, LedgerRow
from stoker.report.account import Account
from stoker.report.questions import learning
from stoker.report.questions.learning import Correlation
from stoker.report.questions.question import Question, unknown

ASKED = "How does step time follow network traffic?"
# Fewer pairs than this, or values that differ by less than this share of their mean, say nothing.
ENOUGH_PAIRS, LEAST_VARIATION = 8, 0.01
# More than this are too many to look at.
MOST_PAIRS = 1000
# Readings that tell of a stretch even where they cover little of it.
FEW_READINGS = 3
# A stretch that spent more than this share on something else than steps has traffic that is not theirs.
MOST_ELSE = 0.1
# Up to here a correlation is called weak.
WEAK = 0.3
# Above this share of its mean, the bytes of a step are not the same each time.
STEADY_BYTES = 0.25


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Some steps of a process, and what its machine sent and received meanwhile."""

    rank: int
    step: int
    """the last of them"""
    steps: int
    step_seconds: float
    """mean of a step, without evaluation and checkpoints"""
    bytes_per_second: float
    """both ways, over all interfaces but the loopback"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A reading of a gauge: a mean over some time."""

    begin: float
    end: float
    bytes_per_second: float


def pairs(account: Account) -> tuple[Pair, ...]:
    """Step time against network traffic, for each stretch of steps that both are known of."""
    gauges: dict[int, list[GaugeRow]] = {}
    for gauge in account.evidence.gauges:
        gauges.setdefault(gauge.rank, []).append(gauge)
    found: list[Pair] = []
    for rank, rows in sorted(account.evidence.rows.items()):
        shown, chosen = readings(gauges.get(rank, ())), steady(rows)
        if shown:
            # Of a long run, fewer and longer stretches.
            long = sum(map(wall_seconds, chosen)) * len(gauges) / MOST_PAIRS
            found += paired(rank, stretches(chosen, least_seconds=max(long, long_enough(shown))), shown)
    return tuple(found)


def readings(gauges: Iterable[GaugeRow]) -> list[Reading]:
    """What a machine sent and received, by time. A reading in which something was not measured is left out."""
    found = []
    for row in sorted(gauges, key=lambda row: row.at):
        rates = [rate for card in (row.network or {}).values() for rate in card.values()]
        known = [rate for rate in rates if rate is not None]
        if known and len(known) == len(rates) and row.seconds > 0:
            found.append(Reading(begin=row.at - row.seconds, end=row.at, bytes_per_second=sum(known)))
    return found


def long_enough(shown: Sequence[Reading]) -> float:
    """Seconds that a stretch must last, so that no two of them share a reading, and none goes without."""
    lasts = statistics.median(reading.end - reading.begin for reading in shown)
    apart = statistics.median([b.end - a.end for a, b in pairwise(shown)] or [lasts])
    # Of a long run some readings are left out: then a stretch takes a few, since each tells of a part of it only.
    return lasts if apart < 2 * lasts else FEW_READINGS * apart


def wall_seconds(row: LedgerRow) -> float:
    """Seconds that a line of the ledger tells of."""
    return sum(value or 0.0 for value in row.seconds.values())


def step_seconds(row: LedgerRow) -> float:
    """Seconds of a line that went into steps."""
    return sum(row.seconds.get(bucket) or 0.0 for bucket in STEP_BUCKETS)


def else_share(rows: Sequence[LedgerRow]) -> float:
    """The share of some lines' time that went into something else than steps."""
    whole = sum(map(wall_seconds, rows))
    return 1 - sum(map(step_seconds, rows)) / whole if whole > 0 else 0.0


def stretches(rows: Sequence[LedgerRow], *, least_seconds: float) -> list[list[LedgerRow]]:
    """Lines that follow each other, as many as last for so long; without those with much else than steps in them."""
    found: list[list[LedgerRow]] = [[]]
    seconds = 0.0
    for row in rows:
        found[-1].append(row)
        seconds += wall_seconds(row)
        # A clock's grain must not add a line to every stretch.
        if seconds >= 0.99 * least_seconds:
            found.append([])
            seconds = 0.0
    found.pop()
    # Where every stretch has its part of evaluations, these thin the traffic of all of them alike.
    most = max(MOST_ELSE, 1.5 * statistics.median([else_share(held) for held in found] or [0.0]))
    return [held for held in found if else_share(held) <= most]


def paired(rank: int, found: Iterable[Sequence[LedgerRow]], shown: Sequence[Reading]) -> Iterator[Pair]:
    """Each stretch with the traffic of its time, where enough readings tell of it."""
    first = 0
    for rows in found:
        begin, end = rows[0].at - wall_seconds(rows[0]), rows[-1].at
        while first < len(shown) and shown[first].end <= begin:
            first += 1
        here = list(takewhile(lambda reading: reading.begin < end, shown[first:]))  # noqa: B023
        shared = [min(end, reading.end) - max(begin, reading.begin) for reading in here]
        if (sum(shared) < 0.5 * (end - begin) and len(here) < FEW_READINGS) or sum(shared) <= 0:
            continue
        steps = sum(row.steps for row in rows)
        yield Pair(
            rank=rank,
            step=rows[-1].step,
            steps=steps,
            step_seconds=sum(map(step_seconds, rows)) / steps,
            bytes_per_second=sum(s * reading.bytes_per_second for s, reading in zip(shared, here)) / sum(shared),
        )


def asked(account: Account) -> Question:
    """How step time follows network traffic."""
    found, lines = pairs(account), exchange_lines(account)
    chart = "traffic" if found else None
    if len(found) < ENOUGH_PAIRS:
        has_gauges = any(row.network for row in account.evidence.gauges)
        fix = "The run must go on for longer." if has_gauges else "Read the gauges more often: --gauge-seconds 5."
        missing = f"traffic is known for {len(found)} of the {ENOUGH_PAIRS} stretches of steps that are needed"
        return still(unknown("traffic", ASKED, missing, fix=fix, evidence=lines), chart)
    rates, times = [pair.bytes_per_second for pair in found], [pair.step_seconds for pair in found]
    lines = (*pair_lines(found), *lines)
    same = [name for name, values in (("traffic", rates), ("step time", times)) if variation(values) < LEAST_VARIATION]
    related = learning.correlation(rates, times)
    if same or related is None:
        where = " and ".join(same) or "traffic"
        return still(
            unknown("traffic", ASKED, f"the {where} hardly varied, so nothing could follow it",
                    fix="A longer run, or one beside others on the same link, would show it.", evidence=lines),
            chart,
        )  # fmt: skip
    answer = f"{related_text(related)} {meaning(account, found, related)}"
    return Question(key="traffic", asked=ASKED, answer=answer, evidence=lines, chart=chart)


def still(question: Question, chart: str | None) -> Question:
    """The same answer, with the chart of what there is."""
    return Question(
        key=question.key, asked=question.asked, answer=question.answer, evidence=question.evidence,
        is_known=question.is_known, chart=chart,
    )  # fmt: skip


def variation(values: Sequence[float]) -> float:
    """The standard deviation, as a share of the mean."""
    mean = statistics.fmean(values)
    return statistics.pstdev(values) / mean if mean > 0 else 0.0


def related_text(found: Correlation) -> str:
    """A correlation in a sentence."""
    bounds = f"r = {found.r:.2f}, {found.low:.2f} to {found.high:.2f} for 95 %, {found.points} stretches of steps"
    if found.low <= 0 <= found.high or abs(found.r) < WEAK:
        return f"Hardly: step time and traffic go together no more than chance would have it ({bounds})."
    way = "more" if found.r > 0 else "less"
    return f"Where steps took longer, {way} went over the network in a second ({bounds})."


def meaning(account: Account, found: Sequence[Pair], related: Correlation) -> str:
    """What a correlation means for a run, in a sentence."""
    if account.evidence.world == 1:
        return "There is one process, so this is the traffic of its data or of other programs, not of gradients."
    if related.low <= 0 <= related.high or abs(related.r) < WEAK:
        return "So the network is not what makes some steps longer than others."
    each = [pair.bytes_per_second * pair.step_seconds for pair in found]
    if related.r < 0 and variation(each) < STEADY_BYTES:
        return (
            f"A step moves the same {units.bytes_text(statistics.fmean(each))} each time, so this alone does not say "
            "which is the cause: whether the network held it up is said above."
        )
    if related.r < 0:
        return "A slower link makes longer steps, and longer steps need a link less: the ledger says which it was."
    return "So what else is sent or received on these machines may hold the steps up."


def pair_lines(found: Sequence[Pair]) -> tuple[str, ...]:
    """How both varied."""
    rates = learning.summary([pair.bytes_per_second for pair in found], [pair.steps for pair in found])
    times = learning.summary([pair.step_seconds for pair in found], [pair.steps for pair in found])
    assert rates is not None and times is not None  # every pair has steps
    return (
        f"traffic, both ways: {units.bytes_text(rates.mean)}/s on average, "
        f"{units.bytes_text(rates.low)}/s to {units.bytes_text(rates.high)}/s in nine of ten stretches",
        f"step: {units.seconds_text(times.mean)} on average, {units.seconds_text(times.low)} to "
        f"{units.seconds_text(times.high)}",
    )


def exchange_lines(account: Account) -> tuple[str, ...]:
    """What the processes send each other, and whether the gauges see it."""
    evidence = account.evidence
    last = [rows[-1] for rows in evidence.rows.values() if rows]
    if evidence.world == 1 or not last:
        return ("one process: it sends no gradients",) if last else ()
    lines = []
    if sent := max(row.sent_bytes for row in last):
        lines.append(f"each of {evidence.world} processes sends {units.bytes_text(sent)} of gradients a step")
    if len({row.host for row in last}) == 1:
        lines.append("all processes are on one machine: what they send each other crosses no network, and no gauge")
    return tuple(lines)
