"""The step lines of a run as its terminal shows them, made again from what it wrote down."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.records import LedgerRow, MetricRow

if TYPE_CHECKING:
    from stoker.data.order import Route
    from stoker.train.screen import Mean


def transcript(scores: Sequence[MetricRow], ledger: Sequence[LedgerRow], way: "Route | None") -> tuple[str, ...]:
    """A line for each row of scores. Means over an epoch stand in brackets where all of it so far is known."""
    from stoker.train.screen import Pulse

    by_step = {row.step: row for row in ledger if row.steps > 0}
    said, means, last = [], Means(), None
    for row in scores:
        if row.kind == "eval":
            said.append(evaluation(row))
            continue
        spent = by_step.get(row.step)
        pulse = Pulse(steps=spent.steps, seconds=spent.seconds) if spent is not None else None
        # As on the screen, means begin with an epoch and with a start of the run.
        begins = (row.epoch, spent.attempt if spent is not None else None)
        is_first = last is not None or (
            way is not None and spent is not None and spent.step - spent.steps == way.step(row.epoch, 0)
        )
        if begins != last:
            means, last = Means(is_known=is_first), begins
        cells = [
            counted(row, way),
            *(means.cell("Time", pulse.step_seconds, pulse.steps, ".3f") if pulse is not None else []),
            *(means.cell("Data", pulse.wait_seconds, pulse.steps, ".3f") if pulse is not None else []),
            *means.cell("Loss", row.scores.get("loss"), row.samples, ".4f"),
            *(
                cell
                for n, v in row.scores.items()
                if n != "loss"
                for cell in means.cell(n.title(), v, row.samples, ".2f")
            ),
            *([f"lr {row.lr:.4g}"] if row.lr is not None else []),
        ]
        said.append("  ".join(cells))
    return tuple(said)


class Means:
    """Means over an epoch, by name. Unknown where its beginning was not read."""

    def __init__(self, *, is_known: bool = False) -> None:
        self.is_known = is_known
        self._means: dict[str, Mean] = {}

    def cell(self, name: str, value: float | None, weight: float, form: str) -> list[str]:
        """A name with its value and its mean so far; nothing where there is no value."""
        from stoker.train.screen import Mean

        if value is None:
            return [f"{name} not finite"] if name == "Loss" else []
        mean = self._means.setdefault(name, Mean()).add(value, weight)
        return [f"{name} {value:{form}} ({mean:{form}})" if self.is_known else f"{name} {value:{form}}"]


def counted(row: MetricRow, way: "Route | None") -> str:
    """Where in the run a line is."""
    if way is None or row.epoch >= way.epochs:
        return f"Epoch [{row.epoch}][step {row.step}]"
    steps = way.pace(row.epoch).steps
    done = row.step - way.step(row.epoch, 0)
    return f"Epoch [{row.epoch}][{done:>{len(str(steps))}}/{steps}]"


def evaluation(row: MetricRow) -> str:
    """The scores on the held-out samples."""
    scores = "  ".join(f"{name.title()} {value:.4g}" for name, value in row.scores.items() if value is not None)
    return f"Epoch [{row.epoch - 1}] held out  {scores}  ({row.samples} samples)"
