"""What a program runs in, as far as files tell: the processor by its name, the container by its image."""

import json
import re
from pathlib import Path

PROCESSORS = Path("/proc/cpuinfo")
SYSTEM = Path("/etc/os-release")
DOCKER = Path("/.dockerenv")
# Podman names its image here; Docker's file is empty, and says nothing of it.
PODMAN = Path("/run/.containerenv")
APPTAINER = Path("/.singularity.d/labels.json")
APPTAINER_FROM = "org.label-schema.usage.singularity.deffile.from"


def processor() -> str | None:
    """The name of the processor; None where the system does not say, as on ARM."""
    found = re.search(r"^model name\s*:\s*(\S.*)$", text(PROCESSORS), re.M)
    return found[1].strip() if found else None


def image() -> str | None:
    """The image of the container that this runs in, as far as it can be told from inside; None where it is in none."""
    system = re.search(r'^PRETTY_NAME="?([^"\n]+)', text(SYSTEM), re.M)
    inside = f"not named, {system[1]}" if system else "not named"
    if APPTAINER.parent.exists():
        return f"apptainer: {labelled() or inside}"
    if PODMAN.exists():
        named = re.search(r'^image="([^"\n]+)"', text(PODMAN), re.M)
        return f"podman: {named[1] if named else inside}"
    return f"docker: {inside}" if DOCKER.exists() else None


def labelled() -> str | None:
    """What an Apptainer image was made from."""
    try:
        found = json.loads(text(APPTAINER)).get(APPTAINER_FROM)
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def text(path: Path) -> str:
    """A file's text; empty where it can't be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
