import os
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stoker.machine import counters, gauges
from stoker.machine.counters import Meter, Traffic

Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")


def cpu_times(**seconds: float) -> object:
    """A core's times as psutil has them on Linux."""
    return Times(*(seconds.get(name, 0.0) for name in Times._fields))


def burn(cpu_seconds: float) -> None:
    end = time.process_time() + cpu_seconds
    while time.process_time() < end:
        pass


class TestCpu:
    def test_a_core_kept_busy_counts_for_the_process_and_for_the_machine(self) -> None:
        meter = Meter()
        before = meter.read()
        burn(0.3)
        after = meter.read()
        assert before.cpu_seconds is not None and after.cpu_seconds is not None
        assert before.process_cpu_seconds is not None and after.process_cpu_seconds is not None
        assert after.process_cpu_seconds - before.process_cpu_seconds >= 0.3
        # The kernel counts in ticks, so the machine's own sum may be a few of them short.
        assert after.cpu_seconds - before.cpu_seconds >= 0.2

    def test_only_the_cores_of_our_affinity_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limited = gauges.Cores(allotted=2, present=4, limited_by="affinity")
        monkeypatch.setattr(gauges, "cores_allotted", lambda: limited)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3}, raising=False)
        cores = [cpu_times(user=seconds) for seconds in (1000.0, 10.0, 1000.0, 5.0)]
        monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: cores if percpu else cpu_times(user=2015.0))
        meter = Meter()
        assert (meter.cores, meter.machine_cores, meter.read().cpu_seconds) == (2, 4, 15.0)

    def test_waiting_for_a_disk_is_not_busy_and_a_guest_is_not_busy_twice(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        times = cpu_times(user=10.0, system=2.0, idle=50.0, iowait=7.0, guest=4.0, guest_nice=1.0, nice=1.0)
        monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: times)
        unlimited = gauges.Cores(allotted=2, present=2, limited_by=None)
        monkeypatch.setattr(gauges, "cores_allotted", lambda: unlimited)
        found = Meter().read()
        assert (found.cpu_seconds, found.iowait_seconds) == (13.0, 7.0)

    @pytest.mark.parametrize(
        "files",
        [
            {"cpu.max": "150000 100000", "cpu.stat": "usage_usec 7500000\nuser_usec 7000000"},
            {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000", "cpu.stat": "nr_periods 9\nnr_throttled 0",
             "cpuacct.usage": "7500000000"},
        ],
        ids=["v2", "v1"],
    )  # fmt: skip
    def test_under_a_quota_the_groups_own_time_counts(
        self, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text + "\n")
        limited = gauges.Cores(allotted=1, present=64, limited_by="cgroup quota")
        monkeypatch.setattr(gauges, "cores_allotted", lambda: limited)
        monkeypatch.setattr(gauges, "own_groups", lambda _: [tmp_path, tmp_path / "none"])
        meter = Meter()
        assert (meter.cores, meter.read().cpu_seconds) == (1.5, 7.5)

    def test_a_group_that_does_not_tell_its_time_is_unknown_and_the_rest_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "cpu.max").write_text("100000 100000")
        limited = gauges.Cores(allotted=1, present=2, limited_by="cgroup quota")
        monkeypatch.setattr(gauges, "cores_allotted", lambda: limited)
        monkeypatch.setattr(gauges, "own_groups", lambda _: [tmp_path])
        found = Meter().read()
        assert found.cpu_seconds is None
        assert found.process_cpu_seconds is not None


