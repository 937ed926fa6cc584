"""A machine as people read it in a terminal: what it does, beside what it should do, and what is wrong with it."""

import time

from stoker import units
from stoker.doctor import MachineProfile
from stoker.doctor.figures import text
from stoker.doctor.network import PeerSpeed
from stoker.doctor.profile import Measured
from stoker.shown import MARKS, console, plain_table


def profile(value: MachineProfile) -> None:
    """Figures beside what was expected, what could not be measured, then findings, the good ones too."""
    out = console()
    if value.measured is not None:
        _figures(value)
        _about(value.measured)
    if value.peer is not None:
        _peer(value.peer)
    for finding in value.findings:
        out.print(f"{MARKS[finding.level]} ", end="")
        out.print(finding.what, markup=False)
        if finding.fix:
            out.print(f"     fix: {finding.fix}", markup=False)


def _figures(value: MachineProfile) -> None:
    table = plain_table("part", "what", "measured", "expected", "share", "by")
    for column in table.columns[2:5]:
        column.justify = "right"
    for row in value.figures:
        expected = "" if row.expected is None else text(row.expected, row.unit)
        share = "" if row.share is None else f"{row.share:.0%}"
        table.add_row(row.part, row.what, text(row.value, row.unit), expected, share, row.expected_by or "")
    console().print(table)


def _about(measured: Measured) -> None:
    """What the figures are of, how old they are, and what is missing."""
    out = console()
    if measured.cpu is not None:
        out.print(f"pictures {measured.cpu.picture}; decoded with {measured.cpu.decoder}", markup=False)
    if measured.disk is not None:
        disk, kind = measured.disk, measured.disk.file_system or "an unknown file system"
        cold = f"past the page cache ({disk.bypassed_by})" if disk.is_cold else "perhaps from memory"
        out.print(f"disk     {disk.folder} on {kind}, read {cold}", markup=False)
    age = time.time() - measured.at
    if age > 60:
        out.print(f"measured {units.seconds_text(age)} ago at the most; stoker doctor --again measures anew")
    for what, why in measured.missing.items():
        out.print(f"not measured: {what}: {why}", markup=False)


def _peer(speed: PeerSpeed) -> None:
    """What plain connections to another host do."""
    out, host = console(), f"{speed.host}:{speed.port}"
    for what, one, four in (
        ("to", speed.to_bytes_per_second, speed.four_flows_to_bytes_per_second),
        ("from", speed.from_bytes_per_second, speed.four_flows_from_bytes_per_second),
    ):
        rates = f"{text(one, 'B/s')} on one connection, {text(four, 'B/s')} on four"
        out.print(f"network  {what} {host}: {rates}", markup=False)
