"""Stoker in Jupyter: a run shows itself while it trains, and values show what they hold. Elsewhere it does nothing."""

from stoker.notebook.displays import register
from stoker.notebook.live import Live
from stoker.notebook.shell import is_notebook

__all__ = ["Live", "is_notebook", "register"]

# Whoever imports Stoker's front door in a notebook wants to see what it returns. Elsewhere this does nothing.
register()
