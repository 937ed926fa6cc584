"""What of a machine is slower than it should be, and what that means for a run. Pure."""

from collections.abc import Iterator

from stoker import units
from stoker.doctor.figures import MEMORY, NVLINK, SHEET, TO_DEVICE, Figure, figures, pcie_bytes_per_second, text
from stoker.doctor.profile import CpuSpeed, DiskSpeed, GpuSpeed, Measured
from stoker.findings import Finding
from stoker.machine.catalogue import Catalogue, GpuSpec

# Of what others measured, and of data sheets, which promise more than large products ever reach.
KNOWN_SHARE, SHEET_SHARE = 0.75, 0.5
# Good copies reach 85 to 90 % of a memory's rate, and 75 to 90 % of a PCIe link's.
COPY_SHARE, LINK_SHARE = 0.7, 0.6
# Some GPUs are joined by a part of their links only; PCIe is slower still.
NVLINK_SHARE = 0.1
CLOCK_SHARE = 0.6
SCALING_SHARE = 0.6
SSD_FILES_PER_SECOND = 1_840_697 / 11.8
"""files listed on a local SSD, as one user of Places365 measured; 574 s on shared storage"""
LIST_SHARE = 0.1
SLOW_WRITE_BYTES_PER_SECOND = 100e6


def found(measured: Measured, catalogue: Catalogue) -> tuple[Finding, ...]:
    """What is slower than it should be; nothing where all is well or nothing is known."""
    rows = figures(measured, catalogue)
    results: list[Finding] = []
    for speed in measured.gpus:
        own = [row for row in rows if row.part == f"GPU {speed.index}"]
        results += of_gpu(speed, catalogue.gpu(speed.name), own)
    if measured.cpu is not None:
        results += of_cpu(measured.cpu)
    if measured.disk is not None:
        results += of_disk(measured.disk, measured.cpu)
    return tuple(results)


def of_gpu(speed: GpuSpeed, spec: GpuSpec | None, rows: list[Figure]) -> Iterator[Finding]:
    """What is wrong with a GPU."""
    if spec is None:
        what = f"GPU {speed.index} ({speed.name}) is not in the catalogue, so there is nothing to set its speed against"
        yield warn(what, "none is needed: plans for this machine use what was measured")
    products = list(of_products(speed, spec, rows))
    yield from products
    if not products and is_held(speed):
        yield warn(f"GPU {speed.index}: {held(speed)}", cure(speed))
    yield from of_copies(speed, rows)


def of_products(speed: GpuSpeed, spec: GpuSpec | None, rows: list[Figure]) -> Iterator[Finding]:
    """The dtype that is furthest behind, where any is."""
    late = [row for row in rows if row.unit == "FLOP/s" and is_late(row)]
    if spec is None or not late:
        return
    row = min(late, key=lambda each: each.share or 0.0)
    known = "its data sheet says" if row.expected_by == SHEET else f"{an(spec.name)} is known to do"
    dtype = row.what.split()[0]
    what = (
        f"GPU {speed.index} multiplies {dtype} matrices at {text(row.value, row.unit)}, {row.share:.0%} of what {known}"
    )
    yield warn(f"{what}: {held(speed)}" if is_held(speed) else what, cure(speed))


def is_late(row: Figure) -> bool:
    """Whether products are slower than they may be."""
    least = SHEET_SHARE if row.expected_by == SHEET else KNOWN_SHARE
    return row.share is not None and row.share < least


def is_held(speed: GpuSpeed) -> bool:
    """Whether a clock is held down so far that something is wrong; large products cost every GPU some of it."""
    clock, most = speed.clock_mhz, speed.clock_max_mhz
    return clock is not None and bool(most) and clock < CLOCK_SHARE * (most or 0)


def held(speed: GpuSpeed) -> str:
    """How far a clock is held down, and by what."""
    share = f"clock held at {(speed.clock_mhz or 0) / (speed.clock_max_mhz or 1):.0%}"
    return f"{share} by {' and '.join(speed.throttle)}" if speed.throttle else f"{share}, for no reason that NVML gives"


def cure(speed: GpuSpeed) -> str:
    """What to do about a slow GPU."""
    reasons = " ".join(speed.throttle)
    if "thermal" in reasons:
        return "let it cool: see the fans and the air, and `nvidia-smi -q -d TEMPERATURE`"
    if "power brake" in reasons or "hardware slowdown" in reasons:
        return "the machine takes power away: see its power supply, or use another machine"
    if "power cap" in reasons and is_held(speed):
        return "see `nvidia-smi -q -d POWER`, raise the limit with `nvidia-smi -pl`, or use another machine"
    if "application clocks" in reasons:
        return "give the clocks back: `nvidia-smi -rac` and `nvidia-smi -rgc`"
    return "see with `nvidia-smi` that nobody else uses it, measure with --again, and else use another machine"


