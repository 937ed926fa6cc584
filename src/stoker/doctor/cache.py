"""What was measured on this machine before, in a file of the user's; other hardware is another file. Nothing fails."""

import dataclasses
import hashlib
import json
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

from stoker import runs
from stoker.doctor import profile, readings
from stoker.doctor.profile import Measured
from stoker.doctor.trials import first_line
from stoker.errors import Problem
from stoker.machine import gauges

VERSION = 1
MACHINE_ID, CPU_INFO = Path("/etc/machine-id"), Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What was measured before, or why that can't be said."""

    measured: Measured | None = None
    trouble: str | None = None
    """None also where nothing was measured before"""


def folder() -> Path:
    """Where figures are kept."""
    return Path.home() / ".cache" / "stoker"


def path() -> Path:
    """The file of this machine."""
    return folder() / f"machine-{fingerprint()}.json"


def fingerprint() -> str:
    """A digest of the hardware that this process may use: another one means other figures."""
    gpus = [gpu.name for gpu in gauges.gpus().gpus]
    cores, memory = gauges.cores_allotted().allotted, gauges.memory_allotted().total_bytes
    parts = [platform.system(), platform.machine(), cpu_model(), cores, memory, gpus, readings.uuids(), identity()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def cpu_model() -> str:
    """The name of the processor, as far as the system says."""
    named = [line for line in _text(CPU_INFO).splitlines() if line.startswith(("model name", "CPU part", "Hardware"))]
    return named[0].partition(":")[2].strip() if named else platform.processor()


def identity() -> str:
    """What tells this machine from others of its kind."""
    return _text(MACHINE_ID).strip() or socket.gethostname()


def load() -> Kept:
    """What was measured on this machine before."""
    try:
        where = path()
        values = json.loads(where.read_text())
    except FileNotFoundError:
        return Kept()
    except (OSError, RuntimeError, ValueError, RecursionError) as error:  # RuntimeError: a user without a home
        return Kept(trouble=f"what was measured before can't be read: {first_line(error)}")
    if not isinstance(values, dict) or values.get("version") != VERSION:
        return Kept(trouble=f"{where} is of another version")
    try:
        return Kept(measured=profile.read(values.get("measured")))
    except (ValueError, RecursionError) as error:
        return Kept(trouble=f"{where} is damaged: {first_line(error)}")


def save(measured: Measured) -> str | None:
    """Keep what was measured; the answer is why it can't be kept, or None."""
    values = {"version": VERSION, "measured": dataclasses.asdict(measured)}
    try:
        runs.write_whole(path(), json.dumps(values, indent=1))
    except (OSError, RuntimeError, Problem) as error:
        return f"the figures can't be kept for the next time: {first_line(error)}"
    return None


def _text(where: Path) -> str:
    try:
        return where.read_text(errors="replace")
    except OSError:
        return ""
