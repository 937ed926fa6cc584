from pathlib import Path

import numpy as np
import pytest

from stoker.config import DataConfig
from stoker.data import sources
from stoker.data.dataset import Dataset
from stoker.data.index import GREY, PLANES
from stoker.errors import Problem

# Three pictures of 2 x 3 pixels (width x height) and their labels, byte by byte.
PICTURES = bytes.fromhex("00000803 00000003 00000003 00000002 000102030405 101112131415 202122232425")
LABELS = bytes.fromhex("00000801 00000003 07 00 01")


def mnist(folder: str = "d", *, pictures: bytes = PICTURES, labels: bytes = LABELS, prefix: str = "train") -> None:
    Path(folder).mkdir(exist_ok=True)
    Path(folder, f"{prefix}-images-idx3-ubyte").write_bytes(pictures)
    Path(folder, f"{prefix}-labels-idx1-ubyte").write_bytes(labels)


def cifar(name: str, *labels: int) -> None:
    Path("c").mkdir(exist_ok=True)
    planes = [bytes([label]) * 1024 + bytes([100]) * 1024 + bytes([200]) * 1024 for label in labels]
    Path("c", name).write_bytes(b"".join(bytes([n]) + p for n, p in zip(labels, planes, strict=True)))


def opened(data: str) -> Dataset:
    return sources.open_source(DataConfig(data=data), seed=0, show=False)


def refused(data: str) -> str:
    with pytest.raises(Problem) as found:
        opened(data)
    assert found.value.fix
    return found.value.what


def test_idx_pictures_are_indexed_in_place_as_grey_pixels():
    mnist()
    whole = opened("d").whole
    assert whole is not None and whole.width is not None and whole.height is not None
    assert [whole.read(s) for s in range(3)] == [bytes(range(n, n + 6)) for n in (0, 16, 32)]
    assert whole.codec.tolist() == [GREY] * 3 and whole.label.tolist() == [7, 0, 1]
    assert set(whole.width.tolist()) == {2} and set(whole.height.tolist()) == {3}


def test_classes_of_idx_labels_are_all_numbers_up_to_the_largest():
    mnist()
    assert opened("d").classes == tuple("01234567")


def test_t10k_is_held_out_where_train_is_there():
    mnist()
    mnist(prefix="t10k")
    found = opened("d")
    assert (len(found.train), len(found.held_out), found.held_out_name) == (3, 3, "test")


def test_one_idx_file_finds_its_labels():
    mnist()
    assert opened("d/train-images-idx3-ubyte").fingerprint() == opened("d").fingerprint()


def test_idx_files_that_are_compressed_are_refused_with_the_command_that_helps():
    import gzip

    Path("train-images-idx3-ubyte.gz").write_bytes(gzip.compress(PICTURES))
    with pytest.raises(Problem, match="is compressed") as found:
        opened("train-images-idx3-ubyte.gz")
    assert "gunzip" in found.value.fix


@pytest.mark.parametrize(
    ("pictures", "labels", "what"),
    [
        (PICTURES[:-1], LABELS, "but it is 33 bytes long"),
        (PICTURES, LABELS[:-1], "no whole idx file of labels"),
        (PICTURES, bytes.fromhex("00000801 00000001 07"), "but there are 1 labels"),
        (bytes.fromhex("00000803 00000003 00000000 00000002"), LABELS, "0 pixels"),
        (bytes.fromhex("00000803 ffffffff ffffffff ffffffff"), LABELS, "but it is 16 bytes long"),
        (PICTURES[:9], LABELS, "is no idx file of grey pictures"),
    ],
)
def test_idx_files_that_do_not_fit_together_are_refused(pictures: bytes, labels: bytes, what: str):
    mnist(pictures=pictures, labels=labels)
    assert what in refused("d")


def test_idx_pictures_without_labels_and_labels_without_pictures_are_refused():
    mnist()
    Path("d/train-labels-idx1-ubyte").rename("d/gone")
    assert "there are no labels beside" in refused("d/train-images-idx3-ubyte")
    Path("d/gone").rename("d/train-labels-idx1-ubyte")
    assert "holds labels but no pictures" in refused("d/train-labels-idx1-ubyte")


def test_cifar_10_is_indexed_in_place_as_planes():
    cifar("data_batch_1.bin", 3, 0)
    cifar("data_batch_2.bin", 1)
    cifar("test_batch.bin", 3)
    Path("c/batches.meta.txt").write_text("airplane\nautomobile\nbird\ncat\n\n")
    found = opened("c")
    assert found.classes == ("airplane", "automobile", "bird", "cat")
    assert found.train.label.tolist() == [3, 0, 1] and found.held_out.label.tolist() == [3]
    assert found.train.codec.tolist() == [PLANES] * 3 and found.train.width is not None
    assert set(found.train.width.tolist()) == {32}
    planes = np.frombuffer(found.train.read(0), np.uint8).reshape(3, 32, 32)
    assert [plane.min() for plane in planes] == [plane.max() for plane in planes] == [3, 100, 200]


def test_a_truncated_cifar_10_file_is_refused():
    cifar("data_batch_1.bin", 3, 0)
    Path("c/data_batch_1.bin").write_bytes(Path("c/data_batch_1.bin").read_bytes()[:-1])
    assert "6145 bytes long, which is no whole number of pictures of 3073 bytes" in refused("c")
