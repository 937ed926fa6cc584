"""What a run's folder tells, whatever state it is in."""

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker import api, lines, locks, records, runs
from stoker.config import Config
from stoker.errors import Problem
from stoker.records import Event, Exhibit, LedgerRow, MetricRow, Picture
from stoker.report import details
from stoker.report.account import Account, gather
from stoker.report.blocks import Folded, Group, Table
from stoker.report.questions import contents
from stoker.runs import Run

LEAVES: list[Any] = [None, [], {}, "x", -1, 0, 1e30, float("nan"), {"a": "b"}]
TEXTS = [
    b"", b"[]", b"5", b"null", b"{}", b'{"version": 1}', b"\xff\xfe\x00", b"[" * 100_000, b'{"version": 99}', b'{"a":',
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, dial_folder: Path, quick: dict[str, Any]) -> Run:
    """A run that is done. Copy it before changing anything in it."""
    folder = tmp_path_factory.mktemp("finished") / "first"
    api.train("demo", data=str(dial_folder), name=str(folder), show=False, **{**quick, "gauge_seconds": 0.2})
    return Run(folder)


@pytest.fixture
def run(finished: Run, tmp_path: Path) -> Run:
    """The same, to be changed."""
    shutil.copytree(finished.folder, tmp_path / "mine")
    return Run(tmp_path / "mine")


def test_all_of_a_finished_run_is_gathered(finished: Run) -> None:
    found = gather(finished)
    assert (found.name, found.folder, found.missing) == ("first", finished.folder, ())
    assert found.steps == found.evidence.steps == 14
    assert [row.step for row in found.training] == [2, 4, 6, 7, 8, 10, 12, 14]
    assert [(row.kind, row.epoch) for row in found.evaluations] == [("eval", 1), ("eval", 2)]
    assert found.verdict.steps == 14 and found.code["version"]
    assert found.cost.left_seconds == 0.0 and found.cost.run_seconds is not None and found.cost.run_seconds > 0


def test_checkpoints_have_their_sizes_and_names(finished: Run) -> None:
    found = gather(finished).checkpoints
    assert [one.step for one in found] == sorted(one.step for one in found)
    last = found[-1]
    assert last.step == 14 and "latest" in last.names and last.torn is None and "sound" not in last.names
    assert last.parts["model.safetensors"] == (finished.checkpoints / "00000014" / "model.safetensors").stat().st_size


def test_a_torn_checkpoint_is_told(run: Run) -> None:
    (run.checkpoints / "00000014" / "state.json").write_text("{")
    found = gather(run)
    assert found.checkpoints[-1].torn is not None and found.checkpoints[-1].parts
    assert any("step 14" in one for one in found.missing)
    (run.checkpoints / "00000014" / "manifest.json").unlink()
    assert gather(run).checkpoints[-1].parts == {}


def test_a_deleted_checkpoint_is_told(run: Run) -> None:
    shutil.rmtree(run.checkpoints)
    found = gather(run)
    assert found.checkpoints == ()
    assert any("of step 14 that latest names" in one for one in found.missing)


def test_exhibits_are_read_and_broken_ones_told(run: Run) -> None:
    run.exhibits.mkdir(exist_ok=True)
    for path in run.exhibits.iterdir():
        path.unlink()
    made = Exhibit(
        name="worst", title="The worst", caption="of 24", kind="pictures", columns=("a",), rows=((1,),),
        pictures=(Picture(file="worst-1.png", caption="a cat"),),
    )  # fmt: skip
    (run.exhibits / "worst.json").write_text(records.line(made))
    (run.exhibits / "broken.json").write_text(records.line(made)[:-5])
    (run.exhibits / "outside.json").write_text(records.line(made).replace("worst-1", "../../secret"))
    (run.exhibits / "other.json").write_text(records.line(made).replace("pictures", "film", 1))
    (run.exhibits / "folder.json").mkdir()
    found = gather(run)
    assert found.exhibits == (made,)
    assert len([one for one in found.missing if one.startswith("an exhibit")]) == 4


def test_a_run_that_has_not_begun_has_an_account(tmp_path: Path) -> None:
    made = runs.create(tmp_path / "new", Config(), resumed_from=None)
    found = gather(made)
    assert (found.training, found.checkpoints, found.steps, found.past) == ((), (), None, None)
    assert found.cost.run_seconds is None and found.cost.left_seconds is None


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl"])
def test_a_file_that_can_t_be_read_is_told(run: Run, name: str) -> None:
    path = run.folder / name
    path.write_text("rubbish\n" * 3)
    assert f"3 lines of {name}, because they are no JSON" in gather(run).missing
    path.unlink()
    path.mkdir()
    assert f"{name}, because it can't be read: Is a directory" in gather(run).missing


@pytest.mark.parametrize("name", ["code.json", "plan.json", "machine.json"])
def test_a_file_that_holds_something_else_is_told(run: Run, name: str) -> None:
    (run.folder / name).write_text("[1]")
    assert f"{name}, because it holds something else" in gather(run).missing


def test_of_many_events_the_last_are_told_whole_and_all_are_counted(run: Run) -> None:
    made = [records.line(Event(at=float(n), kind="unreadable", what=f"file {n}")) for n in range(30_000)]
    run.events.write_text("\n".join(made) + "\n")
    found = gather(run)
    assert found.event_count == 30_000 and [event.at for event in found.events[-3:]] == [29_997, 29_998, 29_999]
    (group,) = details.events(found)
    assert isinstance(group, Group) and isinstance(folded := group.blocks[0], Folded)
    assert isinstance(table := folded.blocks[0], Table)
    assert table.note == "the last 100 of 30,000"
    assert [row[2] for row in table.rows] == [f"file {n}" for n in range(29_999, 29_899, -1)]
    assert "At least 4,000 samples could not be read." in contents.data(found).answer


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="is no run"):
        runs.open_run(tmp_path)


