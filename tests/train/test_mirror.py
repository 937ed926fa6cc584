"""A run goes on from its mirror on a new machine, and nothing in either place is ever spoiled."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import api, checkpoint, records, runs, settings
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import Event, MetricRow
from stoker.runs import Run
from stoker.train import mirror
from tests.test_checkpoint import FILES, damage, saved

MIRROR, ELSEWHERE = Path("mirror"), Path("elsewhere/run")


def row(step: int) -> MetricRow:
    return MetricRow(kind="train", epoch=1, step=step, samples=4, lr=0.1, scores={"loss": 1.0})


def trained(folder: Path, *steps: int, config: Config | None = None) -> Run:
    """A run with checkpoints and lines up to these steps."""
    run = Run(folder)
    if not run.config.exists():
        runs.create(folder, config or Config(), resumed_from=None)
        runs.update_record(run, fixed={"atoms": 2}, status="running")
        runs.write_whole(run.classes, '["cat", "dog"]')
        runs.append_line(run.events, Event(at=1.0, kind="x", what="y"))
        for path in (run.ledger_of(1), run.gauges_of(0)):
            runs.append_line(path, Event(at=1.0, kind="x", what="y"))
        runs.write_whole(run.plan, "{}")
    for step in steps:
        runs.append_line(run.metrics, row(step))
        saved(run, step)
        checkpoint.point(run, "latest", step)
    return run


@pytest.fixture
def run() -> Run:
    MIRROR.mkdir()
    return trained(Path("run"), 1, 2)


def mirrored(run: Run, *steps: int) -> Run:
    for step in steps or checkpoint.steps(run)[::-1]:
        mirror.to_mirror(run, MIRROR, step)
    return Run(MIRROR / run.folder.name)


def texts(run: Run) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in run.folder.iterdir() if p.is_file() and p != run.lock}


def test_a_run_comes_back_from_its_mirror_on_a_new_machine(run: Run) -> None:
    checkpoint.point(run, "best", 1)
    there = mirrored(run)
    assert texts(there) == texts(run)
    assert mirror.from_mirror(ELSEWHERE, MIRROR) == 2
    back = Run(ELSEWHERE)
    assert texts(back) == texts(run)
    assert checkpoint.steps(back) == [2, 1] and checkpoint.newest_whole(back) == 2
    assert checkpoint.read(checkpoint.find(back, "best")) == FILES


def pictures(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.exhibits.iterdir()}


def test_what_a_run_shows_comes_to_the_mirror_when_it_ends_and_back_from_it(run: Run) -> None:
    there = mirrored(run)
    run.exhibits.mkdir()
    for name in ("given.json", "given-0.jpg", "given-1.jpg"):
        (run.exhibits / name).write_text(name)
    mirror.to_mirror(run, MIRROR, None)
    (run.exhibits / "given-1.jpg").unlink()
    mirror.to_mirror(run, MIRROR, None)
    assert pictures(there) == pictures(run) == {"given.json": b"given.json", "given-0.jpg": b"given-0.jpg"}
    mirror.from_mirror(ELSEWHERE, MIRROR)
    assert pictures(Run(ELSEWHERE)) == pictures(run)


def test_a_run_that_is_not_in_the_mirror_begins_as_ever(run: Run) -> None:
    assert mirror.from_mirror(Path("another"), MIRROR) is None
    assert not Path("another").exists()


def test_a_new_start_keeps_what_may_change_and_takes_the_rest_from_the_mirror(run: Run) -> None:
    mirrored(run)
    runs.create(ELSEWHERE, api.configured(threads=7, data="/moved"), resumed_from=None)
    assert mirror.from_mirror(ELSEWHERE, MIRROR) == 2
    config = runs.read_config(Run(ELSEWHERE))
    assert config.loader.threads == 7 and config.data.data == "/moved"
    assert records.read_record(Run(ELSEWHERE).record).fixed == {"atoms": 2}


def test_an_older_run_folder_catches_up_with_the_mirror(run: Run) -> None:
    shutil.copytree(run.folder, ELSEWHERE)
    trained(run.folder, 3, 4)
    mirrored(run, 3, 4)
    assert mirror.from_mirror(ELSEWHERE, MIRROR) == 4
    assert texts(Run(ELSEWHERE)) == texts(run)


def test_newer_work_is_never_overwritten(run: Run) -> None:
    mirrored(run)
    trained(run.folder, 3)
    before = texts(run)
    assert mirror.from_mirror(run.folder, MIRROR) is None
    assert texts(run) == before and checkpoint.steps(run) == [3, 2, 1]


def test_where_the_newest_here_is_torn_the_mirror_has_it(run: Run) -> None:
    mirrored(run)
    damage(checkpoint.folder(run, 2), "flipped")
    assert mirror.from_mirror(run.folder, MIRROR) == 2
    assert checkpoint.read(checkpoint.folder(run, 2)) == FILES


@pytest.mark.parametrize("how", ["truncated", "flipped", "half a folder", "no manifest"])
def test_what_is_torn_in_the_mirror_is_passed_over(run: Run, how: str) -> None:
    there = mirrored(run)
    damage(checkpoint.folder(there, 2), how)
    assert mirror.from_mirror(ELSEWHERE, MIRROR) == 1
    assert checkpoint.steps(Run(ELSEWHERE)) == [1]
    assert checkpoint.named(Run(ELSEWHERE)) == {"latest": 1}


def test_a_mirror_with_nothing_whole_gives_nothing(run: Run) -> None:
    there = mirrored(run)
    for step in (1, 2):
        damage(checkpoint.folder(there, step), "flipped")
    assert mirror.from_mirror(ELSEWHERE, MIRROR) is None
    assert not ELSEWHERE.exists()


@pytest.mark.parametrize("how", ["truncated", "flipped", "half a folder", "no manifest"])
def test_a_torn_checkpoint_is_not_copied_to_the_mirror(run: Run, how: str) -> None:
    there = mirrored(run)
    trained(run.folder, 3)
    damage(checkpoint.folder(run, 3), how)
    with pytest.raises(Problem, match=r"not whole.*00000003"):
        mirrored(run, 3)
    assert checkpoint.steps(there) == [2, 1] and not list(there.checkpoints.glob(".*"))


def test_a_torn_checkpoint_with_a_name_does_not_keep_a_new_one_from_the_mirror(run: Run) -> None:
    there = mirrored(run, 2)
    checkpoint.point(run, "best", 1)
    damage(checkpoint.folder(run, 1), "flipped")
    trained(run.folder, 3)
    with pytest.raises(Problem, match=r"not whole.*00000001"):
        mirrored(run, 3)
    assert checkpoint.steps(there) == [3, 2] and checkpoint.named(there) == {"latest": 3}


def test_old_checkpoints_go_from_the_mirror_by_the_same_rules(run: Run) -> None:
    checkpoint.point(run, "epoch_1", 1)
    mirrored(run)
    trained(run.folder, 3, 4, 5)
    there = mirrored(run, 3, 4, 5)
    assert checkpoint.steps(there) == [5, 4, 1]
    assert checkpoint.named(there) == {"latest": 5, "epoch_1": 1}


def test_a_name_alone_is_mirrored_with_its_checkpoint(run: Run) -> None:
    there = mirrored(run, 2)
    checkpoint.point(run, "best", 1)
    mirror.to_mirror(run, MIRROR, None)
    assert checkpoint.steps(there) == [2, 1] and checkpoint.named(there) == {"latest": 2, "best": 1}


def test_another_run_of_the_same_name_is_refused(run: Run) -> None:
    there = mirrored(run)
    before = texts(there)
    other = trained(Path("other/run"), 9, config=api.configured(epochs=3))
    with pytest.raises(Problem, match=r"other settings.*\n.*epochs: 10 -> 3"):
        mirror.to_mirror(other, MIRROR, 9)
    with pytest.raises(Problem, match=r"epochs: 10 -> 3"):
        mirror.from_mirror(other.folder, MIRROR)
    assert texts(there) == before and checkpoint.steps(there) == [2, 1]


def test_what_was_fixed_at_the_first_start_counts_as_the_same_setting(run: Run) -> None:
    mirrored(run)
    runs.create(ELSEWHERE, api.configured(atoms=2), resumed_from=None)
    assert mirror.from_mirror(ELSEWHERE, MIRROR) == 2
    runs.create(Path("third/run"), api.configured(atoms=3), resumed_from=None)
    with pytest.raises(Problem, match="atoms: 0 -> 3"):
        mirror.from_mirror(Path("third/run"), MIRROR)
    begun = trained(Path("fourth/run"), 1)
    runs.update_record(begun, fixed={"atoms": 4})
    with pytest.raises(Problem, match="atoms: 0 -> 4"):
        mirror.to_mirror(begun, MIRROR, 1)


@pytest.mark.parametrize("place", ["run", "run/inside", "."])
def test_a_mirror_in_the_place_of_the_run_is_refused(run: Run, place: str) -> None:
    Path("run/inside").mkdir()
    with pytest.raises(Problem, match="same place"):
        mirror.check(Path(place), run)
    with pytest.raises(Problem, match="same place"):
        mirror.to_mirror(run, Path(place), 2)
    mirror.check(MIRROR, run)
    assert list(MIRROR.iterdir()) == []


def test_a_link_to_the_run_is_the_same_place(run: Run) -> None:
    Path("link").symlink_to(run.folder)
    with pytest.raises(Problem, match="same place"):
        mirror.check(Path("link"), run)


def test_a_mirror_that_can_not_be_written_is_refused_at_the_start(run: Run) -> None:
    with pytest.raises(Problem, match="mirror missing can't be written: No such file"):
        mirror.check(Path("missing"), run)
    assert not Path("missing").exists(), "a volume that is not mounted is not made up"
    Path("file").write_text("")
    with pytest.raises(Problem, match="mirror file can't be written: Not a directory"):
        mirror.check(Path("file"), run)
    with pytest.raises(Problem, match="can't be written"):
        mirror.check(Path("/proc"), run)


def test_going_back_leaves_a_mirror_of_another_run_alone(run: Run) -> None:
    there = mirrored(run)
    other = trained(Path("other/run"), 1, config=api.configured(epochs=3))
    with pytest.raises(Problem, match="other settings"):
        mirror.remove_after(other, MIRROR, 1)
    mirror.remove_after(run, MIRROR, 1)
    assert checkpoint.steps(there) == [1]


# Kills itself at the count-th of all writes that last, renames and removals, for every count there is.
DOOMED = """
import os, pathlib, shutil, signal, sys
from pathlib import Path
from stoker.train import mirror
from stoker.runs import Run

