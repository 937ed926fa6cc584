"""How well a run used its machines: the GPUs, and the network between them. Answers with their evidence. Pure."""

from stoker import units
from stoker.machine import evidence as evidences
from stoker.machine.evidence import STEP_BUCKETS
from stoker.machine.usage import Spread, Usage
from stoker.machine.verdict import HIGH_SHARE, MEANING, Verdict
from stoker.report.account import Account
from stoker.report.questions.question import Question, unknown

GPUS = "Were the GPUs fully used?"
NETWORK = "Was the network the bottleneck?"
NO_LEDGER = "the run has written no line of its ledger yet, or none that can be read"
LOOK_AGAIN = "Look again when it has gone on for some steps."
USEFUL = ("compute", "optimizer")
# Of the time in steps: what counts as fully and as mostly used.
FULLY, MOSTLY = 0.9, 0.7
# Below this share of its highest, a GPU's clock is worth a word.
LOW_CLOCK = 0.9


def gpus(account: Account) -> Question:
    """Whether the GPUs computed all the time, and what else there was."""
    found, verdict = account.evidence, account.verdict
    if not found.rows or verdict.wall_seconds <= 0:
        return unknown("gpus", GPUS, NO_LEDGER, fix=LOOK_AGAIN)
    is_gpu = any(rows[-1].device.startswith("cuda") for rows in found.rows.values() if rows)
    usage = evidences.usage(found)
    lines = (*used_lines(account, usage, is_gpu=is_gpu), *rest_lines(verdict, is_gpu=is_gpu))
    stepping = step_share(verdict)
    useful = f"{units.percent_text(verdict.useful_share)} of all its time went into the network and its update"
    in_steps = f" ({units.percent_text(stepping)} of the time in steps)" if stepping is not None else ""
    if not is_gpu:
        busy = usage.cpu_percent
        cores = f"its cores were busy to {spread_text(busy)}" if busy is not None else "no gauge tells how busy it was"
        answer = f"There was no GPU in it: the network was computed on the CPU, and {cores}. {useful}{in_steps}."
        return Question(key="gpus", asked=GPUS, answer=answer, evidence=lines, chart="ledger")
    share = stepping if stepping is not None else verdict.useful_share
    word = "Yes" if share >= FULLY else "Mostly" if share >= MOSTLY else "No"
    busy_text = f" Busy: {spread_text(verdict.busy_percent)}." if verdict.busy_percent is not None else ""
    mfu_text = f" MFU: {units.percent_text(verdict.mfu)}." if verdict.mfu is not None else ""
    answer = f"{word}: {useful}{in_steps}.{busy_text}{mfu_text}"
    return Question(key="gpus", asked=GPUS, answer=answer, evidence=lines, chart="ledger")


def spread_text(spread: Spread) -> str:
    """A percentage with its range."""
    return f"{spread.mean:.1f} % ({spread.least:.0f} % to {spread.most:.0f} %)"


def step_share(verdict: Verdict) -> float | None:
    """Of the time in steps, the share in which the network computed and was updated."""
    stepping = sum(share.seconds for share in verdict.shares if share.bucket in STEP_BUCKETS)
    useful = sum(share.seconds for share in verdict.shares if share.bucket in USEFUL)
    return useful / stepping if stepping > 0 else None


def used_lines(account: Account, usage: Usage, *, is_gpu: bool) -> tuple[str, ...]:
    """Each figure with its meaning; what was not measured, with how to get it."""
    verdict, mean = account.verdict, account.verdict.definitions
    lines = [f"useful: {units.percent_text(verdict.useful_share)} {mean['useful_share']}"]
    no_gauges = "not measured: there are no readings of it (--gauge-seconds 5 takes them)"
    if not is_gpu:
        cores, said = usage.cpu_percent, f"CPU busy: {no_gauges}"
        if cores is not None:
            said = f"CPU busy: {spread_text(cores)}, of the cores allotted, by anyone"
        others = usage.others_cpu_percent
        return (*lines, said, *([f"... of which others: {spread_text(others)}"] if others is not None else []))
    busy = verdict.busy_percent
    lines.append(f"busy: {spread_text(busy)} {mean['busy_percent']}" if busy is not None else f"busy: {no_gauges}")
    if verdict.mfu is not None:
        lines.append(f"MFU: {units.percent_text(verdict.mfu)} {mean['mfu']}")
    else:
        lines.append("MFU: not measured: it takes the GPU's ceiling (stoker doctor) and the network's FLOPs (a plan)")
    if usage.clock_share is not None and usage.clock_share.mean < LOW_CLOCK:
        lines.append(f"clock: {units.percent_text(usage.clock_share.mean)} of its highest on average")
    lines += [f"held down by {why}: {units.percent_text(share)} of the time"
              for why, share in (usage.throttled or {}).items() if share > 0]  # fmt: skip
    return tuple(lines)


