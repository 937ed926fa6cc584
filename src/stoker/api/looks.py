"""Runs as people look at them, as functions that return values or show pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoker import runs

if TYPE_CHECKING:
    from stoker.report.comparison import Comparison
    from stoker.report.writing import Written

HOST, PORT = "127.0.0.1", 8770


def report(run: str | Path, *, dollars_per_hour: float | None = None, to: str | Path | None = None) -> "Written":
    """Write the page of a run, and its twin in Markdown: into its folder, or to another place."""
    from stoker.report import writing

    return writing.write(runs.open_run(Path(run)), dollars_per_hour=dollars_per_hour, at=Path(to) if to else None)


def compare(
    folders: Sequence[str | Path] = (), *, target: float | None = None, beside: str | Path | None = None,
    dollars_per_hour: float | None = None,
) -> "Comparison":  # fmt: skip
    """Set runs side by side: run folders, names under runs/, and folders of them; without any, all under runs/."""
    from stoker.report import comparison

    where = Path(beside) if beside is not None else None
    chosen = [Path(folder) for folder in folders]
    return comparison.compare(chosen, target=target, beside=where, dollars_per_hour=dollars_per_hour)


def watch(
    folder: str | Path = runs.ROOT, *, host: str = HOST, port: int = PORT, token: str | None = None,
    terminal: bool = False, show: bool = True,
) -> None:  # fmt: skip
    """Show the runs under a folder as they go, to browsers or in this terminal, until Ctrl-C."""
    if terminal:
        from stoker.watch import terminal as terminals

        terminals.show(Path(folder))
        return
    from stoker.watch import server

    server.serve(Path(folder), host=host, port=port, token=token, show=show)
