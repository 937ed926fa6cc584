import json
import re
from pathlib import Path

import pytest

from stoker.watch import parts
from tests.watch.made_up import evaluated, made, scored, spent


@pytest.mark.parametrize("lines", [1, 4, 20])
def test_a_chart_holds_the_rows_that_it_draws_and_no_others(lines: int):
    steps = range(2, 2 * lines + 2, 2)
    found = parts.drawn(
        [scored(s) for s in steps], [evaluated(s) for s in steps if s % 10 == 0], [spent(s) for s in steps]
    )
    assert any(found.values())
    for chart in filter(None, found.values()):
        assert set(re.findall(r'"name": "(\w+)"', json.dumps(chart["spec"]))) >= set(chart["rows"])
        assert "title" not in chart["spec"] and "datasets" not in chart["spec"]


def test_new_rows_change_nothing_else_of_a_chart():
    def losses(steps: range) -> dict[str, object]:
        return parts.drawn([scored(s) for s in steps], [evaluated(10), evaluated(20)], [])["chart.losses"]

    before, after = losses(range(2, 20, 2)), losses(range(2, 22, 2))
    assert before["spec"] == after["spec"] and before["rows"] != after["rows"]


def test_a_chart_of_nothing_is_none():
    assert set(parts.drawn([], [], []).values()) == {None}


def test_only_files_of_the_folder_of_logs_are_shown_the_newest_first(tmp_path: Path):
    run = made(tmp_path / "a")
    logs = run.folder / "logs"
    assert parts.logs(logs) == []
    logs.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    (logs / "link").symlink_to(tmp_path / "secret")
    (logs / "one").write_text("x\n" * 20_000 + "end\n")
    (found,) = parts.logs(logs)
    assert found["name"] == "one" and found["text"].endswith("end") and len(found["text"]) <= parts.LOG_BYTES
