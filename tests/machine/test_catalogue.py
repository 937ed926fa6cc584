from pathlib import Path

import pytest

from stoker.errors import Problem
from stoker.machine import catalogue
from stoker.machine.catalogue import GPU_COLUMNS, GPUS, INSTANCE_COLUMNS, INSTANCES


@pytest.mark.parametrize(
    ("driver_name", "name"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM 40GB"),
        ("A100-SXM4-80GB", "A100 SXM 80GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe 32GB"),
        ("Tesla K80", "K80"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Quadro P6000", "P6000"),
        ("h200 sxm", "H200 SXM"),
    ],
)
def test_a_gpu_is_found_by_the_name_that_the_driver_gives_it(driver_name: str, name: str):
    found = catalogue.read().gpu(driver_name)
    assert found is not None and found.name == name


@pytest.mark.parametrize(
    "driver_name",
    ["NVIDIA A10", "NVIDIA L40", "NVIDIA H20", "NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "", "?"],
)
def test_a_gpu_that_only_looks_like_another_is_not_known(driver_name: str):
    assert catalogue.read().gpu(driver_name) is None


def test_a_k80_is_half_of_its_board():
    half = catalogue.read().gpu("Tesla K80")
    assert half is not None
    assert half.memory_bytes == 12e9
    assert half.flops == {"fp32": pytest.approx(8.73e12 / 2)}
    assert half.bandwidth_bytes_per_second == 480e9 / 2


def test_figures_are_in_base_units():
    gpu, machine = catalogue.read().gpu("NVIDIA H200"), catalogue.read().instance("p4d.24xlarge")
    assert gpu is not None and machine is not None
    assert gpu.bandwidth_bytes_per_second == 4.8e12
    assert gpu.flops == {"fp32": 67e12, "tf32": 494.5e12, "fp16": 989e12, "bf16": 989e12}
    assert gpu.nvlink_bytes_per_second == 450e9  # each way, of 900 both ways
    assert (machine.gpus, machine.gpu_memory_bytes, machine.vcpus) == (8, 40 * 2**30, 96)
    assert machine.network_baseline_bytes_per_second == 50e9
    assert machine.disk_bytes_per_second == 2375e6
    assert machine.on_demand_dollars_per_hour == 21.957642
    assert machine.pcie_lanes == 16


def test_what_sources_disagree_about_is_not_quoted():
    found = catalogue.read().gpu("NVIDIA A10G")
    assert found is not None and found.is_conflict and found.flops == {}
    assert [spec.name for spec in catalogue.read().gpus.values() if spec.is_conflict] == ["A10G"]


def test_a_network_that_is_fast_for_minutes_is_known_by_what_lasts():
    machine = catalogue.read().instance("g5.xlarge")
    assert machine is not None
    assert machine.network_baseline_bytes_per_second == 2.5e9 / 8
    assert machine.network_peak_bytes_per_second == 10e9 / 8


def test_every_row_has_its_date_and_its_source():
    known = catalogue.read()
    rows = [*known.gpus.values(), *known.instances.values()]
    assert len(known.gpus) >= 19 and len(known.instances) >= 60
    assert [row.name for row in rows if not row.date.startswith("20") or len(row.source) < 5] == []
    assert [row.name for row in known.instances.values() if row.gpus < 1] == []
    assert [row.name for row in known.instances.values() if row.is_retired != (row.date == "2022")] == []


def test_the_shipped_files_have_the_columns_that_are_known():
    assert GPUS.read_text().splitlines()[0] == ",".join(GPU_COLUMNS)
    assert INSTANCES.read_text().splitlines()[0] == ",".join(INSTANCE_COLUMNS)


def test_an_unknown_name_is_none_and_close_ones_are_named():
    known = catalogue.read()
    assert known.instance("p4d.24xlarg") is None
    assert known.close("p4d.24xlarg")[0] == "p4d.24xlarge"
    assert known.close("P4D.24XLARG")[0] == "p4d.24xlarge"
    assert known.close("V100 sxm")[:2] == ("V100 SXM2 16GB", "V100 SXM2 32GB")
    assert known.close("p4d")[:2] == ("p4d.24xlarge", "p4de.24xlarge")
    assert known.close("?") == known.close("") == ()


def test_the_users_row_replaces_the_cells_that_it_fills(tmp_path: Path):
    own = tmp_path / "prices.csv"
    own.write_text("instance,on_demand_dollars_per_hour\nP4D.24xlarge,20\n")
    machine = catalogue.read(own).instance("p4d.24xlarge")
    assert machine is not None
    assert machine.on_demand_dollars_per_hour == 20
    assert machine.gpus == 8 and machine.name == "p4d.24xlarge"
    assert (machine.date, machine.source) == ("not stated", str(own))


def test_the_users_rate_settles_what_sources_disagree_about(tmp_path: Path):
    own = tmp_path / "gpus.csv"
    own.write_text("gpu,bf16_tflops,date,source\nA10G,61.5,2026-11-01,doctor\n")
    spec = catalogue.read(own).gpu("NVIDIA A10G")
    assert spec is not None
    assert spec.flops == {"bf16": 61.5e12} and not spec.is_conflict
    assert (spec.date, spec.source) == ("2026-11-01", "doctor")
    own.write_text("gpu,memory_gb\nA10G,22\n")
    spec = catalogue.read(own).gpu("A10G")
    assert spec is not None and spec.is_conflict and spec.memory_bytes == 22e9


def test_a_new_row_is_added_with_what_it_says(tmp_path: Path):
    own = tmp_path / "own.csv"
    own.write_text("instance, gpu, gpus, vcpus\nbox, L4, 2,\n")
    box = catalogue.read(own).instance("box")
    assert box is not None
    assert (box.gpu, box.gpus, box.vcpus, box.on_demand_dollars_per_hour) == ("L4", 2, None, None)
    own.write_text("gpu,generation,memory_gb,bandwidth_gb_per_second\nX9,ada,8,200\n")
    spec = catalogue.read(own).gpu("X9")
    assert spec is not None and spec.flops == {} and spec.nvlink_bytes_per_second is None


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("instance,gpu,gpus\nbox,L4,1\nbig,L4,eight\n", "line 3, column gpus: 'eight'"),
        ("instance,gpu,gpus\nbox,L4,1.5\n", "line 2, column gpus: '1.5' is not a whole"),
        ("instance,gpu,gpus\nbox,L4,0\n", "line 2, column gpus: it must be more than 0"),
        ("instance,gpu,gpus\nbox,,1\n", "line 2, column gpu: it is empty"),
        ("instance,gpu,gpus\n,L4,1\n", "line 2, column instance: it is empty"),
        ("instance,price\nbox,1\n", "line 1, column 2: 'price' is not known"),
        ("instance,gpu,gpu\nbox,L4,L4\n", "line 1, column 3: 'gpu' is there twice"),
        ("instance,gpu,gpus\nbox,L4,1,2\n", "line 2: it has more cells"),
        ("instance,on_demand_dollars_per_hour\np4d.24xlarge,-3\n", "column on_demand_dollars_per_hour: '-3'"),
        ("instance,on_demand_dollars_per_hour\np4d.24xlarge,nan\n", "column on_demand_dollars_per_hour: 'nan'"),
        ("instance,is_retired\np4d.24xlarge,maybe\n", "column is_retired: 'maybe' is neither"),
        ("gpu,generation,memory_gb,bandwidth_gb_per_second\nX9,rubin,8,200\n", "column generation: 'rubin'"),
        ("gpu,memory_gb\nX9,8\n", "line 2, column generation: it is empty"),
        ("memory_gb\n8\n", "line 1: it has no column with names"),
        ("", "line 1: it has no column with names"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(text: str, where: str, tmp_path: Path):
    own = tmp_path / "own.csv"
    own.write_text(text)
    with pytest.raises(Problem) as refused:
        catalogue.read(own)
    assert str(own) in refused.value.what and where in refused.value.what


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path):
    with pytest.raises(Problem, match=r"none\.csv can't be read"):
        catalogue.read(tmp_path / "none.csv")
    (tmp_path / "raw.csv").write_bytes(b"gpu\n\xff\xfe\n")
    with pytest.raises(Problem, match=r"raw\.csv can't be read"):
        catalogue.read(tmp_path / "raw.csv")