def of_copies(speed: GpuSpeed, rows: list[Figure]) -> Iterator[Finding]:
    """Memory, the link to the host, and the links to other GPUs."""
    me, by_what = f"GPU {speed.index}", {row.what: row for row in rows}
    memory, link = by_what[MEMORY], by_what[TO_DEVICE]
    if memory.share is not None and memory.share < COPY_SHARE:
        what = f"{me} copies {text(memory.value, 'B/s')} within its memory, {memory.share:.0%} of what its sheet says"
        yield warn(what, "see with `nvidia-smi` that nobody else uses it, and `nvidia-smi -q -d ECC` for bad memory")
    narrow = narrowed(speed)
    if narrow or (link.share is not None and link.share < LINK_SHARE):
        rate = "" if link.value is None else f": {text(link.value, 'B/s')} get to it"
        whole = "" if link.share is None else f", {link.share:.0%} of what {link.expected_by} lets through"
        fix = "have the card reseated, or use another machine"
        if not narrow:
            fix = "run on the GPU's own socket (`numactl`; see `nvidia-smi topo -m`), or use another machine"
        yield warn(f"{me} has {narrow or 'slow copies from the host'}{rate}{whole}", fix)
    for row in rows:
        if row.expected_by == NVLINK and row.share is not None and row.share < NVLINK_SHARE:
            what = f"{me}: copies {row.what} run at {text(row.value, 'B/s')}, {row.share:.0%} of its NVLink"
            yield warn(what, "see `nvidia-smi nvlink -s` and `nvidia-smi topo -m`: copies go another way")


def narrowed(speed: GpuSpeed) -> str | None:
    """A link to the host that is less under load than it could be, such as "PCIe x8 of x16"."""
    now = pcie_bytes_per_second(speed.pcie_generation, speed.pcie_width)
    most = pcie_bytes_per_second(speed.pcie_generation_max, speed.pcie_width_max)
    if now is None or most is None or now >= most:
        return None
    if speed.pcie_width != speed.pcie_width_max:
        return f"PCIe x{speed.pcie_width} of x{speed.pcie_width_max}"
    return f"PCIe generation {speed.pcie_generation} of {speed.pcie_generation_max}"


def of_cpu(speed: CpuSpeed) -> Iterator[Finding]:
    """Whether many threads do as much as there are of them."""
    most = speed.threads * speed.decode_one_per_second
    if speed.threads > 1 and speed.decode_all_per_second < SCALING_SHARE * most:
        what = (
            f"{speed.threads} threads decode {speed.decode_all_per_second:,.0f} pictures a second, "
            f"{speed.decode_all_per_second / most:.0%} of {speed.threads} times what one does"
        )
        cause = "others may use the cores (see `top`), two threads may share one, or the clock may fall"
        if speed.decoder == "Pillow":
            cause = "Pillow's threads wait for each other: install the native decoder"
        yield warn(what, cause)


def of_disk(speed: DiskSpeed, cpu: CpuSpeed | None) -> Iterator[Finding]:
    """Whether the disk feeds the decoder, takes checkpoints, and lists files."""
    yield from of_reads(speed, cpu)
    written = speed.write_bytes_per_second
    if written is not None and written < SLOW_WRITE_BYTES_PER_SECOND:
        takes = units.seconds_text(1e9 / written)
        what = f"{speed.folder} takes {text(written, 'B/s')}: a checkpoint of 1 GB needs {takes}"
        yield warn(what, "put runs on a local disk, and copies elsewhere with --mirror")
    yield from of_listing(speed)


def of_reads(speed: DiskSpeed, cpu: CpuSpeed | None) -> Iterator[Finding]:
    """Whether pictures can be read as fast as they are decoded. What came from memory proves nothing."""
    if cpu is None or not speed.is_cold or speed.random_reads_per_second is None:
        return
    # A picture that is larger than one read takes several; a smaller one takes one.
    each = max(1.0, cpu.picture_bytes / speed.random_read_bytes)
    fed = speed.random_reads_per_second / each
    if fed < cpu.decode_all_per_second:
        packed = (speed.sequential_bytes_per_second or 0.0) / cpu.picture_bytes
        what = (
            f"the disk at {speed.folder} reads {fed:,.0f} pictures a second here and there, and the cores decode "
            f"{cpu.decode_all_per_second:,.0f}"
        )
        way = f"pack the data (from front to back it reads {packed:,.0f}), with --window" if packed > fed else None
        yield warn(what, f"{way or 'put the data on a faster disk'}; or keep it where memory holds all of it")


def of_listing(speed: DiskSpeed) -> Iterator[Finding]:
    """What listing files takes here."""
    rate = speed.list_files_per_second
    if not rate or rate >= LIST_SHARE * SSD_FILES_PER_SECOND:
        return
    files = speed.dataset_files or 1_000_000
    whose = f"this dataset's {files:,} files takes" if speed.dataset_files else f"{files:,} files would take"
    here, ssd = units.seconds_text(files / rate), units.seconds_text(files / SSD_FILES_PER_SECOND)
    fix = f"pack it: stoker pack {speed.data or 'DATA'} DEST makes a few large files of it"
    yield warn(f"listing {whose} {here} at {speed.folder}; an SSD takes {ssd}", fix)


def warn(what: str, fix: str) -> Finding:
    """A finding that slows a run down."""
    return Finding(level="warn", what=what, fix=fix)


def an(name: str) -> str:
    """A GPU's name with its article: an H100, a V100."""
    return f"{'an' if name[:1] in 'AHL' else 'a'} {name}"
