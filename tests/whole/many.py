"""Starts of runs in many processes, and what each process saw and came to: python -m tests.whole.many STARTS.json.

STARTS.json holds a list of [start, traits]: a start of doomed.py, and what is special about it (class Traits). Each
process leaves RUN.seen.RANK and, at the end of training, RUN.end.RANK beside the run folder. Prints the exit codes.
Under torchrun: python -m tests.whole.many "under a launcher" RUN STEP, where STEP kills its process and its launcher.
"""

import dataclasses
import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm.layers
import torch.distributed
from safetensors.torch import save_file

from stoker import api, dist
from stoker.dist import watch
from stoker.tasks.classify import Classify
from stoker.train import book, statistics, step

from . import doomed
from .doomed import Start

assert timm.layers, "loaded once, for all starts"


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What is special about a start."""

    stop_at: int = 0
    """the step at which a process stops itself, as a machine that hangs does; 0 is never"""
    stop_rank: int = 1
    lost_seconds: float = watch.LOST_SECONDS


def note_samples(run: str) -> None:
    """Write down which samples go through the network, in training and in evaluation."""
    moved = Classify.moved

    def noted(self: Any, batch: Any, device: Any) -> Any:
        plan = batch.plan
        kind = "train" if plan.resolution else "eval"
        row = [kind, plan.epoch, plan.positions.tolist(), plan.samples.tolist()]
        with open(f"{run}.seen.{dist.world().rank}", "a") as file:
            file.write(json.dumps(row) + "\n")
        return moved(self, batch, device)

    Classify.moved = noted  # type: ignore[method-assign]


def note_end(run: str) -> None:
    """Write down the hash of the weights at the end, what the last step sent, and what it should have."""
    close, gradients, all_reduce = book.Book.close, step.gradients, torch.distributed.all_reduce
    found: dict[str, Any] = {}

    def counted(tensor: Any, *args: Any, **values: Any) -> Any:
        found["sent_bytes"] = found.get("sent_bytes", 0) + tensor.numel() * tensor.element_size()
        return all_reduce(tensor, *args, **values)

    def begun(gear: Any, *args: Any, **values: Any) -> Any:
        floats = statistics.Statistics(gear.state.network).floats
        found["statistics_bytes"] = sum(b.numel() * b.element_size() for b in floats)
        found["gradient_bytes"] = dist.sent_bytes(gear.state.network, gear.config.many.compress)
        found["sent_bytes"] = 0
        sums = gradients(gear, *args, **values)
        found["step_bytes"] = found["sent_bytes"]
        return sums

    def closed(self: Any, state: Any, status: Any) -> None:
        close(self, state, status)
        digest = hashlib.sha256()
        for tensor in state.network.state_dict().values():
            digest.update(tensor.numpy().tobytes())
        found["weights"] = digest.hexdigest()
        Path(f"{run}.end.{dist.world().rank}").write_text(json.dumps(found))

    torch.distributed.all_reduce = counted
    book.Book.close, step.gradients = closed, begun  # type: ignore[method-assign]


def stop_itself(at_step: int, rank: int) -> None:
    """Let a process stop in the middle of a step."""
    gradients = step.gradients

    def stopped(gear: Any, *args: Any, **values: Any) -> Any:
        if gear.state.at.step == at_step and dist.world().rank == rank:
            os.kill(os.getpid(), signal.SIGSTOP)
        return gradients(gear, *args, **values)

    step.gradients = stopped


def begin(traits: Traits, beginning: Callable[[Start, int, int], None], start: Start, rank: int, port: int) -> None:
    """What a process does. Does not return."""
    watch.LOST_SECONDS = traits.lost_seconds
    watch.BEAT_SECONDS = watch.LOOK_SECONDS = min(watch.LOOK_SECONDS, traits.lost_seconds / 10)
    note_samples(start.folder)
    note_end(start.folder)
    if traits.stop_at:
        stop_itself(traits.stop_at, traits.stop_rank)
    beginning(start, rank, port)


def started(*starts: tuple[Start, Traits]) -> list[list[int]]:
    """The exit codes of the processes of each start."""
    rows = [(dataclasses.asdict(start), dataclasses.asdict(traits)) for start, traits in starts]
    asked = Path(starts[0][0].folder).absolute().parent / "starts.json"
    asked.write_text(json.dumps(rows))
    words = [sys.executable, "-m", "tests.whole.many", str(asked)]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    found = [json.loads(line.removeprefix("codes ")) for line in done.stdout.splitlines() if line.startswith("codes ")]
    assert len(found) == len(starts), done.stderr[-3000:]
    Path("said").write_text(done.stderr)
    return found


def pretrained(file: Path) -> Path:
    """Weights to begin with, for seven other classes."""
    save_file(timm.create_model("test_resnet", num_classes=7).state_dict(), file)
    return file


def work_under_launcher(folder: str, last_step: int) -> None:
    """Train, and at a step of a start with others take the launcher along, as the loss of a machine does."""
    gradients = step.gradients

    def doomed_gradients(gear: Any, *args: Any, **values: Any) -> Any:
        if last_step and gear.state.at.step == last_step:
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return gradients(gear, *args, **values)

    step.gradients = doomed_gradients
    note_samples(folder)
    sys.exit(api.work(folder, show=False).record.status != "done")


def main(words: list[str]) -> None:
    """Make starts, one after another; or be one process of a launcher."""
    if words[0] == "under a launcher":
        work_under_launcher(words[1], int(words[2]))
    beginning = doomed.begin
    doomed.PATIENCE_SECONDS = 1
    for values, special in json.loads(Path(words[0]).read_text()):
        doomed.begin = functools.partial(begin, Traits(**special), beginning)
        print(f"codes {json.dumps(doomed.carried_out(Start(**values)))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
