"""Quantities as people read them."""

KIB, MIB, GIB, TIB = (1024**power for power in range(1, 5))


def seconds_text(seconds: float) -> str:
    """A duration with the two units that matter: "3 h 12 min", "48.0 s", "12 ms"."""
    if seconds >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if seconds >= 100:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.3g} ms" if seconds > 0 else "0 s"


def bytes_text(count: float) -> str:
    """A size in the largest binary unit that leaves a number above one."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def dollars_text(dollars: float) -> str:
    """A price in cents; a smaller one is called so."""
    return f"${dollars:,.2f}" if dollars >= 0.005 or dollars == 0 else "less than $0.01"


def count_text(count: int, what: str) -> str:
    """A number of things: "1 atom", "2 atoms", "2 processes"."""
    plural = what + ("es" if what.endswith("s") else "s")
    return f"{count:,} {what if count == 1 else plural}"


def percent_text(share: float) -> str:
    """A share of one as a percentage with one decimal."""
    return f"{share * 100:.1f} %"
