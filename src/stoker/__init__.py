"""Stoker trains networks at the speed the hardware allows, and says what they wait for when they don't.

The front door for notebooks and programs is `stoker.api`: `import stoker.api as stoker`, then `stoker.train("demo")`.
"""

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    # Parts of this package (train, plan, doctor, report, watch, work) have the names of functions of the front door, so
    # that these can't stand here: once such a part is imported, its name is the part.
    raise AttributeError(f"stoker has no {name!r}; its functions are in stoker.api: import stoker.api as stoker")
