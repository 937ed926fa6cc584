"""The parts of one run that a page shows, as JSON: pure where they can be, else a look at a few small files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stoker.machine.verdict import MEANING, Verdict
from stoker.records import LedgerRow, MetricRow
from stoker.report import account, charts
from stoker.runs import Run
from stoker.watch import glance
from stoker.watch.ending import Ending
from stoker.watch.glance import Facts

LOG_BYTES = 16 << 10
SHOWN_LOGS = 6
MOST_REMEDIES = 4


def drawn(
    training: Sequence[MetricRow], evaluations: Sequence[MetricRow], spent: Sequence[LedgerRow]
) -> dict[str, Any]:
    """The charts, each as a specification and the rows that it draws."""
    found = {
        "chart.losses": charts.losses(training, evaluations),
        "chart.scores": charts.scores(training, evaluations),
        "chart.throughput": charts.throughput(spent),
        "chart.ledger": charts.ledger(spent),
    }
    return {name: plain(chart) for name, chart in found.items()}


def plain(chart: dict[str, Any] | None) -> dict[str, Any] | None:
    """A chart without its title, which the page has, and with steady names: new rows change nothing else of it."""
    if chart is None:
        return None
    text = json.dumps({key: value for key, value in chart.items() if key not in ("title", "datasets")})
    # Rows that nothing draws would be asked for in vain.
    drawn_rows = {name: rows for name, rows in chart.get("datasets", {}).items() if json.dumps(name) in text}
    for number, name in enumerate(drawn_rows):
        text = text.replace(json.dumps(name), f'"rows{number}"')
    return {
        "spec": json.loads(text),
        "rows": {f"rows{number}": rows for number, rows in enumerate(drawn_rows.values())},
    }


def shares(row: LedgerRow) -> list[dict[str, Any]]:
    """Where the time of a whole run went, in the order of the buckets."""
    whole = sum(value or 0.0 for value in row.totals.values())
    return [
        {"bucket": bucket, "seconds": value, "share": value / whole, "meaning": MEANING.get(bucket, "")}
        for bucket, value in row.totals.items()
        if value
    ]


def why(found: Verdict) -> dict[str, Any]:
    """The verdict and what to do about it."""
    return {
        "sentence": found.sentence,
        "limit": found.limit,
        "useful_share": found.useful_share if found.wall_seconds else None,
        "mfu": found.mfu,
        "remedies": [
            {"what": one.what, "why": one.why, "command": one.command, "gain": one.gain, "low": one.low,
             "high": one.high, "is_lossy": one.is_lossy, "needs_new_run": one.needs_new_run}
            for one in found.remedies[:MOST_REMEDIES]
        ],
        "missing": list(found.missing),
    }  # fmt: skip


def saved(run: Run) -> dict[str, Any]:
    """The checkpoints, the newest first, and what is wrong with them."""
    missing: list[str] = []
    found = [
        {"step": one.step, "at": one.at, "bytes": sum(one.parts.values()) if one.parts else None,
         "names": list(one.names), "torn": one.torn}
        for one in reversed(account.saved(run, missing))
    ]  # fmt: skip
    return {"kept": found, "missing": missing}


def log_files(folder: Path) -> list[Path]:
    """The newest logs of a run."""
    try:
        found = [(path.stat().st_mtime, path) for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    except OSError:
        return []
    return [path for _, path in sorted(found, reverse=True)[:SHOWN_LOGS]]


def logs(folder: Path) -> list[dict[str, Any]]:
    """The ends of the newest logs."""
    return [{"name": path.name, "text": ending_text(path)} for path in log_files(folder)]


def ending_text(path: Path) -> str:
    """The last lines of a file of text."""
    texts = Ending(path, last_bytes=LOG_BYTES).new().texts
    return b"\n".join(texts).decode(errors="replace")


def about(facts: Facts) -> dict[str, Any]:
    """What a run is, in few words each."""
    config, record = facts.config, facts.record
    said: dict[str, Any] = {"folder": str(facts.folder), "missing": list(facts.missing)}
    if config is not None:
        way = glance.route(facts)
        said |= {
            "model": config.model.model, "data": config.data.data, "amp": config.model.amp,
            "optimizer": config.optim.optimizer, "schedule": config.optim.schedule, "seed": config.train.seed,
            "stages": [f"{s.resolution} px x {s.batch} samples x {s.epochs} epochs" for s in way.stages] if way else [],
        }  # fmt: skip
    if record is not None:
        said |= {
            "samples": record.data.get("train_samples"), "held_out": record.data.get("held_out_samples"),
            "classes": record.data.get("classes"), "bytes": record.data.get("train_bytes"), "why": record.why,
            "starts": [
                {"at": one.started_at, "ended_at": one.ended_at, "host": one.host, "processes": one.world,
                 "status": one.status}
                for one in record.attempts[-20:]
            ],
        }  # fmt: skip
    return said