def kill_at(count):
    calls = [0]
    def counted(original):
        def doomed(*args, **kwargs):
            calls[0] += 1
            if calls[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)
        return doomed
    for name in ("fsync", "rename", "replace"):
        setattr(os, name, counted(getattr(os, name)))
    shutil.rmtree = counted(shutil.rmtree)

for count in range(1, 1000):
    case = Path("cases") / str(count)
    shutil.copytree("before", case)
    child = os.fork()
    if not child:
        kill_at(count)
        if sys.argv[1] == "to":
            mirror.to_mirror(Run(case / "run"), case / "mirror", 3)
        else:
            mirror.from_mirror(case / "elsewhere/run", case / "mirror")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


def killed_everywhere(way: str) -> list[Path]:
    """Copies of the folder "before", each after a kill at another place."""
    subprocess.run([sys.executable, "-c", DOOMED, way], check=True)
    return sorted(Path("cases").iterdir(), key=lambda case: int(case.name))


def assert_sound(run: Run) -> None:
    """Nothing torn, no name that points to nothing, and no checkpoint without its lines."""
    assert all(not checkpoint.is_torn(checkpoint.folder(run, step)) for step in checkpoint.steps(run))
    assert set(checkpoint.named(run).values()) <= set(checkpoint.steps(run))
    steps = [line.step for line in records.read_lines(run.metrics, MetricRow)]
    assert steps == list(range(1, len(steps) + 1)) and max(checkpoint.steps(run), default=0) <= len(steps)


