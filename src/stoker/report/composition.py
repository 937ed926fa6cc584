"""Account and questions -> a report, in order: the first screen, the answers, the charts, the exhibits, the details."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from stoker import units
from stoker.machine.verdict import MEANING
from stoker.report import charts, details, gauge_charts, look, showcase, summary
from stoker.report.account import Account
from stoker.report.blocks import Answer, Block, Chart, Group, Report, Section, Table
from stoker.report.questions import traffic
from stoker.report.questions.question import Question
from stoker.report.summary import moment

# Where a chart is shown that belongs to no question.
LEARNING, TIME = ("losses", "scores", "rates"), ("ledger", "throughput", "step_times", "traffic")


def report(account: Account, questions: Sequence[Question]) -> Report:
    """The whole report of a run."""
    drawn = drawn_charts(account)
    answers = tuple(answered(questions, drawn))
    used = {answer.chart.name for answer in answers if answer.chart is not None}
    left = {name: chart for name, chart in drawn.items() if name not in used}
    sections = (
        Section(key="questions", title="Questions and answers", text="", blocks=answers),
        Section(key="learning", title="Learning", text="", blocks=tuple(paired(chosen(left, LEARNING)))),
        time_section(account, left),
        Section(
            key="machine", title="The machine meanwhile", text="What its gauges showed while the run was trained.",
            blocks=tuple(paired(chart for name, chart in left.items() if name.startswith("gauge-"))),
        ),
        Section(
            key="exhibits", title="What the network sees and answers", text="",
            blocks=tuple(showcase.shown(account.exhibits, account.folder / "exhibits")),
        ),
        Section(key="details", title="Details", text="", blocks=details.shown(account)),
    )  # fmt: skip
    return Report(
        name=account.name,
        what=headline(account),
        state=summary.state_text(account),
        tone=summary.tone(account),
        told=summary.told(account),
        next=summary.next_command(account),
        cards=summary.cards(account),
        sentence=account.verdict.sentence,
        verdict=summary.verdict(account, look.COLOURS),
        facts=summary.facts(account),
        sections=tuple(section for section in sections if section.blocks),
        made=f"Made by stoker report on {moment(account.at)} from {account.folder}",
    )


def headline(account: Account) -> str:
    """The run in a line."""
    config = account.evidence.config
    if config is None:
        return "Its settings can't be read."
    counted = ", ".join(summary.data_texts(account))
    return f"{config.model.model} on {summary.data_name(account)}" + (f": {counted}" if counted else "")


def drawn_charts(account: Account) -> dict[str, Chart]:
    """Every chart that there are figures for, by its name."""
    rows = account.evidence.rows
    first = rows[min(rows)] if rows else ()
    specs = {
        "losses": charts.losses(account.training, account.evaluations),
        "scores": charts.scores(account.training, account.evaluations),
        "rates": charts.rates(account.training),
        "ledger": charts.ledger(first),
        "throughput": charts.throughput(first),
        "step_times": charts.step_times(first),
        "traffic": charts.traffic(traffic.pairs(account)),
        "planned": charts.planned(account.past) if account.past is not None else None,
    }
    drawn = {name: showcase.chart(name, spec) for name, spec in specs.items() if spec is not None}
    for number, spec in enumerate(gauge_charts.gauges(account.evidence.gauges).values()):
        drawn[f"gauge-{number}"] = showcase.chart(f"gauge-{number}", spec)
    return drawn


def chosen(drawn: dict[str, Chart], names: Iterable[str]) -> Iterator[Chart]:
    """Some of the charts, as far as they are there."""
    return (drawn[name] for name in names if name in drawn)


def paired(charts: Iterable[Chart]) -> list[Chart]:
    """Charts two by two: one that would stand alone takes the whole width."""
    found = list(charts)
    narrow = [place for place, chart in enumerate(found) if not chart.is_wide]
    if len(narrow) % 2:
        found[narrow[-1]] = replace(found[narrow[-1]], is_wide=True)
    return found


def answered(questions: Iterable[Question], drawn: dict[str, Chart]) -> Iterator[Answer]:
    """The questions, each with its chart: the first one that has it shows it, the others point there."""
    shown: set[str] = set()
    for question in questions:
        chart = drawn.get(question.chart or "")
        is_new = chart is not None and chart.name not in shown
        if chart is not None:
            shown.add(chart.name)
        yield Answer(
            key=question.key,
            asked=question.asked,
            answer=question.answer if question.is_known else reason(question.answer),
            evidence=question.evidence,
            is_known=question.is_known,
            chart=chart if is_new else None,
            see=None if is_new else chart,
        )


def reason(answer: str) -> str:
    """Why something can't be told, without saying so once more."""
    rest = answer.removeprefix("Can't tell: ")
    return rest[:1].upper() + rest[1:]


def time_section(account: Account, left: dict[str, Chart]) -> Section:
    """Where the time went: charts, the ledger's table, what else would help, and the plan."""
    blocks: list[Block] = [*paired(chosen(left, TIME))]
    if account.verdict.shares:
        text = f"Every second of {units.seconds_text(account.verdict.wall_seconds)} is in one bucket."
        blocks.append(Group(title="The ledger", text=text, blocks=(ledger_table(account),)))
    others = account.verdict.remedies[1:]
    if others:
        text = "Each predicted from this run's own figures; gains do not add up."
        blocks.append(Group(title="What else would help", text=text, blocks=tuple(map(summary.first, others))))
    return Section(key="time", title="Time", text="", blocks=(*blocks, *planned(account, left)))


def ledger_table(account: Account) -> Table:
    """The buckets of the ledger with what they mean."""
    shares, verdict = account.verdict.shares, account.verdict
    rows = [(s.bucket, units.seconds_text(s.seconds), units.percent_text(s.share), s.meaning) for s in shares]
    rows += [(bucket, "not measured", "", MEANING.get(bucket, "")) for bucket in verdict.not_measured]
    return Table(
        columns=("bucket", "time", "share", "what it means"),
        rows=tuple(rows),
        right=(1, 2),
        colours=tuple(look.COLOURS.get(row[0], look.COLOURS["other"]) for row in rows),
        note=f"useful: {units.percent_text(verdict.useful_share)} {verdict.definitions['useful_share']}",
    )


def planned(account: Account, left: dict[str, Chart]) -> Iterator[Block]:
    """What was predicted and what it took, where no question shows it."""
    if account.past is not None:
        yield from chosen(left, ("planned",))
        return
    text = "There was no plan before this run."
    if account.evidence.plan.get("forecast"):
        text = "There was a plan. What came of it is told when the run is done, unless it ends early."
    yield Group(title="Plan and actual time", text=text, blocks=())
