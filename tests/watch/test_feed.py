import json
import os
import shutil
from pathlib import Path

import pytest

from stoker import runs
from stoker.runs import Run
from stoker.watch import feed as feeds
from stoker.watch.board import Board
from stoker.watch.feed import Feed
from stoker.watch.glance import Glance
from tests.watch import made_up
from tests.watch.made_up import made, text, train, training, write_record


def watched(folder: Path) -> Feed:
    found = Feed(folder, Board())
    found.poll()
    return found


def names(feed: Feed) -> dict[str, Glance]:
    return {seen.name: seen for seen in feed.glances.values()}


def run_id(feed: Feed, name: str) -> str:
    return feed.followers[name].id


def test_all_runs_of_a_folder_are_listed_also_those_in_a_folder_of_it(tmp_path: Path):
    made(tmp_path / "a", steps=100)
    made(tmp_path / "sweep" / "b", status="failed", why="no space")
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("no run")
    seen = names(watched(tmp_path))
    assert {name: one.state for name, one in seen.items()} == {"a": "done", "sweep/b": "failed"}
    assert seen["sweep/b"].said == "failed: no space"


def test_the_folder_of_a_run_works_too(tmp_path: Path):
    made(tmp_path / "a", steps=100)
    assert set(names(watched(tmp_path / "a"))) == {"a"}
    assert names(watched(tmp_path / "not there")) == {}


def test_a_run_that_goes_on_is_told_step_by_step_and_a_kill_is_seen(tmp_path: Path):
    run = made(tmp_path / "a", status="running", steps=20)
    with training(run):
        feed = watched(tmp_path)
        assert (names(feed)["a"].state, names(feed)["a"].step) == ("running", 20)
        version = feed.board.version
        feed.poll()
        assert feed.board.version == version
        train(run, 20, 40)
        feed.poll()
        assert (names(feed)["a"].step, names(feed)["a"].held_out["top1"]) == (40, 20.0)
        assert feed.board.version == version + 1
    feed.poll()
    assert names(feed)["a"].state == "killed"


def test_a_run_that_appears_and_one_that_goes_are_told(tmp_path: Path):
    made(tmp_path / "a", steps=100)
    feed = watched(tmp_path)
    seen = feed.board.mark(feed.board.since("", run=""))
    gone = run_id(feed, "a")
    made(tmp_path / "b", steps=100)
    shutil.rmtree(tmp_path / "a")
    feed.poll()
    news = feed.board.since(seen, run="").texts
    assert news[f"run/{gone}"] is None
    assert json.loads(news[f"run/{run_id(feed, 'b')}"] or "")["name"] == "b"


def test_a_resume_that_cuts_the_scores_back_is_followed(tmp_path: Path):
    run = made(tmp_path / "a", status="running", steps=60)
    feed = watched(tmp_path)
    assert names(feed)["a"].held_out["top1"] == 30.0
    runs.cut_metrics(run, step=40, evaluated=4)
    write_record(run, status="running", attempts=2)
    with training(run):
        feed.poll([run_id(feed, "a")])
        assert names(feed)["a"].state == "starting"
        train(run, 40, 44, attempt=2)
        feed.poll([run_id(feed, "a")])
        seen = names(feed)["a"]
        assert (seen.state, seen.step, seen.held_out["top1"]) == ("running", 44, 20.0)


def test_torn_lines_and_lines_of_another_version_are_passed_over(tmp_path: Path):
    run = made(tmp_path / "a", status="running", steps=20)
    with open(run.metrics, "ab") as file:
        file.write(
            b'{"kind":"train","epo\n\xff\xfe\n' + text(made_up.scored(22)).replace(b'"version":1', b'"version":9')
        )
        file.write(text(made_up.scored(24)) + b'{"torn')
    with training(run):
        assert names(watched(tmp_path))["a"].loss == pytest.approx(2.0 / 3.4)


@pytest.mark.parametrize("damage", ["record.json", "config.json", "ledger.jsonl", "metrics.jsonl", "plan.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null\n", b'{"version":99}\n', b"\x00\xff\n", b'"text"\n'])
def test_an_odd_file_is_a_word_and_never_the_end(tmp_path: Path, damage: str, content: bytes):
    made(tmp_path / "a", steps=20)
    made(tmp_path / "b", steps=20)
    (tmp_path / "a" / damage).write_bytes(content)
    feed = watched(tmp_path)
    feed.poll([run_id(feed, "a")])
    assert set(names(feed)) == {"a", "b"}
    assert names(feed)["a"].state == ("unreadable" if damage == "record.json" else "done")