def rest_lines(verdict: Verdict, *, is_gpu: bool, most: int = 4) -> tuple[str, ...]:
    """Where the rest of the time went, the most first."""
    others = [share for share in verdict.shares if share.bucket not in USEFUL]
    lines = [
        f"{share.bucket}: {units.percent_text(share.share)} ({units.seconds_text(share.seconds)}): {share.meaning}"
        for share in others[:most]
    ]
    unmeasured = [bucket for bucket in verdict.not_measured if is_gpu or bucket != "host"]
    return (*lines, *(f"{bucket}: not measured ({MEANING.get(bucket, '')})" for bucket in unmeasured))


def network(account: Account) -> Question:
    """Whether waiting for the network held the run up."""
    found, verdict = account.evidence, account.verdict
    if not found.rows or verdict.wall_seconds <= 0:
        return unknown("network", NETWORK, NO_LEDGER, fix=LOOK_AGAIN)
    if found.world == 1:
        answer = "No: there was no network in it: one process."
        return Question(key="network", asked=NETWORK, answer=answer, evidence=traffic_lines(account))
    lines = (*wait_lines(account), *traffic_lines(account))
    if "comm" in verdict.not_measured:
        return unknown(
            "network", NETWORK, "how long gradients travelled is not measured (comm)",
            fix="stoker doctor, started by the same launcher, measures the links.", evidence=lines,
        )  # fmt: skip
    seconds = {share.bucket: share.seconds for share in verdict.shares}
    comm, peers = seconds.get("comm", 0.0), seconds.get("peer_wait", 0.0)
    share = comm / verdict.wall_seconds
    spent = (
        f"{units.percent_text(share)} of all time went into exchanging gradients among {found.world} processes, and "
        f"{units.percent_text(peers / verdict.wall_seconds)} into waiting for the slower of them"
    )
    stepping = sum(seconds.get(bucket, 0.0) for bucket in STEP_BUCKETS)
    if verdict.limit == "network" or (verdict.limit is None and stepping > 0 and comm / stepping >= HIGH_SHARE):
        word = "Yes"
    elif verdict.limit == "stragglers":
        word = "No, but slow processes were"
    elif verdict.limit is None:
        word = "No"
    else:
        word = f"No, it was bound by {verdict.limit}"
    return Question(key="network", asked=NETWORK, answer=f"{word}: {spent}.", evidence=lines)


def wait_lines(account: Account) -> tuple[str, ...]:
    """What each process waited for."""
    lines = [account.verdict.sentence]
    for pace in evidences.paces(account.evidence):
        parts = [
            f"{bucket} {units.seconds_text(pace.seconds[bucket])}"
            for bucket in ("comm", "peer_wait")
            if bucket in pace.seconds
        ]
        where = f" on {pace.host}" if pace.host else ""
        if parts:
            lines.append(
                f"process {pace.rank}{where}: of a step of {units.seconds_text(pace.step_seconds)}, {', '.join(parts)}"
            )
    if (slow := account.verdict.straggler) is not None:
        lines.append(
            f"process {slow.rank} is the slow one: the others wait {units.seconds_text(slow.extra_seconds)} in a step"
        )
    return tuple(lines)


def traffic_lines(account: Account) -> tuple[str, ...]:
    """What went over the network."""
    lines = []
    last = [rows[-1] for rows in account.evidence.rows.values() if rows]
    if account.evidence.world > 1 and last:
        sent = max(row.sent_bytes for row in last)
        if sent:
            lines.append(f"each process sends {units.bytes_text(sent)} of gradients a step")
        hosts = len({row.host for row in last})
        lines.append(f"{units.count_text(account.evidence.world, 'process')} on {units.count_text(hosts, 'machine')}")
    seen = evidences.usage(account.evidence).network_bytes_per_second
    if seen is None:
        return (*lines, "traffic: not measured: there are no readings of it (--gauge-seconds 5 takes them)")
    return (
        *lines,
        f"traffic of a machine, both ways: {units.bytes_text(seen.mean)}/s on average, "
        f"{units.bytes_text(seen.least)}/s to {units.bytes_text(seen.most)}/s",
    )
