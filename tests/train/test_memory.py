"""Too little memory is recognised, less is taken at a time, and what fits is found by trying."""

import math
import resource
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.config import AugmentConfig, DataConfig, ImageConfig, LoaderConfig, ModelConfig, OptimConfig
from stoker.errors import Problem
from stoker.machine import gauges
from stoker.tasks.classify import Classify
from stoker.train import memory
from stoker.train.memory import Fit, Try

CPU = torch.device("cpu")
MIB = 2**20


class Wide(Classify):
    """A network that takes much memory, and little time: a MiB for each output of a sample of 64 pixels."""

    def model(self, *, classes: int) -> torch.nn.Module:
        head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, classes)]
        return torch.nn.Sequential(torch.nn.Conv2d(3, 64, 1), torch.nn.ReLU(), *head)


@pytest.fixture
def task() -> Classify:
    return wide()


def wide() -> Classify:
    image = ImageConfig(resolution=64)
    return Wide(data=DataConfig(), image=image, augment=AugmentConfig(), loader=LoaderConfig(), network=ModelConfig())


def limited() -> None:
    """What a process does that may take little more memory than it has. Runs in one of its own."""
    torch.set_num_threads(1)
    task = wide()

    def fit(most: int) -> Fit:
        return memory.largest_batch(
            task, classes=10, resolution=64, device=CPU, optim=OptimConfig(), most=most, show=False
        )

    fit(8)
    now_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now_bytes + 80 * MIB,) * 2)
    memory.SLOW_SECONDS = math.inf
    found = fit(1024)
    print(found.batch, *(f"{row.batch}:{'fits' if row.fits else row.peak_bytes}" for row in found.tried))
    fit(8)
    try:
        torch.empty(2**30, dtype=torch.uint8)
    except RuntimeError as error:
        print(memory.is_out_of_memory(error))


def with_available(monkeypatch: pytest.MonkeyPatch, available_bytes: int | None) -> None:
    found = gauges.Memory(total_bytes=64 * 2**30, available_bytes=available_bytes, limited_by=None)
    monkeypatch.setattr(gauges, "memory_allotted", lambda: found)


class TestRecognition:
    @pytest.mark.parametrize(
        "error",
        [
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            MemoryError(),
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
            RuntimeError("CUDA error: out of memory"),
        ],
    )
    def test_errors_of_memory_are_known(self, error: BaseException) -> None:
        assert memory.is_out_of_memory(error)

    @pytest.mark.parametrize(
        "error",
        [
            RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
            RuntimeError("CUDA error: an illegal memory access was encountered"),
            RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
            ValueError("out of memory"),
            KeyboardInterrupt(),
        ],
    )
    def test_other_errors_are_not(self, error: BaseException) -> None:
        assert not memory.is_out_of_memory(error)

    def test_a_real_allocation_that_is_too_large_is_known(self) -> None:
        with pytest.raises(RuntimeError) as caught:
            torch.empty(2**62, dtype=torch.uint8)
        assert memory.is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("batch", "atoms", "needs_two", "expected"),
    [
        (256, 1, True, 2), (256, 4, True, 8), (7, 1, True, 2), (4, 1, True, 2), (4, 2, True, None), (4, 2, False, 4),
        (3, 1, True, None), (3, 1, False, 2), (3, 2, False, None), (1, 1, False, None), (6, 3, False, 6),
    ],
)  # fmt: skip
def test_atoms_double_as_long_as_each_has_enough_samples(
    batch: int, atoms: int, needs_two: bool, expected: int | None
) -> None:
    assert memory.smaller(batch=batch, atoms=atoms, needs_two=needs_two) == expected


