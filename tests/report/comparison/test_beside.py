from pathlib import Path

import pytest

from stoker.errors import Problem
from stoker.report.comparison import beside, compare, repeats
from tests.report.compared import made

FACTS = Path(__file__).parents[2] / "facts" / "caltech256_finetune.csv"


def written(text: str) -> Path:
    path = Path("facts.csv")
    path.write_text(text)
    return path


def test_reported_figures_stand_beside_measured_ones_and_say_so():
    made("one")
    cells = compare([Path("one")], beside=FACTS).cells
    assert [cell.first.is_reported for cell in cells] == [False] + 42 * [True]
    first = cells[1]
    assert (first.name, first.first.machine, first.first.model) == ("p2.8xlarge", "8 x K80", "imagenet11k-resnet-152")
    assert (first.first.batch, first.first.atom, first.first.processes, first.first.dtype) == (128, 16, 8, "fp32")
    assert first.mean("top1_percent") == pytest.approx(86.5) and first.mean("seconds_per_epoch") == 102
    busy = first.figures["gpu_busy_percent"]
    assert busy is not None and (busy.mean, busy.least, busy.most) == (83.0, 65.0, 97.0)


def test_reported_lines_scale_by_those_of_the_same_machine():
    cells = repeats.scaled(beside.cells(FACTS))
    found = {(c.name, c.first.model, c.first.batch): c.scaling_efficiency for c in cells if c.first.dtype == "fp32"}
    assert found["p3.8xlarge ngc", "imagenet11k-resnet-152", 128] == pytest.approx(520 / 4 / 130)
    assert found["p2.8xlarge", "imagenet11k-resnet-152", 128] == pytest.approx(150 / 8 / 20)
    assert found["p3.2xlarge pip", "imagenet11k-resnet-152", 16] is None


def test_a_reported_spread_a_cpu_and_what_went_wrong_are_kept():
    cells = beside.cells(FACTS)
    spread = next(c.figures["top1_percent"] for c in cells if c.first.batch == 256 and c.name == "p2.8xlarge")
    assert spread is not None and spread.spread == pytest.approx(5.0) and spread.count is None
    cpu = next(cell for cell in cells if cell.first.machine == "CPU")
    assert cpu.mean("cpu_percent") == 1700 and cpu.figures["gpu_busy_percent"] is None and cpu.first.processes == 1
    assert {cell.first.status for cell in cells} == {"done", "oom", "failed"}
    assert [cell.first.why for cell in cells if cell.first.status == "failed"] == ["cuda error"]


def test_an_unknown_column_is_refused_and_the_known_ones_are_named():
    with pytest.raises(Problem, match="unknown are 'loss'") as caught:
        beside.cells(written("machine,model,loss\na,b,1\n"))
    assert "accuracy (top-1, as a share of one)" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("machine\nx\n", "no model"),
        ("", "no machine and no model"),
        ("machine,model,gpus\na,b,two\n", "line 2: gpus is 'two'"),
        ("machine,model,gpus\na,b,1.5\n", "gpus is '1.5'"),
        ("machine,model,gpus\na,b,nan\n", "gpus is 'nan'"),
        ("machine,model,accuracy\na,b,inf\n", "accuracy is 'inf'"),
        ("machine,model,gpu_utilisation\na,b,most\n", "gpu_utilisation is 'most'"),
        ("machine,model,gpus\na,b\n", "line 2 has not as many fields"),
        ("machine,model\na,b,c\n", "line 2 has not as many fields"),
        ('machine,model\na,"b\n', "is no CSV file"),
    ],
)
def test_what_can_not_be_read_is_told_with_its_place(text: str, what: str):
    with pytest.raises(Problem) as caught:
        beside.cells(written(text))
    assert what in caught.value.what


def test_a_file_that_is_not_there_is_told():
    with pytest.raises(Problem, match=r"no\.csv can't be read"):
        beside.cells(Path("no.csv"))
    Path("bytes.csv").write_bytes(b"machine,model\n\xff\xfe,b\n")
    with pytest.raises(Problem, match="is no CSV file"):
        beside.cells(Path("bytes.csv"))