def test_a_score_that_was_no_number_is_left_out(run: Run) -> None:
    row = MetricRow(kind="train", epoch=1, step=15, samples=16, lr=0.1, scores={"loss": float("nan"), "top1": 10.0})
    runs.append_line(run.metrics, row)
    assert gather(run).training[-1].scores == {"top1": 10.0}


def test_a_run_that_is_held_costs_up_to_now(run: Run) -> None:
    record = records.read_record(run.record)
    values = json.loads(run.record.read_text())
    values["status"] = values["attempts"][-1]["status"] = "running"
    values["attempts"][-1]["ended_at"] = None
    run.record.write_text(json.dumps(values))
    killed = gather(run)
    with locks.held(run.lock):
        running = gather(run)
    last = record.attempts[-1]
    assert running.cost.run_seconds == pytest.approx(running.at - last.started_at)
    assert killed.cost.run_seconds is not None and last.ended_at is not None
    assert 0 < killed.cost.run_seconds <= last.ended_at - last.started_at < running.cost.run_seconds


def test_the_time_of_packing_is_part_of_the_cost(run: Run, dial_folder: Path) -> None:
    packed = api.pack(str(dial_folder), "pack", show=False, workers=1)
    assert packed.folder == Path("pack")
    values = json.loads(run.config.read_text())
    values["data"]["data"] = "pack"
    run.config.write_text(json.dumps(values))
    assert gather(run).cost.pack_seconds == json.loads(Path("pack/time.json").read_text())["seconds"] > 0
    Path("pack/time.json").write_text('{"seconds": "long"}')
    assert gather(run).cost.pack_seconds is None
    Path("pack/time.json").unlink()
    assert gather(run).cost.pack_seconds is None


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there are values inside of a value."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*at, key))


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    if not at:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[at[0]] = changed(copied[at[0]], at[1:], new)
    return copied


def spoiled(path: Path, draw: random.Random) -> Iterator[bytes]:
    """What a file may hold instead: nothing, something else, half of it, or a value of another type somewhere."""
    whole = path.read_bytes()
    yield from draw.sample(TEXTS, 3)
    yield whole[: len(whole) // 2]
    if path.suffix == ".json":
        value = json.loads(whole)
        for at in draw.choices(list(places(value)), k=4):
            yield json.dumps(changed(value, at, draw.choice(LEAVES))).encode()
    if path.suffix == ".jsonl":
        texts = whole.decode().splitlines()
        value = json.loads(texts[-1])
        for at in draw.choices(list(places(value)), k=4):
            bad, new = draw.randrange(len(texts)), draw.choice(LEAVES)
            every = [json.dumps(changed(json.loads(text), at, new)) for text in texts if fits(json.loads(text), at)]
            yield "\n".join(every).encode()
            yield "\n".join([*texts[:bad], json.dumps(changed(value, at, new)), *texts[bad + 1 :], ""]).encode()


def fits(value: Any, at: tuple[Any, ...]) -> bool:
    """Whether a value has such a place."""
    return at in set(places(value))


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 30), marks=pytest.mark.long)])
def test_files_that_hold_nonsense_are_told_and_never_an_error(run: Run, seeds: range) -> None:
    runs.append_line(run.events, records.Event(at=1.0, kind="resume", what="goes on"))
    for number in seeds:
        draw = random.Random(number)
        files = [path for path in run.folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
        for path in sorted(files):
            whole = path.read_bytes()
            for text in spoiled(path, draw):
                path.write_bytes(text)
                assert isinstance(gather(run), Account)
            path.unlink()
            if path != run.config:
                gather(run)
            path.mkdir()
            gather(run)
            path.rmdir()
            path.write_bytes(whole)


def grown(run: Run, *, count: int) -> None:
    """Give a run so many lines of each kind, of four starts; a step takes a quarter of a second."""
    last = records.read_lines(run.ledger, LedgerRow)[-2]
    totals = {**last.totals, "compute": -4.0}
    spent = records.line(replace(last, at=-1.0, attempt=-2, step=-3, steps=4, totals=totals))
    scores = {row.kind: row for row in records.read_lines(run.metrics, MetricRow)}
    trained, scored = (records.line(replace(scores[kind], step=-3)) for kind in ("train", "eval"))
    with open(run.ledger, "w") as times, open(run.metrics, "w") as learned:
        for number in range(count):
            line = spent.replace("-1.0", f"{last.at + number:.1f}").replace("-2", str(1 + 4 * number // count))
            times.write(line.replace("-3", str(4 * number)).replace("-4.0", f"{number}.0") + "\n")
            learned.write(trained.replace("-3", str(number)) + "\n")
            if number % 1000 == 999:
                learned.write(scored.replace("-3", str(number)) + "\n")


@pytest.mark.parametrize("count", [6000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_of_a_long_run_some_lines_are_read_and_every_evaluation(run: Run, count: int) -> None:
    grown(run, count=count)
    assert run.ledger.stat().st_size > lines.WHOLE_BYTES
    found = gather(run)
    assert found.missing == ()
    assert 3900 <= len(found.evidence.rows[0]) <= 4020 and 3900 <= len(found.training) <= 4000
    assert [row.step for row in found.evaluations] == list(range(999, count, 1000))
    assert {row.attempt for row in found.evidence.rows[0]} == {1, 2, 3, 4}
    assert found.evidence.steps == found.verdict.steps == 4 * count
    assert found.verdict.step == 4 * (count - 1)
