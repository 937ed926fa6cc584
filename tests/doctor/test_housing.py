from pathlib import Path

import pytest

from stoker import doctor
from stoker.doctor import housing


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of another machine, of which none is there yet."""
    for name in ("PROCESSORS", "SYSTEM", "DOCKER", "PODMAN"):
        monkeypatch.setattr(housing, name, tmp_path / name)
    monkeypatch.setattr(housing, "APPTAINER", tmp_path / "apptainer" / "labels.json")


def test_a_processor_is_called_by_its_name(tmp_path: Path) -> None:
    assert housing.processor() is None
    (tmp_path / "PROCESSORS").write_text("processor : 0\nmodel name : AMD EPYC 7B12 \nmodel name : other\n")
    assert housing.processor() == "AMD EPYC 7B12"


def test_no_container_has_no_image(tmp_path: Path) -> None:
    (tmp_path / "SYSTEM").write_text('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    assert housing.image() is None


def test_a_container_is_told_by_what_it_says_of_itself(tmp_path: Path) -> None:
    (tmp_path / "DOCKER").touch()
    assert housing.image() == "docker: not named"
    (tmp_path / "SYSTEM").write_text('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n')
    assert housing.image() == "docker: not named, Ubuntu 24.04 LTS"
    (tmp_path / "PODMAN").write_text('engine="podman"\nimage="nvcr.io/nvidia/pytorch:24.05-py3"\n')
    assert housing.image() == "podman: nvcr.io/nvidia/pytorch:24.05-py3"
    (tmp_path / "apptainer").mkdir()
    assert housing.image() == "apptainer: not named, Ubuntu 24.04 LTS"
    (tmp_path / "apptainer" / "labels.json").write_text(f'{{"{housing.APPTAINER_FROM}": "pytorch/pytorch:2.4"}}')
    assert housing.image() == "apptainer: pytorch/pytorch:2.4"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}'])
def test_labels_of_nothing_are_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "apptainer").mkdir()
    (tmp_path / "apptainer" / "labels.json").write_text(text)
    assert housing.image() == "apptainer: not named"


def test_a_profile_says_both(tmp_path: Path) -> None:
    (tmp_path / "PROCESSORS").write_text("model name : a\n")
    (tmp_path / "DOCKER").touch()
    found = doctor.examine(tmp_path)
    assert (found.cpu, found.image) == ("a", "docker: not named")