def test_a_kill_at_any_moment_of_mirroring_leaves_a_mirror_to_go_on_from(run: Run) -> None:
    mirrored(run)
    trained(run.folder, 3)
    checkpoint.point(run, "best", 2)
    os.makedirs("before")
    for name in ("run", "mirror"):
        shutil.move(name, f"before/{name}")
    cases = killed_everywhere("to")
    assert len(cases) > 30
    reached = set()
    for case in cases:
        assert_sound(Run(case / "mirror/run"))
        step = mirror.from_mirror(case / "elsewhere/run", case / "mirror")
        reached.add(step)
        assert_sound(Run(case / "elsewhere/run"))
        mirror.to_mirror(Run(case / "run"), case / "mirror", 3)
        assert texts(Run(case / "mirror/run")) == texts(Run(case / "run"))
        assert checkpoint.steps(Run(case / "mirror/run")) == [3, 2]
    assert reached == {2, 3}


def test_a_kill_at_any_moment_of_coming_back_is_made_good_by_the_next_start(run: Run) -> None:
    checkpoint.point(run, "best", 1)
    mirrored(run)
    os.makedirs("before")
    for name in ("run", "mirror"):
        shutil.move(name, f"before/{name}")
    cases = killed_everywhere("from")
    assert len(cases) > 30
    for case in cases:
        back = Run(case / "elsewhere/run")
        # The same command again: it makes the folder, or finds it, and looks into the mirror.
        runs.create(back.folder, Config(), resumed_from=None)
        mirror.from_mirror(back.folder, case / "mirror")
        assert checkpoint.newest_whole(back) == 2
        runs.tidy(back)
        assert_sound(back)
        assert settings.identity_differences(runs.read_config(back), Config()) == []
        assert records.read_record(back.record).fixed == {"atoms": 2}
        assert checkpoint.named(back)["best"] == 1


def test_what_a_rollback_gave_up_while_the_mirror_was_away_does_not_come_back(run: Run) -> None:
    there = mirrored(trained(run.folder, 3, 4), 3, 4)
    checkpoint.remove_after(run, 2)
    mirrored(trained(run.folder, 3), 3)
    assert checkpoint.steps(there)[0] == 3 and mirror.from_mirror(ELSEWHERE, MIRROR) == 3