class TestDisks:
    def test_what_is_read_from_storage_and_written_to_it_is_counted(self, tmp_path: Path) -> None:
        """As the kernel counts for the process, and psutil for the machine: what is cached or in memory may count 0."""
        meter = Meter()
        own, before, disks_before = storage_bytes(), meter.read(), psutil.disk_io_counters()
        path = tmp_path / "some"
        path.write_bytes(os.urandom(4 * 2**20))
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.read()
        own_after, disks_after, after = storage_bytes(), psutil.disk_io_counters(), meter.read()
        if own is None or own_after is None or after.disk_write_bytes is None or before.disk_write_bytes is None:
            pytest.skip("this system counts no bytes")
        assert before.process_read_bytes is not None and after.process_read_bytes is not None
        assert disks_before is not None and disks_after is not None
        assert after.process_read_bytes - before.process_read_bytes >= own_after - own
        if disks_after.write_bytes - disks_before.write_bytes >= 4 * 2**20:
            assert after.disk_write_bytes - before.disk_write_bytes >= 4 * 2**20

    def test_partitions_and_volumes_are_not_counted_a_second_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for disk in ("nvme0n1", "nvme1n1"):
            (tmp_path / "block" / disk / "device").mkdir(parents=True)
        (tmp_path / "block" / "dm-0").mkdir()
        names = ("nvme0n1", "nvme0n1p1", "nvme1n1", "dm-0")
        found = {name: SimpleNamespace(read_bytes=100, write_bytes=7) for name in names}
        monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: found)
        counted = Meter(sys=tmp_path).read()
        assert (counted.disk_read_bytes, counted.disk_write_bytes) == (200, 14)

    def test_a_machine_without_disks_of_its_own_is_unknown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: {})
        assert Meter(sys=tmp_path).read().disk_read_bytes is None

    def test_without_permission_the_bytes_of_the_process_are_unknown_and_the_rest_is_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: object) -> None:
            raise psutil.AccessDenied

        monkeypatch.setattr(psutil.Process, "io_counters", refuse)
        found = Meter().read()
        assert found.process_read_bytes is None
        assert found.cpu_seconds is not None and found.traffic is not None


def storage_bytes() -> int | None:
    """What the kernel says that this process read from storage."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def cards(**sent_and_received: int) -> dict[str, object]:
    return {name: SimpleNamespace(bytes_sent=count, bytes_recv=10 * count) for name, count in sent_and_received.items()}


class TestTraffic:
    def test_the_loopback_is_not_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(psutil, "net_io_counters", lambda **_: cards(lo=1000, eth0=5, veth1=7))
        assert Meter(sys=tmp_path).read().traffic == {
            "eth0": Traffic(sent_bytes=5, received_bytes=50),
            "veth1": Traffic(sent_bytes=7, received_bytes=70),
        }

    def test_a_bond_is_not_counted_beside_its_cards(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "class" / "net" / "bond0" / "lower_eth0").mkdir(parents=True)
        monkeypatch.setattr(psutil, "net_io_counters", lambda **_: cards(bond0=5, eth0=5))
        assert list(Meter(sys=tmp_path).read().traffic or ()) == ["eth0"]

    def test_infiniband_is_counted_at_its_ports_in_words_of_four_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ports = tmp_path / "class" / "infiniband" / "mlx5_0" / "ports"
        for port, files in {"1": {"xmit": "3", "rcv": "1000000000000"}, "2": {"xmit": "3"}}.items():
            (ports / port / "counters").mkdir(parents=True)
            for way, text in files.items():
                (ports / port / "counters" / f"port_{way}_data").write_text(text + "\n")
        for name, kind in {"ib0": "32", "eth0": "1"}.items():
            (tmp_path / "class" / "net" / name).mkdir(parents=True)
            (tmp_path / "class" / "net" / name / "type").write_text(kind + "\n")
        monkeypatch.setattr(psutil, "net_io_counters", lambda **_: cards(ib0=4, eth0=5))
        assert Meter(sys=tmp_path).read().traffic == {
            "mlx5_0/1": Traffic(sent_bytes=12, received_bytes=4_000_000_000_000),
            "eth0": Traffic(sent_bytes=5, received_bytes=50),
        }

    def test_ip_over_infiniband_counts_where_the_ports_tell_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "class" / "net" / "ib0").mkdir(parents=True)
        (tmp_path / "class" / "net" / "ib0" / "type").write_text("32\n")
        monkeypatch.setattr(psutil, "net_io_counters", lambda **_: cards(ib0=4))
        assert list(Meter(sys=tmp_path).read().traffic or ()) == ["ib0"]

    def test_a_system_that_does_not_tell_is_unknown_and_not_idle(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(**_: object) -> None:
            raise FileNotFoundError("/proc/net/dev")

        monkeypatch.setattr(psutil, "net_io_counters", refuse)
        assert Meter().read().traffic is None


@pytest.mark.parametrize(
    ("before", "after", "seconds", "rate"),
    [(10, 30, 4.0, 5.0), (10, 10, 4.0, 0.0), (30, 10, 4.0, None), (None, 10, 4.0, None), (10, None, 4.0, None),
     (10, 30, 0.0, None)],
)  # fmt: skip
def test_a_counter_that_began_anew_or_was_not_read_has_no_rate(
    before: int | None, after: int | None, seconds: float, rate: float | None
) -> None:
    assert counters.per_second(before, after, seconds) == rate
