"""Which runs are repeats of each other: alike in all that changes the result or the speed, apart from the seed."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from stoker import settings
from stoker.report import surroundings
from stoker.report.account import Account

# Of a machine, what a result may depend on: containers differed from plain packages by points of accuracy.
SURROUNDINGS = ("torch", "torch_cuda", "cudnn", "driver", "image", "packages")
# A run goes on under others of these, and yet they change how far it comes, or what its time goes into.
OPERATIONAL = ("target_accuracy", "eval_epochs", "on_divergence", "checkpoint_epochs", "checkpoint_steps",
               "checkpoint_minutes", "mtbf_hours")  # fmt: skip


def key(account: Account, *, device: str | None) -> str | None:
    """The same text for runs that are repeats of each other; None where their settings or their data are not known."""
    found = account.evidence
    if found.config is None or found.record is None or not found.record.data.get("fingerprint"):
        return None
    # A path is only a name of the data, whose content is compared.
    alike = settings.address(settings.with_values(found.config, {"seed": 0, "data": ""}))
    told: dict[str, Any] = {
        "settings": alike,
        "loader": asdict(found.config.loader),
        "operational": [s.value for s in settings.listed(found.config) if s.name in OPERATIONAL],
        "data": found.record.data["fingerprint"],
        "from": found.record.resumed_from,
        "device": device,
        # Samples are made ready by it, also for a GPU.
        "cpu": surroundings.cpu_of(found.profile),
        "processes": found.world,
        "code": [account.code.get("version"), account.code.get("commit")],
        **{name: found.profile.get(name) for name in SURROUNDINGS},
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:12]
