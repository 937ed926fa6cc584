"""Plans against what comes of them, over many kinds of runs. By hand: python -m tests.whole.forecasts FOLDER [PART...]

Each case is probed with some settings and run with these or others. Prints a table as docs/benchmarks.md has it.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker import api, dist, records, settings
from stoker.data import dials
from stoker.plan import outlook, preflight, probing
from stoker.plan.probe import Probe
from stoker.plan.prospect import Ask
from stoker.records import LedgerRow
from stoker.runs import Run
from stoker.tasks import classify
from stoker.train import fixed, start
from tests.whole import hosts

MBIT = 1e6 / 8
PAUSES = ("checkpoint", "eval")
STILL = {"eval_epochs": 1000, "log_steps": 5, "plan": False, "flip": 0.0}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run, and what is other in the probe of it."""

    run: dict[str, Any]
    probe: dict[str, Any] = field(default_factory=dict)
    processes: int = 1
    mbit: float | None = None
    """of the link between two hosts; None for one"""

    def name(self) -> str:
        """What was run, in words."""
        words = [f"{key} {Path(str(value)).name}" for key, value in self.run.items() if key not in ("epochs", "flip")]
        many = f", {self.processes} processes" if self.processes > 1 else ""
        return ", ".join(words) + many + (f", two hosts at {self.mbit:g} Mbit/s" if self.mbit else "")


def cases(data: Path) -> list[Case]:
    """What is varied: network, resolution, batch, threads, packed or not, processes and links."""
    small, large, packed = (str(data / name) for name in ("small", "large", "packed"))
    tiny = {"model": "timm/test_resnet", "resolution": 32}
    twenty = {"model": "stoker/resnet20", "resolution": 32}
    mobile = {"model": "timm/mobilenetv2_100", "resolution": 32}
    eighteen = {"model": "timm/resnet18", "resolution": 32}
    return [
        Case(run={**twenty, "data": small, "batch": 32, "epochs": 1}),
        Case(run={**tiny, "data": large, "batch": 8, "threads": 1, "epochs": 6}),
        Case(run={**tiny, "data": packed, "batch": 8, "threads": 1, "epochs": 8}),
        Case(run={**eighteen, "data": large, "batch": 16, "epochs": 2}),
        Case(run={**mobile, "data": packed, "batch": 16, "epochs": 4}),
        Case(run={**tiny, "data": small, "batch": 32, "resolution": 64, "epochs": 1}),
        Case(run={**twenty, "data": small, "batch": 64, "epochs": 2}, probe={"batch": 16}),
        Case(run={**eighteen, "data": packed, "batch": 8, "epochs": 2}, probe={"batch": 32}),
        Case(run={**tiny, "data": small, "batch": 64, "threads": 2, "epochs": 3}, probe={"batch": 16, "threads": 1}),
        Case(run={**tiny, "data": large, "batch": 8, "threads": 2, "epochs": 6}, probe={"threads": 1}),
        Case(run={**twenty, "data": large, "batch": 8, "threads": 1, "epochs": 4}, probe={"threads": 2}),
        Case(run={**twenty, "data": small, "batch": 32, "compute_threads": 1, "epochs": 1},
             probe={"compute_threads": 2}),
        Case(run={**twenty, "data": small, "batch": 32, "epochs": 1}, processes=2),
        Case(run={**mobile, "data": small, "batch": 32, "epochs": 1}, processes=2),
        Case(run={**mobile, "data": packed, "batch": 16, "epochs": 1}, mbit=100),
        Case(run={**mobile, "data": packed, "batch": 16, "epochs": 2}, mbit=1000),
        Case(run={**mobile, "data": packed, "batch": 16, "epochs": 1, "compress": "fp16"}, mbit=100),
        Case(run={**tiny, "data": small, "batch": 32, "epochs": 1}, probe={"batch": 16}, mbit=50),
    ]  # fmt: skip