def test_of_300_runs_little_is_read_at_first_and_nothing_while_they_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = made(tmp_path / "run000", steps=100)
    padding = b"".join(text(made_up.spent(step)) for step in range(2, 400, 2))
    first.ledger.write_bytes(padding)
    for number in range(1, 300):
        folder = tmp_path / f"run{number:03d}"
        folder.mkdir()
        for path in first.folder.iterdir():
            if path.is_file():
                os.link(path, folder / path.name)
    feed = watched(tmp_path)
    read = sum(one.ledger_file.read_bytes + one.scores_file.read_bytes for one in feed.followers.values())
    assert len(feed.glances) == 300 and 0 < read <= 300 * 2 * (feeds.LIST_BYTES + 1)
    assert len(padding) > feeds.LIST_BYTES
    version = feed.board.version
    monkeypatch.setattr("builtins.open", None)
    monkeypatch.setattr(Path, "read_text", None)
    feed.poll()
    assert feed.board.version == version


def test_of_a_file_of_many_lines_a_bounded_part_is_read(tmp_path: Path):
    run, small = made(tmp_path / "a", steps=20), made(tmp_path / "b", steps=20)
    line, evaluation = (
        text(row).replace(b'"step":10', b'"step":%d') for row in (made_up.scored(10), made_up.evaluated(10))
    )
    with open(run.metrics, "wb") as file:
        for block in range(80):
            steps = range(block * 2000 + 2, block * 2000 + 2002, 2)
            rows = b"".join(line.replace(b'"epoch":0', b'"epoch":%d' % block) % step for step in steps)
            file.write(rows + evaluation.replace(b'"epoch":1', b'"epoch":%d' % (block + 1)) % steps[-1])
    run.ledger.write_bytes(text(made_up.spent(2)) * 60_000)
    size = run.metrics.stat().st_size + run.ledger.stat().st_size
    feed = Feed(tmp_path, Board())
    before = read_bytes()
    feed.poll()
    assert read_bytes() - before < 500_000 and size > 50_000_000
    feed.poll([run_id(feed, small.folder.name)])  # brings the library of charts
    before, id_ = read_bytes(), run_id(feed, "a")
    feed.poll([id_])
    assert read_bytes() - before < size / 3
    parts = feed.board.since("", run=id_).texts
    losses = json.loads(parts[f"part/{id_}/chart.losses"] or "")["rows"]
    held_out = [row for rows in losses.values() for row in rows if row["series"] == "held-out"]
    assert len({row["step"] for row in held_out}) == 80
    assert all(len(rows) <= 400 for rows in losses.values())
    assert sum(len(value or "") for value in parts.values()) < 500_000


def read_bytes() -> int:
    """What this process has read, of any file."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_what_a_run_says_is_shown_part_by_part(tmp_path: Path):
    run = made(tmp_path / "a", steps=40, why=None)
    made_up.told(run, "resume", "goes on from its checkpoint at step 20")
    runs.append_line(run.gauges_of(0), made_up.gauged(made_up.NOW))
    (run.folder / "logs").mkdir()
    (run.folder / "logs" / "job.out").write_text("first\nlast\n")
    feed = watched(tmp_path)
    id_ = run_id(feed, "a")
    feed.poll([id_])
    parts = {key.split("/")[2]: json.loads(value or "") for key, value in feed.board.since("", run=id_).texts.items()
             if key.startswith("part/")}  # fmt: skip
    assert [event["what"] for event in parts["events"]] == ["goes on from its checkpoint at step 20"]
    assert parts["logs"] == [{"name": "job.out", "text": "first\nlast"}]
    assert parts["lines"][-1] == "Epoch [3] held out  Loss 0.5  Top1 20  Top5 90  (20 samples)"
    assert {one["bucket"]: one["share"] for one in parts["ledger"]} == pytest.approx({"compute": 0.9, "data_wait": 0.1})
    assert parts["why"]["sentence"] and parts["about"]["samples"] == 100
    assert [one["name"] for one in parts["gauges"][0]["dials"]] == [
        "CPU",
        "memory",
        "disk read",
        "network in",
        "network out",
    ]
    assert parts["checkpoints"] == {"kept": [], "missing": []}


def test_an_id_says_nothing_about_the_folder_and_stays_the_same(tmp_path: Path):
    made(tmp_path / "a", steps=2)
    first, second = watched(tmp_path), watched(tmp_path)
    assert run_id(first, "a") == run_id(second, "a") and run_id(first, "a") != "a"
    assert Run(tmp_path / "a") == first.followers["a"].run


@pytest.mark.parametrize("name", ["record.json", "config.json", "plan.json"])
def test_a_file_nested_too_deep_hides_no_other_run(tmp_path: Path, name: str):
    run = made(tmp_path / "a", steps=20)
    made(tmp_path / "b", steps=20)
    (run.folder / name).write_text("[" * 200_000)
    feed = watched(tmp_path)
    feed.poll([run_id(feed, "a"), run_id(feed, "b")])
    seen = names(feed)
    assert seen["b"].state == "done" and (seen["a"].state == "unreadable") == (name == "record.json")