def test_candidates_are_powers_of_two_and_half_as_much_again() -> None:
    assert memory.candidates(100) == [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
    assert memory.candidates(96)[-1] == 96 and memory.candidates(95)[-1] == 64
    assert memory.candidates(2) == [2] and memory.candidates(3) == [2, 3]
    with pytest.raises(Problem, match="at most 1"):
        memory.candidates(1)


def rows(*peaks: tuple[int, int | None], budget: int) -> list[Try]:
    return [
        Try(batch=batch, peak_bytes=peak, seconds=0.1, fits=peak is not None and peak <= budget)
        for batch, peak in peaks
    ]


class TestChoice:
    def choose(self, *peaks: tuple[int, int | None], most: int, budget: int, reckons: bool) -> Fit | None:
        tried = rows(*peaks, budget=budget)
        return memory.chosen(tried, memory.candidates(most), budget_bytes=budget, reckons=reckons)

    def test_the_largest_that_fitted_is_taken_and_nothing_that_was_not_tried(self) -> None:
        fit = self.choose((8, 100), (16, 180), (32, 340), (64, None), (48, 500), most=4096, budget=600, reckons=False)
        assert fit is not None and (fit.batch, fit.peak_bytes) == (48, 500)
        fit = self.choose((8, 100), (16, 180), (32, 340), (64, None), (48, 700), most=4096, budget=600, reckons=False)
        assert fit is not None and (fit.batch, fit.peak_bytes) == (32, 340)

    def test_what_was_not_tried_follows_from_the_line_through_the_last_two(self) -> None:
        fit = self.choose((8, 500), (16, 180), (32, 340), most=4096, budget=1000, reckons=True)
        # 10 a sample and 20 for all: 98 samples fit, and 96 is the next size below.
        assert fit is not None and (fit.batch, fit.peak_bytes) == (96, 980)

    def test_a_line_that_falls_or_one_point_alone_counts_every_byte_as_the_samples(self) -> None:
        fit = self.choose((8, 100), (16, 90), most=4096, budget=300, reckons=True)
        assert fit is not None and fit.batch == 48
        fit = self.choose((8, 100), most=4096, budget=300, reckons=True)
        assert fit is not None and fit.batch == 24

    def test_what_ran_out_of_memory_is_a_limit_whatever_the_line_says(self) -> None:
        fit = self.choose((8, 100), (16, 180), (32, None), most=4096, budget=10_000, reckons=True)
        assert fit is not None and fit.batch == 24

    def test_nothing_that_fits_is_nothing(self) -> None:
        assert self.choose((8, None), (6, None), (4, 900), most=4096, budget=600, reckons=False) is None


class TestSearch:
    """How sizes are tried, with made-up needs: one sample takes 10, everything else 100."""

    def search(
        self,
        monkeypatch: pytest.MonkeyPatch,
        task: Classify,
        *,
        kind: str,
        budget: int,
        most: int,
        runs_out: int = 10**9,
    ) -> list[int]:
        def measured(trial: Any, batch: int, *, meter: Any, budget_bytes: int) -> Try:
            peak = 100 + 10 * batch
            return rows((batch, peak if peak < runs_out else None), budget=budget_bytes)[0]

        monkeypatch.setattr(memory, "measured", measured)
        monkeypatch.setattr(memory, "Trial", lambda *_, **__: None)
        monkeypatch.setattr(memory, "Meter", lambda _: None)
        tried = memory.tried_out(
            task, memory.candidates(most), classes=10, resolution=32, device=torch.device(kind), optim=OptimConfig(),
            budget_bytes=budget, show=False,
        )  # fmt: skip
        return [row.batch for row in tried]

    def test_a_gpu_doubles_until_it_is_too_much_then_tries_what_lies_between(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify
    ) -> None:
        assert self.search(monkeypatch, task, kind="cuda", budget=1000, most=10**6) == [8, 16, 32, 64, 128, 96]
        tried = self.search(monkeypatch, task, kind="cuda", budget=10**9, runs_out=1000, most=10**6)
        assert tried == [8, 16, 32, 64, 128, 96]

    def test_no_size_beyond_the_data_is_tried(self, monkeypatch: pytest.MonkeyPatch, task: Classify) -> None:
        assert self.search(monkeypatch, task, kind="cuda", budget=10**9, most=100) == [8, 16, 32, 64, 96]
        assert self.search(monkeypatch, task, kind="cuda", budget=10**9, most=5) == [4]
        assert self.search(monkeypatch, task, kind="cpu", budget=10**9, most=100) == [8, 16, 32, 64]

    def test_where_the_first_is_too_much_smaller_ones_are_tried(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify
    ) -> None:
        assert self.search(monkeypatch, task, kind="cuda", budget=145, most=10**6) == [8, 6, 4]
        assert self.search(monkeypatch, task, kind="cpu", budget=10, most=10**6) == [8, 6, 4, 3, 2]


class TestOnCpu:
    def test_more_memory_gives_a_larger_batch_within_its_half(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify
    ) -> None:
        def fit(available_bytes: int, resolution: int) -> Fit:
            with_available(monkeypatch, available_bytes)
            return memory.largest_batch(
                task, classes=10, resolution=resolution, device=CPU, optim=OptimConfig(), most=100_000, show=False
            )

        little = fit(300 * MIB, 32)
        monkeypatch.setattr(memory, "SLOW_SECONDS", 0.0)
        more = fit(2**40, 32)
        assert little.budget_bytes == 150 * MIB
        # Two outputs of a quarter of a MiB each, twice where they have gradients: some 150 to 300 samples.
        assert 48 <= little.batch <= 320 and little.peak_bytes <= little.budget_bytes
        # A try that takes too long is the last one, and the rest is reckoned.
        assert [row.batch for row in more.tried] == [8] and more.batch == 1024

    def test_memory_that_the_process_has_at_hand_is_counted_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify
    ) -> None:
        with_available(monkeypatch, 2**40)
        monkeypatch.setattr(memory.Meter, "_sample", lambda _: None)  # as if nothing new were taken
        fit = memory.largest_batch(
            task, classes=10, resolution=64, device=CPU, optim=OptimConfig(), most=16, show=False
        )
        assert [row.peak_bytes // (2 * row.batch * MIB) for row in fit.tried if row.peak_bytes] == [1, 1]

    def test_it_never_goes_beyond_the_data(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with_available(monkeypatch, 2**40)
        fit = memory.largest_batch(task, classes=10, resolution=32, device=CPU, optim=OptimConfig(), most=50, show=True)
        assert fit.batch == 48 and [row.batch for row in fit.tried] == [8, 16, 32]
        told = capsys.readouterr().err
        assert (
            "batch    what fits into 512.0 GiB?" in told and "batch    8 takes" in told and "batch    48 it is" in told
        )

    @pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
    def test_the_runs_random_numbers_and_rate_are_left_alone(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify, optimizer: Any
    ) -> None:
        with_available(monkeypatch, 2**40)
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        optim = OptimConfig(optimizer=optimizer, lr=1e9, ema=0.9, clip=1.0)
        memory.largest_batch(task, classes=10, resolution=32, device=CPU, optim=optim, most=8, show=False)
        assert torch.equal(torch.rand(3), expected)

    def test_a_machine_without_room_is_a_problem_with_a_way_out(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify
    ) -> None:
        with_available(monkeypatch, 2)
        with pytest.raises(Problem, match="not even 2 samples of 16 x 16 pixels fit") as caught:
            memory.largest_batch(task, classes=10, resolution=16, device=CPU, optim=OptimConfig(), most=64, show=False)
        assert "--resolution" in str(caught.value.fix)

    def test_memory_that_cannot_be_measured_is_a_problem(self, monkeypatch: pytest.MonkeyPatch, task: Classify) -> None:
        with_available(monkeypatch, None)
        with pytest.raises(Problem, match="can't be measured"):
            memory.budget(CPU)

    def test_processes_of_one_machine_share_its_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with_available(monkeypatch, 1000)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
        assert memory.budget(CPU) == 125

    def test_errors_that_are_none_of_memory_are_not_hidden(
        self, monkeypatch: pytest.MonkeyPatch, task: Classify
    ) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("the network is broken")

        monkeypatch.setattr(Classify, "loss", broken)
        with pytest.raises(RuntimeError, match="is broken"):
            memory.largest_batch(task, classes=10, resolution=32, device=CPU, optim=OptimConfig(), most=64, show=False)


def test_the_meter_sees_what_is_taken_and_given_back_in_between() -> None:
    meter = memory.Meter(CPU)
    with meter:
        taken = torch.ones(64 * MIB, dtype=torch.uint8)
        ones = int(taken[::4096].sum())
        for _ in range(50):
            taken.add_(0)
        del taken
    assert ones == 64 * MIB // 4096 and meter.bytes >= 60 * MIB


def test_free_gives_back_what_only_a_cycle_holds() -> None:
    class Ring:
        def __init__(self) -> None:
            self.me, self.tensor = self, torch.zeros(1)

    gone = weakref.ref(Ring().tensor)
    memory.free(CPU)
    assert gone() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to its address space")
def test_a_process_that_runs_out_of_memory_ends_up_with_what_fits() -> None:
    root, code = Path(__file__).parents[2], "from tests.train.test_memory import limited; limited()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    batch, *tried = first.split()
    ran_out = [int(row.removesuffix(":None")) for row in tried if row.endswith(":None")]
    assert len(ran_out) == 1 and 8 <= int(batch) < ran_out[0] < 1024
    assert second == "True"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_filled_to_nine_tenths_and_emptied_again(task: Classify) -> None:
    device = torch.device("cuda", 0)
    torch.cuda.set_per_process_memory_fraction(1.0, device)
    hog = torch.empty(int(torch.cuda.mem_get_info(device)[0] * 0.8), dtype=torch.uint8, device=device)
    before = torch.cuda.memory_allocated(device)
    try:
        fit = memory.largest_batch(
            task, classes=1000, resolution=224, device=device, optim=OptimConfig(), most=10**6, show=True
        )
        left = torch.cuda.memory_allocated(device) - before
    finally:
        del hog
    assert fit.batch >= 8 and fit.peak_bytes <= fit.budget_bytes
    assert not all(row.fits for row in fit.tried)
    # cuBLAS keeps its workspace, which training uses again.
    assert left < 128 * MIB