def gpu_cases(data: Path) -> list[Case]:
    """What is varied on a GPU; photos and the pack of them are there already."""
    photos, packed = str(data / "photos"), str(data / "packed")
    fifty = {"model": "torchvision/resnet50", "resolution": 224, "amp": "bf16"}
    eighteen = {"model": "torchvision/resnet18", "resolution": 224, "amp": "bf16"}
    mobile = {"model": "torchvision/mobilenet_v2", "resolution": 160, "amp": "bf16"}
    return [
        Case(run={**fifty, "data": photos, "batch": 256, "epochs": 8}),
        Case(run={**eighteen, "data": packed, "batch": 512, "epochs": 12}),
        Case(run={**fifty, "amp": "off", "data": packed, "batch": 128, "epochs": 5}),
        Case(run={**mobile, "data": photos, "batch": 256, "threads": 2, "epochs": 3}),
        Case(run={**fifty, "data": packed, "batch": 64, "epochs": 5}, probe={"batch": 256}),
        Case(run={**eighteen, "data": packed, "batch": 512, "epochs": 12}, probe={"batch": 128}),
        Case(run={**eighteen, "data": photos, "batch": 256, "threads": 4, "epochs": 5}, probe={"threads": 15}),
        Case(run={**mobile, "data": photos, "batch": 128, "threads": 6, "epochs": 5}, probe={"threads": 2}),
        Case(run={**fifty, "data": photos, "batch": 384, "threads": 8, "epochs": 8},
             probe={"batch": 96, "threads": 15}),
    ]  # fmt: skip


def probed(values: dict[str, Any]) -> Probe:
    """A probe of these settings, by one process."""
    config, task, data, device = opened(values)
    return probing.probed(config, task, data, dist.World(), device, seconds=8, steps=10**6, tries=False, show=False)


def opened(values: dict[str, Any]) -> Any:
    """Settings with nothing left open, and what they name."""
    config = api.configured(**{**STILL, **values})
    config = settings.with_values(config, fixed.fixed_settings(config, dist.World()))
    device = dist.choose_device(config.model.device, dist.World())
    start.pin_arithmetic(config.model, device)
    task = classify.task_of(config)
    return config, task, task.open(seed=0, show=False), device


def forecast(case: Case) -> Any:
    """What the plan says of a case."""
    found = probed({**case.run, **case.probe})
    config, _, data, device = opened(case.run)
    # What is sent follows from the run's own settings.
    if config.many.compress in ("bf16", "fp16"):
        found = replace(found, sent_bytes=found.costs[0].gradient_bytes // 2)
    link = case.mbit * MBIT if case.mbit else None
    ask = Ask(gpus=case.processes, nodes=2 if case.mbit else 1, link_bytes_per_second=link)
    here = preflight.here(device, setup_seconds=0.0)
    if case.mbit:
        # Both hosts are on this machine and share its cores.
        here = replace(here, cores=max(1, here.cores // 2))
        config = settings.with_values(config, {"compute_threads": here.cores})
    return outlook.planned(preflight.prospect(config, data, found, here), ask).forecasts[0]


def taken(case: Case, folder: Path) -> float:
    """Seconds of a step of a run, after the first few: they get memory, and a GPU chooses its kernels."""
    words = ["-m", "stoker", "train", "--name", str(folder)]
    for key, value in {**STILL, **case.run}.items():
        flag = key.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    if case.mbit:
        with hosts.joined(2) as joined:
            joined.rate(case.mbit)
            words += ["--compute-threads", "1", "--threads", "1"]
            ended = joined.torchrun(words, timeout=600)
            assert all(one.returncode == 0 for one in ended), ended
    elif case.processes > 1:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.processes)]
        subprocess.run([sys.executable, *launch, *words], check=True, capture_output=True)
    else:
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
    rows = [row for row in records.read_lines(Run(folder).ledger, LedgerRow) if row.steps][2:]
    seconds = sum(value or 0.0 for row in rows for name, value in row.seconds.items() if name not in PAUSES)
    return seconds / sum(row.steps for row in rows)


def main() -> None:
    """Draw the data, go through the cases and print a row for each."""
    root, wanted = Path(sys.argv[1]), {int(word) for word in sys.argv[2:]}
    chosen = gpu_cases(root) if (root / "photos").exists() else cases(root)
    for name, count, size in () if (root / "photos").exists() else (("small", 1600, 320), ("large", 320, 1600)):
        for _ in dials.make(root / name, count=count, size=size, seed=0, processes=2):
            pass
    api.pack(root / ("photos" if (root / "photos").exists() else "large"), root / "packed", show=False)
    for number, case in enumerate(chosen):
        if wanted and number not in wanted:
            continue
        repeats = [taken(case, root / "runs" / f"{number}-{time}") for time in range(2)]
        said = forecast(case)
        actual = sum(repeats) / len(repeats)
        spread = abs(repeats[0] - repeats[1]) / actual
        row = {
            "case": case.name(), "probe": case.probe or ("one process" if case.processes > 1 or case.mbit else "same"),
            "planned": said.step.likely, "low": said.step.low, "high": said.step.high, "actual": actual,
            "spread": spread, "error": actual / said.step.likely - 1, "held": said.step.holds(actual),
            "limit": said.limit,
        }  # fmt: skip
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
