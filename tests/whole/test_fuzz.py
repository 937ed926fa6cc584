"""Malformed JPEGs never crash the native decoder: mutations of sound ones, under AddressSanitizer and UBSan."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.data import jpegs

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "tests" / "data" / "fuzz_native.cpp"
NATIVE = ROOT / "src" / "stoker" / "data" / "native"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
VECTORS = ["-mssse3"] if platform.machine() in ("x86_64", "AMD64") else []
FLAGS = ["-O1", "-g1", "-std=c++17", "-ffp-contract=off", *SANITIZERS, *VECTORS, f"-I{NATIVE}"]
# Sides small enough for speed, and one that is less than a block.
SIZES = [(16, 16), (96, 72), (37, 61), (5, 3)]


def built(source: Path, dest: Path) -> subprocess.CompletedProcess[str]:
    words = ["g++", *FLAGS, str(source), "-ljpeg", "-lpthread", "-o", str(dest)]
    return subprocess.run(words, capture_output=True, text=True)


def ran(words: list[str], *, leaks: bool, **options: object) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "ASAN_OPTIONS": f"detect_leaks={leaks:d}", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return subprocess.run(words, capture_output=True, text=True, env=surroundings, **options)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled driver."""
    folder = tmp_path_factory.mktemp("fuzz")
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build the fuzz driver with")
    trial = folder / "trial.cpp"
    trial.write_text("#include <stdio.h>\n#include <jpeglib.h>\nint main() { return 0; }\n")
    if (made := built(trial, folder / "trial")).returncode:
        pytest.skip(f"no sanitizers or no libjpeg to build the fuzz driver with: {made.stderr.strip()[-200:]}")
    made = built(DRIVER, folder / "fuzz_native")
    assert made.returncode == 0, made.stderr
    return folder / "fuzz_native"


@pytest.fixture(scope="module")
def leaks(driver: Path) -> bool:
    """Whether leaks can be looked for: some containers don't allow it."""
    return ran([str(driver.parent / "trial")], leaks=True).returncode == 0


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sound pictures of every sort."""
    folder = tmp_path_factory.mktemp("sound")
    for number, size in enumerate(SIZES):
        for kind, raw in enumerate(jpegs.every_sort(*size, seed=number).values()):
            (folder / f"{number}-{kind:02d}.jpg").write_bytes(raw)
    return folder


def fuzzed(driver: Path, sound: Path, *, count: int, seed: int, leaks: bool) -> dict[str, int]:
    """How many pictures ended how. The driver itself holds the rules."""
    # A guard against hanging, far from what it takes.
    done = ran([str(driver), str(sound), str(count), str(seed)], leaks=leaks, timeout=60 + count / 5)
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr[-4000:]}"
    pictures, fine, _, refused, _ = (int(number) for number in re.findall(r"\d+", done.stdout))
    return {"pictures": pictures, "fine": fine, "refused": refused}


def test_damaged_pictures_are_refused_or_decoded_and_never_crash(driver: Path, sound: Path, leaks: bool):
    found = fuzzed(driver, sound, count=3000, seed=1, leaks=leaks)
    assert found["pictures"] == 3000
    # Each is decoded twice. Enough must pass, or only headers were tried.
    assert found["fine"] + found["refused"] == 6000 and min(found["fine"], found["refused"]) > 1000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_hundred_thousand_damaged_pictures_never_crash(driver: Path, sound: Path, leaks: bool, seed: int):
    found = fuzzed(driver, sound, count=25_000, seed=seed, leaks=leaks)
    assert found["fine"] + found["refused"] == 50_000 and min(found["fine"], found["refused"]) > 8000
