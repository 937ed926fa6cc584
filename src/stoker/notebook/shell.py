"""Whether a program runs in a notebook. Asking costs nothing where it does not."""

import sys
from typing import Any


def shell() -> Any:
    """The shell of a notebook's kernel; None in a terminal, in a plain program, and where there is no IPython."""
    if "IPython" not in sys.modules:
        return None
    found = sys.modules["IPython"].get_ipython()
    return found if getattr(found, "kernel", None) is not None else None


def is_notebook() -> bool:
    """Whether this program is a notebook's."""
    return shell() is not None
