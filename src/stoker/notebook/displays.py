"""How the values of Stoker show themselves in a notebook. Outside of one, they stay as they are."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import units
from stoker.machine.verdict import Verdict
from stoker.notebook import shell
from stoker.notebook.card import Card, Table
from stoker.records import RunRecord
from stoker.report import look, summary
from stoker.report.blocks import Tone

if TYPE_CHECKING:
    from stoker.data.dataset import Dataset
    from stoker.data.index import Index
    from stoker.data.inspection import Inspection
    from stoker.doctor import MachineProfile
    from stoker.plan.outlook import Plan
    from stoker.report.account import Account
    from stoker.report.comparison import Comparison
    from stoker.report.writing import Written

# A contact sheet that is larger would make the notebook heavy.
MOST_SHEET_BYTES = 2 << 20
DASH = "-"


def register() -> None:
    """Let values show themselves, in this notebook. Does nothing elsewhere, and nothing twice."""
    kernel = shell.shell()
    if kernel is None:
        return
    # What loads networks would like a widget for its own bars, which are not shown.
    warnings.filterwarnings("ignore", message="IProgress not found")
    rich, plain = (kernel.display_formatter.formatters[kind] for kind in ("text/html", "text/plain"))
    for (module, name), drawn in FORMS.items():
        rich.for_type_by_name(module, name, lambda value, drawn=drawn: drawn(value).html)
        plain.for_type_by_name(module, name, lambda value, out, _, drawn=drawn: out.text(drawn(value).text))


def ended(record: RunRecord) -> tuple[str, Tone]:
    """How a run stands, in one word, and whether that is good."""
    return record.status, summary.TONES.get(record.status, "bad")


def trained(value: Any) -> Card:
    """A run after training."""
    record, (state, tone) = value.record, ended(value.record)
    best, facts = record.result.get("best") or {}, []
    if best:
        facts += [(f"best {name}", text) for name, text in summary.score_texts(best).items()]
        facts.append(("after epoch", str(best.get("epoch", DASH))))
    if value.verdict.shares:
        facts.append(("time", units.seconds_text(value.verdict.wall_seconds)))
    if record.result.get("samples_per_second"):
        facts.append(("samples/s", f"{record.result['samples_per_second']:,.0f}"))
    if value.plan is not None:
        facts.append(("against its plan", f"{value.plan.error:+.1%}"))
    if value.report is not None:
        facts.append(("page", str(value.report)))
    notes = [record.why] if record.why and state != "done" else []
    notes += ["it was done before: there was nothing to do"] if value.was_done else []
    return Card(
        title=str(value.folder), state=state, tone=tone, sentence=value.verdict.sentence, facts=tuple(facts),
        bar=summary.parts(value.verdict, look.COLOURS), notes=tuple(notes),
    )  # fmt: skip


def verdict(value: Verdict) -> Card:
    """Where the time went, what limits the run, and what to do."""
    facts = [("time", units.seconds_text(value.wall_seconds)), ("useful", units.percent_text(value.useful_share))]
    if value.step_seconds is not None:
        facts.append(("a step", units.seconds_text(value.step_seconds)))
    busy = f"{value.busy_percent.mean:.0f} %" if value.busy_percent is not None else "not measured"
    facts += [("GPU busy", busy), ("MFU", "not measured" if value.mfu is None else units.percent_text(value.mfu))]
    remedies = tuple(
        (f"{remedy.gain:.2f} x", f"{remedy.what}: {remedy.why}", remedy.command) for remedy in value.remedies
    )
    missing = tuple(f"missing: {what}" for what in value.missing)
    return Card(
        title=f"{value.state}, step {value.step:,}", sentence=value.sentence, facts=tuple(facts),
        bar=summary.parts(value, look.COLOURS),
        table=Table(columns=("as fast", "what to do, and why", "command"), rows=remedies, right=9), notes=missing,
    )  # fmt: skip


def plan(value: "Plan") -> Card:
    """What a run will take, machine by machine."""
    rows = []
    for one in value.forecasts:
        low, likely, high = (units.seconds_text(each) for each in (one.total.low, one.total.likely, one.total.high))
        prices = (DASH if each is None else f"${each.likely:.2f}" for each in (one.on_demand_dollars, one.spot_dollars))
        memory = DASH if one.memory_bytes is None else units.bytes_text(one.memory_bytes)
        who = f"{one.machine if one.machines == 1 else f'{one.machines} x {one.machine}'}"
        said = value.meets.get(one.machine, DASH)
        rows.append((who, one.limit, likely, f"{low} to {high}", units.seconds_text(one.step.likely), memory,
                     *prices, said))  # fmt: skip
    columns = ("machine", "limited by", "time", "bounds", "a step", "memory", "on demand", "spot", "target")
    choices = [f"fastest: {value.fastest}"] * bool(value.fastest) + [f"cheapest: {value.cheapest}"] * bool(
        value.cheapest
    )
    facts = (("epochs", f"{value.epochs:,}"), ("steps", f"{value.steps:,}"), ("batch", f"{value.batch:,}"))
    unknown = tuple(f"{name}: not known: {why}" for name, why in value.unknown.items())
    return Card(
        title=f"plan: {value.model} on {value.data}", sentence="; ".join(choices), facts=facts,
        table=Table(columns=columns, rows=tuple(rows), right=2), notes=unknown,
    )  # fmt: skip


def profile(value: "MachineProfile") -> Card:
    """A machine, what it does and what is wrong with it."""
    from stoker.doctor.figures import text

    wrong = [finding for finding in value.findings if finding.level != "good"]
    is_bad = any(finding.level == "bad" for finding in wrong)
    memory = value.memory.total_bytes
    facts = [("cores", str(value.cores.allotted)), ("memory", DASH if memory is None else units.bytes_text(memory))]
    facts += [(f"GPU {gpu.index}", gpu.name or "of an unknown kind") for gpu in value.gpus] or [("GPUs", "none")]
    facts += [("torch", value.torch or "not installed"), ("Python", value.python)]
    rows = tuple(
        (row.part, row.what, text(row.value, row.unit),
         DASH if row.expected is None else text(row.expected, row.unit),
         DASH if row.share is None else f"{row.share:.0%}")
        for row in value.figures
    )  # fmt: skip
    notes = tuple(f"{one.what}{f'; fix: {one.fix}' if one.fix else ''}" for one in wrong)
    return Card(
        title=value.platform, state=f"{len(wrong)} to look at" if wrong else "all well",
        tone="bad" if is_bad else "plain" if wrong else "good", facts=tuple(facts), notes=notes,
        table=Table(columns=("part", "what", "measured", "expected", "share"), rows=rows, right=2),
    )  # fmt: skip


def inspection(value: "Inspection") -> Card:
    """What a source holds."""
    bad = {**dict.fromkeys(value.empty, "the file is empty or not there"), **value.look.bad}
    least, middle, largest = value.look.widths
    facts = (
        ("training", f"{value.train_samples:,}"), (f"held out ({value.held_out})", f"{value.held_out_samples:,}"),
        ("classes", f"{len(value.classes):,}"), ("size", units.bytes_text(value.total_bytes)),
        ("width", f"{least} to {largest} pixels, middle {middle}"), ("decoded", f"{value.look.looked_at:,}"),
    )  # fmt: skip
    notes = [f"{path}: {reason}" for path, reason in list(bad.items())[:5]]
    notes += [f"... and {len(bad) - 5:,} more"] if len(bad) > 5 else []
    rows = tuple((name, f"{count:,}") for name, count in value.classes.items())
    return Card(
        title=value.data, state=f"{len(bad)} unreadable" if bad else "all readable", tone="bad" if bad else "good",
        facts=facts, table=Table(columns=("class", "samples"), rows=rows), notes=tuple(notes),
        pictures=tuple(small_picture(value.sheet)),
    )  # fmt: skip


def small_picture(path: Path | None) -> list[bytes]:
    """A picture file, where it is there and small enough for a notebook."""
    try:
        return [path.read_bytes()] if path is not None and path.stat().st_size <= MOST_SHEET_BYTES else []
    except OSError:
        return []


def dataset(value: "Dataset") -> Card:
    """An opened source."""
    facts = (
        ("training", f"{len(value.train):,}"), (f"held out ({value.held_out_name})", f"{len(value.held_out):,}"),
        ("classes", f"{len(value.classes):,}"),
        ("size", units.bytes_text(value.train.total_bytes + value.held_out.total_bytes)),
    )  # fmt: skip
    return Card(title=value.name, facts=facts, notes=(", ".join(value.classes[:20]),))


def index(value: "Index") -> Card:
    """A list of samples."""
    return Card(
        title=str(value.root),
        facts=(("samples", f"{len(value):,}"), ("size", units.bytes_text(value.total_bytes))),
    )


def comparison(value: "Comparison") -> Card:
    """Runs side by side: the columns in which they differ, what matters most first."""
    from stoker.report import comparison as comparisons
    from stoker.report.comparison.columns import BY_KEY, COLUMNS, shared, text

    same = shared(value.cells, COLUMNS)
    shown = [
        column for column in COLUMNS
        if column.rank <= 3 and column.key not in same and any(text(cell, column) for cell in value.cells)
        and not (column.key == "repeats" and all(len(cell.runs) == 1 for cell in value.cells))
    ]  # fmt: skip
    shown.sort(key=lambda column: column.is_number)
    rows = tuple(tuple(text(cell, column) or DASH for column in shown) for cell in value.cells)
    words = sum(not column.is_number for column in shown)
    above = [(BY_KEY[key].title, said) for key, said in same.items() if BY_KEY[key].rank <= 3]
    notes = [f"{cell.name}: {why}" for cell in value.cells if (why := comparisons.ended(cell.first))]
    if value.target_percent is not None:
        above.append(("target", f"{value.target_percent:g} % top-1"))
    return Card(
        title=f"{units.count_text(sum(len(cell.runs) for cell in value.cells), 'run')} side by side",
        facts=tuple(above), notes=tuple(notes),
        table=Table(columns=tuple(column.title for column in shown), rows=rows, right=words),
    )  # fmt: skip


def written(value: "Written") -> Card:
    """A report on the disk."""
    facts = [("page", str(value.html)), ("size", units.bytes_text(value.html_bytes))]
    facts += [("twin", str(value.markdown))] if value.markdown is not None else []
    return Card(title="report", facts=tuple(facts), notes=tuple(f"missing: {what}" for what in value.missing))


def account(value: "Account") -> Card:
    """A run as its files tell it, with its curves."""
    from stoker.report import charts

    drawn = [charts.losses(value.training, value.evaluations), charts.scores(value.training, value.evaluations)]
    facts = tuple((card.title, card.value) for card in summary.cards(value))
    pictures = tuple(look.png(spec, width=440, scale=1.5) for spec in drawn if spec is not None)
    return Card(
        title=value.name, state=summary.state_text(value), tone=summary.tone(value),
        sentence=value.verdict.sentence, facts=facts, bar=summary.parts(value.verdict, look.COLOURS), pictures=pictures,
        notes=tuple(f"missing: {what}" for what in value.missing),
    )  # fmt: skip


FORMS: dict[tuple[str, str], Callable[[Any], Card]] = {
    ("stoker.api", "Trained"): trained,
    ("stoker.machine.verdict", "Verdict"): verdict,
    ("stoker.plan.outlook", "Plan"): plan,
    ("stoker.doctor", "MachineProfile"): profile,
    ("stoker.data.inspection", "Inspection"): inspection,
    ("stoker.data.dataset", "Dataset"): dataset,
    ("stoker.data.index", "Index"): index,
    ("stoker.report.comparison", "Comparison"): comparison,
    ("stoker.report.writing", "Written"): written,
    ("stoker.report.account", "Account"): account,
}
"""by the module and the name of a type, which is imported by whoever makes such a value"""
