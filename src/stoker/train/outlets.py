"""Where a run's figures can go besides its own files: TensorBoard, Weights & Biases, MLflow. One class for each.

Packages are imported when a class is used, and everything is written below one folder, whose path is absolute: wandb
writes from a process of its own, which may be older than the program's last change of folder.
"""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from stoker.records import Status

Kind = Literal["train", "eval", "best", "pace"]
PACKAGES = {
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}
PROJECT = "stoker"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Figures of one step, by their names."""

    kind: Kind
    step: int
    figures: dict[str, float]
    at: float = field(default_factory=time.time)


@dataclass(kw_only=True)
class Held:
    """What a tracker has of a run: held.json in its folder."""

    id: str
    """by which the tracker knows the run"""
    is_new: bool = True
    is_closed: bool = False
    part: int = 1
    """goes up where what the tracker holds is not what happened: trackers can't unlearn"""
    steps: dict[str, int] = field(default_factory=dict)
    """the last step that was handed over, by kind"""
    rollbacks: int = 0
    """how often the run had been taken back when it was"""


class Writer(Protocol):
    """Writes figures in the way of one program."""

    id: str
    """by which the program knows the run"""
    outlives_kill: bool
    """whether what was written is there when this process is killed"""

    def write(self, entries: Sequence[Entry]) -> None:
        """Hand some entries over."""

    def close(self, status: Status) -> None:
        """Say how the run ended."""


class TensorBoard:
    """Event files, one for each start of the run."""

    outlives_kill = True

    def __init__(self, folder: Path, name: str, values: dict[str, Any], held: Held) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.plugins.hparams import summary_v2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-untyped]

        self.id = held.id
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._file = EventFileWriter(str(folder / name))
        if held.is_new:
            shown = summary_v2.hparams_pb(values, trial_id=held.id)
            self._file.add_event(self._event(wall_time=time.time(), step=0, summary=shown))

    def write(self, entries: Sequence[Entry]) -> None:
        """Hand some entries over."""
        for entry in entries:
            shown = [self._summary.Value(tag=key, simple_value=value) for key, value in entry.figures.items()]
            summary = self._summary(value=shown)
            self._file.add_event(self._event(wall_time=entry.at, step=entry.step, summary=summary))
        self._file.flush()

    def close(self, status: Status) -> None:  # noqa: ARG002
        """End the file: event files know no status."""
        self._file.close()


class Wandb:
    """Offline files of Weights & Biases, one for each start of the run; `wandb sync` makes one run of them."""

    # It writes blocks of 32 KiB (wandb 0.31), and what is in no whole block is gone.
    outlives_kill = False

    def __init__(self, folder: Path, name: str, values: dict[str, Any], held: Held) -> None:
        # Errors of the package are not reported to its makers, unless somebody asked for that.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self.id = held.id
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False, disable_job_creation=True,
            x_disable_stats=True,
        )  # fmt: skip
        self._run = wandb.init(
            project=PROJECT, name=name, id=self.id, resume="allow", dir=str(folder.parent), config=values,
            # Whatever the environment says: `wandb sync` uploads it. A run of the user's own stays as it is.
            mode="offline", reinit="create_new", settings=quiet,
        )  # fmt: skip

    def write(self, entries: Sequence[Entry]) -> None:
        """Hand some entries over."""
        for entry in entries:
            if entry.kind == "best":
                self._run.summary.update(entry.figures)
            else:
                self._run.log(entry.figures, step=entry.step)

    def close(self, status: Status) -> None:
        """End the run."""
        self._run.finish(exit_code=0 if status in ("done", "stopped") else 1)


def database(folder: Path) -> str:
    """The address of MLflow's database in a folder."""
    return f"sqlite:///{folder.resolve() / 'mlflow.db'}"


class Mlflow:
    """A run in a database of MLflow's own."""

    outlives_kill = True

    def __init__(self, folder: Path, name: str, values: dict[str, Any], held: Held) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow
        from mlflow.entities import Metric, Param

        # It tells of every table that it makes.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        self._metric = Metric
        self._client = mlflow.MlflowClient(tracking_uri=database(folder))
        if not held.is_new:
            self.id = held.id
            self._client.update_run(self.id, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(PROJECT)
        experiment = (
            found.experiment_id if found else self._client.create_experiment(PROJECT, f"{folder / 'artifacts'}")
        )
        self.id = self._client.create_run(experiment, run_name=name).info.run_id
        self._client.log_batch(self.id, params=[Param(key, str(value)) for key, value in values.items()])

    def write(self, entries: Sequence[Entry]) -> None:
        """Hand some entries over."""
        metrics = [
            self._metric(key, value, int(1000 * entry.at), entry.step)
            for entry in entries
            for key, value in entry.figures.items()
        ]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, status: Status) -> None:
        """Say how the run ended, in MLflow's words."""
        said: dict[Status, str] = {"done": "FINISHED", "stopped": "KILLED"}
        self._client.set_terminated(self.id, said.get(status, "FAILED"))


WRITERS: dict[str, type[TensorBoard] | type[Wandb] | type[Mlflow]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": Mlflow,
}
