"""A pack that is killed, at whatever moment, and begun again ends with the same bytes as one that was left alone."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from stoker import api
from stoker.data import dials

from ..data.packing.servers import Site, served
from ..data.packing.test_pack import tree

SETTINGS = {"short_side": 24, "shard_samples": 6}
FLAGS = ["--short-side", "24", "--shard-samples", "6"]
# For each moment a process that ends itself with SIGKILL when something is made to last for the n-th time after a file
# is there. They are forked, so that libraries are loaded once. Prints how each of them ended.
DOOMED = """
import json, os, signal, sys
from stoker import cli
from stoker.data import packing
def begin(awaited, left):
    os.dup2(os.open("many.tar", os.O_RDONLY), 0)
    sys.stdin = open(0)
    fsync = os.fsync
    def doomed(file):
        nonlocal left
        left -= os.path.exists(awaited)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(file)
    os.fsync = doomed
    os._exit(cli.main(sys.argv[2:]))
for awaited, left in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        begin(awaited, left)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
MOMENTS = [
    ("pack", 1), ("pack", 2), ("pack", 3), ("pack", 4), ("pack", 5), ("pack", 40), ("pack/val-00001.tar", 1),
    ("pack/val-00006.tar", 2), ("pack/index", 1), ("pack/index", 15), ("pack/index/val/crc.npy", 2),
    ("pack/pack.json", 1),
]  # fmt: skip


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 dials in class folders, split into train and val; one can't be read."""
    folder = tmp_path_factory.mktemp("many") / "many"
    list(dials.make(folder, count=200, size=32, seed=0, processes=1))
    sorted(folder.rglob("*.jpg"))[50].write_text("no picture")
    return folder


@pytest.fixture(scope="session")
def many_tar(many: Path) -> bytes:
    """The same as a tar."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(many, "many")
    return file.getvalue()


def started(words: list[str], piped: Path | None = None) -> "subprocess.Popen[bytes]":
    with open(piped or os.devnull, "rb") as stdin:
        return subprocess.Popen(words, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_and_go_on(words: list[str], dest: Path, *, kills: int, seed: int) -> None:
    """Kill a command again and again, each time some shards and some milliseconds later, and let it finish then."""
    dice = random.Random(seed)
    killed = 0
    while killed < kills:
        target = len(list(dest.glob("*.tar"))) + dice.choice((0, 1, 1, 2, 3))
        process = started(words)
        while process.poll() is None and len(list(dest.glob("*.tar"))) < target:
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.02) if target else dice.uniform(0, 0.5))
        process.kill()
        _, told = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), told.decode()
        if process.returncode == 0:
            break
        killed += 1
    assert killed >= kills // 2, "it was too quick to be killed"
    process = started(words)
    _, told = process.communicate()
    assert process.returncode == 0, told.decode()


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.long)])
def test_a_pack_killed_at_random_points_ends_with_the_same_bytes(many: Path, kills: int) -> None:
    api.pack(many, "whole", show=False, workers=1, **SETTINGS)
    words = [sys.executable, "-m", "stoker", "pack", str(many), "pack", *FLAGS, "--workers", "2"]
    kill_and_go_on(words, Path("pack"), kills=kills, seed=0)
    assert tree("pack") == tree("whole")
    assert "bad.csv" in tree("whole") and not Path("pack/.packing").exists()


def test_a_download_killed_at_random_points_ends_with_the_same_bytes(many_tar: bytes) -> None:
    with served(Site(files={"many.tar": many_tar})) as site:
        api.pack(f"{site.url}/many.tar", "whole", show=False, workers=1, **SETTINGS)
        words = [sys.executable, "-m", "stoker", "pack", f"{site.url}/many.tar", "pack", *FLAGS, "--workers", "2"]
        kill_and_go_on(words, Path("pack"), kills=3, seed=0)
    assert any(asked for asked in site.asked), "a start after a kill does not read all of it again"
    assert tree("pack") == tree("whole")


@pytest.mark.parametrize("kind", ["folder", "stdin"])
def test_a_kill_while_something_is_made_to_last_does_no_harm(many: Path, many_tar: bytes, kind: str) -> None:
    Path("many.tar").write_bytes(many_tar)
    words = ["pack", "-" if kind == "stdin" else str(many), "pack", *FLAGS, "--workers", "1"]
    whole = started([sys.executable, "-m", "stoker", *words[:2], "whole", *words[3:]], Path("many.tar"))
    assert whole.communicate() and whole.returncode == 0
    starts = [sys.executable, "-c", DOOMED, json.dumps(MOMENTS), *words]
    doomed = subprocess.run(starts, capture_output=True, text=True, timeout=300)
    assert doomed.stdout.split() == [str(-signal.SIGKILL)] * len(MOMENTS), doomed.stderr[-3000:]
    last = started([sys.executable, "-m", "stoker", *words], Path("many.tar"))
    assert last.communicate() and last.returncode == 0
    assert tree("pack") == tree("whole")
