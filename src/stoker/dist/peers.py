"""What an error says about the other processes."""

import re

from stoker.errors import Problem

GONE = re.compile(
    r"connection (was )?(closed|reset|refused)( by (remote )?peer)?|broken pipe|timed out|timeout"
    r"|ncclRemoteError|ncclSystemError|remote process exited|communicator was aborted|network error",
    re.IGNORECASE,
)
OURS = re.compile(r"ncclInvalid|Duplicate GPU|unhandled cuda error|out of memory", re.IGNORECASE)
"""what a GPU or a wrong call of this process is to blame for"""


class PeerLost(Exception):
    """Another process does not answer any more."""


def told(error: BaseException) -> Problem | None:
    """What to tell a user whose process failed because another one is gone; None for an error of any other kind."""
    if not isinstance(error, PeerLost) and not is_of_a_peer(error):
        return None
    # gloo begins with the line of its own source, which tells a user nothing.
    text = re.sub(r"^\[\S+\.cc:\d+\] ", "", str(error).strip())
    first = text.splitlines()[0] if text else type(error).__name__
    return Problem(
        f"another process is gone: {first}",
        fix="its own message says why; start the same command again: it goes on from the last checkpoint",
        goes_on=True,
    )


def is_of_a_peer(error: BaseException) -> bool:
    """Whether an error comes from talking to other processes, and not from what this one did itself."""
    text = str(error)
    # By name, because torch must not be imported to look at an error.
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not isinstance(error, RuntimeError) or OURS.search(text):
        return False
    if kinds & {"DistBackendError", "DistNetworkError"}:
        return True
    return GONE.search(text) is not None and (
        "DistError" in kinds or re.search("gloo|nccl", text, re.IGNORECASE) is not None
    )
