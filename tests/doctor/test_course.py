import io
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from stoker.doctor import course, cpu, disk, gpu
from stoker.doctor.course import Course
from stoker.doctor.profile import WEEK_SECONDS
from tests.doctor import speeds


def asked(**parts: Any) -> Course:
    whole: dict[str, Any] = {
        "folder": Path("/data"), "data": None, "source": None, "gpus": 1, "gpu_trouble": None, "link": None,
        "kept": None,
    }  # fmt: skip
    return Course(**whole | parts)


def kept(**parts: Any) -> Any:
    return speeds.measured(at=time.time() - 3600, **parts)


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parts that are measured; their figures are made up."""
    names: list[str] = []

    def made_up(part: str, value: Any, steps: int) -> Any:
        def measured(missing: dict[str, str], **_: Any) -> Generator[str, None, Any]:
            names.append(part)
            missing[f"{course.PARTS[part]} something"] = "new"
            for step in range(steps):
                yield f"{part} {step}"
            return value

        return measured

    monkeypatch.setattr(gpu, "measured", made_up("gpus", (speeds.gpu(power_w=1.0),), gpu.STEPS))
    monkeypatch.setattr(cpu, "measured", made_up("cpu", speeds.cpu(decoder="new"), cpu.STEPS))
    monkeypatch.setattr(disk, "measured", made_up("disk", speeds.disk(file_system="new"), disk.STEPS))
    return names


def test_everything_is_measured_at_first(began: list[str]) -> None:
    found = course.followed(asked(), show=False)
    assert began == ["gpus", "cpu", "disk"] and found.gpus[0].power_w == 1.0
    assert found.at == pytest.approx(time.time(), abs=60)
    assert set(found.missing) == {"GPU something", "CPU something", "disk something"}


def test_what_was_measured_this_week_is_not_measured_again(began: list[str]) -> None:
    before = kept(missing={"GPU 0 tf32 matrix products": "has no tf32", "figures for later": "no"})
    found = course.followed(asked(kept=before), show=False)
    assert began == [] and (found.gpus, found.cpu, found.disk, found.at) == (
        before.gpus, before.cpu, before.disk, before.at,
    )  # fmt: skip
    assert found.missing == {"GPU 0 tf32 matrix products": "has no tf32"}


@pytest.mark.parametrize("age", [WEEK_SECONDS + 60, -3600])
def test_old_figures_and_those_of_the_future_are_measured_again(age: float, began: list[str]) -> None:
    course.followed(asked(kept=speeds.measured(at=time.time() - age)), show=False)
    assert began == ["gpus", "cpu", "disk"]


@pytest.mark.parametrize(
    ("parts", "before", "measured"),
    [
        ({"folder": Path("/other")}, {}, ["disk"]),
        ({"source": Path("/data/places")}, {}, ["disk"]),
        ({"data": "/data/pack"}, {}, ["cpu"]),
        ({"gpus": 2}, {}, ["gpus"]),
        ({}, {"cpu": None}, ["cpu"]),
        ({}, {"disk": None}, ["disk"]),
        ({"data": "/x"}, {"cpu": speeds.cpu(data="/x")}, []),
        ({"source": Path("/x")}, {"disk": speeds.disk(data="/x")}, []),
    ],
)
def test_only_what_is_about_something_else_is_measured_again(
    parts: dict[str, Any], before: dict[str, Any], measured: list[str], began: list[str]
) -> None:
    old = kept(**before)
    found = course.followed(asked(kept=old, **parts), show=False)
    assert began == measured and found.at == old.at, "the oldest part says how old it is"


def test_a_machine_without_gpus_says_why(began: list[str]) -> None:
    found = course.followed(asked(gpus=0, gpu_trouble="no NVIDIA driver"), show=False)
    assert began == ["cpu", "disk"] and found.gpus == () and found.missing["GPUs"] == "no NVIDIA driver"


def test_a_link_is_that_of_the_processes_that_are_here_and_never_an_old_one() -> None:
    new = course.LinkSpeed(world=4, latency_seconds=1, bytes_per_second=2, points=(), pairs=())
    assert course.followed(asked(kept=kept()), show=False).link is None
    assert course.followed(asked(kept=kept(), link=new), show=False).link == new


@pytest.mark.parametrize("parts", [{}, {"kept": "fresh"}, {"gpus": 0}])
def test_the_bar_knows_how_many_measurements_there_are(parts: dict[str, Any], began: list[str]) -> None:
    parts = {key: kept() if value == "fresh" else value for key, value in parts.items()}
    wanted = asked(**parts)
    assert wanted.steps() == len(list(course.walk(wanted)))


def test_each_measurement_is_named_on_the_way(began: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    course.followed(asked(gpus=0), show=True)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "measure  cpu 0" and len(said) == cpu.STEPS + disk.STEPS


def test_on_a_terminal_a_bar_names_it(began: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    course.followed(asked(), show=True)
    assert "disk 3" in screen.getvalue()
