"""Turns CIFAR-10 kept as mosaics into a pack: python cifar10_mosaics.py MOSAICS DEST.

MOSAICS holds train0..4 and test, pictures of 100 x 100 tiles of 32 x 32 pixels each, and their labels in train_y.npy
and test_y.npy. DEST/binary gets the files of CIFAR-10's binary version, bit for bit in its layout; DEST/pack the pack.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from stoker import api

TILE, SIDE = 32, 100
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def tiles(path: Path) -> np.ndarray:
    """The pictures of a mosaic, row by row: count x 32 x 32 x 3."""
    whole = np.asarray(Image.open(path).convert("RGB"))
    return whole.reshape(SIDE, TILE, SIDE, TILE, 3).transpose(0, 2, 1, 3, 4).reshape(-1, TILE, TILE, 3)


def main(source: Path, dest: Path) -> None:
    """Write the binary files, then pack them without touching a pixel."""
    binary = dest / "binary"
    binary.mkdir(parents=True, exist_ok=True)
    names = {f"data_batch_{n + 1}.bin": f"train{n}" for n in range(5)} | {"test_batch.bin": "test"}
    labels = {"train": np.load(source / "train_y.npy"), "test": np.load(source / "test_y.npy")}
    for number, (name, stem) in enumerate(names.items()):
        (picture,) = (p for p in source.glob(f"{stem}.*") if p.suffix in (".jpg", ".webp", ".png"))
        pixels = tiles(picture)
        mine = labels["test"] if stem == "test" else labels["train"][number * len(pixels) : (number + 1) * len(pixels)]
        planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        np.concatenate([mine.astype(np.uint8)[:, None], planes], axis=1).tofile(binary / name)
    (binary / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n")
    print(api.pack(binary, dest / "pack", keep=True).folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
