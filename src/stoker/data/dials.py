"""`dials`, a dataset drawn on the spot: photo-like pressure gauges in ten classes, by where the needle points."""

import fcntl
import io
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import ImageDraw, ImageFilter

from stoker.data import dial_parts as parts
from stoker.data.random import DIALS, uniforms
from stoker.errors import Problem

CLASSES = tuple(f"bar-{tenth}" for tenth in range(parts.TENTHS))
ROLLS = 176  # more than any picture uses


def label(number: int) -> int:
    """The class of a picture: the tenth of the sweep that its needle points to."""
    return number % parts.TENTHS


def draw(number: int, *, seed: int, size: int) -> bytes:
    """One JPEG of size x size pixels: the same bytes for the same arguments, in any process and order."""
    dice = iter(uniforms(seed, epoch=0, positions=np.array([number]), purpose=DIALS, count=ROLLS)[0].tolist())
    grain = parts.film_grain(seed)[int(next(dice) * parts.GRAIN / 2) :]
    shot = parts.scene(number, dice, size * parts.SUPERSAMPLING)
    picture = parts.background(shot, dice, grain)
    ink, film = ImageDraw.Draw(picture), ImageDraw.Draw(picture, "RGBA")
    parts.paint(ink, shot, parts.case(shot, dice))
    parts.face(ink, shot, dice)
    parts.paint(film, shot, parts.needle(shot, dice))
    if next(dice) < 0.25:
        parts.obstacle(film, shot, dice)
    picture, blur = picture.reduce(parts.SUPERSAMPLING), parts.between(dice, -0.6, 0.9) * size / 96
    if blur > 0.1:
        picture = picture.filter(ImageFilter.BoxBlur(blur))
    picture, encoded = parts.exposure(picture, parts.glare(shot, dice), dice, grain), io.BytesIO()
    picture.save(encoded, "JPEG", quality=int(parts.between(dice, 80, 96)), subsampling="4:2:0")
    return encoded.getvalue()


def drawn(folder: Path, *, numbers: range, count: int, size: int, seed: int) -> Iterator[int]:
    """Draw these pictures into a folder, those from `count` on for validation; yields each number when it is there."""
    for number in numbers:
        place = folder / ("train" if number < count else "val") / CLASSES[label(number)] / f"{number:07d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(draw(number, seed=seed, size=size))
        yield number


def make(dest: Path, *, count: int, size: int, seed: int, processes: int) -> Iterator[int]:
    """Draw `count` pictures into dest/train and count // 5 into dest/val, all or nothing; yields how many are done.

    Nothing happens until it is iterated, and dest is there when it is exhausted. It does nothing if dest exists.
    """
    if size < 16 or count < len(CLASSES):
        raise Problem(f"cannot draw {count} dials of {size} pixels", fix="ask for 10 or more, of 16 pixels or more")
    if dest.exists():
        return
    dest.parent.mkdir(parents=True, exist_ok=True)
    prefix, total = f".{dest.name}-unfinished-", count + count // 5
    for left in dest.parent.glob(f"{prefix}*/lock"):
        with left.open() as lock, suppress(BlockingIOError):
            # A lock dies with its process, so one that can be had was left by an attempt that was killed.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    temporary = tempfile.TemporaryDirectory(prefix=prefix, dir=dest.parent, ignore_cleanup_errors=True)
    with temporary as place, Path(place, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(place, dest.name)
        if processes > 1:
            yield from drawn_by_workers(folder, total=total, count=count, size=size, seed=seed, processes=processes)
        else:
            for number in drawn(folder, numbers=range(total), count=count, size=size, seed=seed):
                yield number + 1
        if not dest.exists():  # another process may have been quicker
            folder.rename(dest)


def drawn_by_workers(folder: Path, *, total: int, count: int, size: int, seed: int, processes: int) -> Iterator[int]:
    """Draw in processes of their own, which say a byte for each picture; yields how many are done.

    These are plain commands: a pool of Python's would import the user's script anew in each of them.
    """
    words = [sys.executable, "-m", "stoker.data.dials", str(folder), *map(str, (total, count, size, seed, processes))]
    workers = [subprocess.Popen([*words, str(k)], stdout=subprocess.PIPE) for k in range(processes)]
    done = 0
    try:
        with selectors.DefaultSelector() as ready:
            for worker in workers:
                assert worker.stdout is not None
                ready.register(worker.stdout, selectors.EVENT_READ)
            while ready.get_map():
                for key, _ in ready.select():
                    said = os.read(key.fd, 4096)
                    if not said:
                        ready.unregister(key.fileobj)
                    done += len(said)
                yield done
    finally:
        for worker in workers:
            # One that is still at it when nobody asks for its pictures any more is not needed.
            worker.kill() if done < total else worker.wait()
            worker.communicate()
    if any(worker.returncode for worker in workers):
        raise RuntimeError(f"a process that drew dials ended with {[worker.returncode for worker in workers]}")


if __name__ == "__main__":
    # Ctrl-C reaches the parent too, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dest_folder, (all_of_them, to_train_on, side, seed_given, steps, first) = Path(sys.argv[1]), map(int, sys.argv[2:])
    mine = range(first, all_of_them, steps)
    for _ in drawn(dest_folder, numbers=mine, count=to_train_on, size=side, seed=seed_given):
        # A write fails when the parent is gone, and that ends this process too.
        os.write(sys.stdout.fileno(), b".")
