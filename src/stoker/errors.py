"""What a user can put right. Everything else is a bug of ours and keeps its stack trace."""


class Problem(Exception):
    """Something the user can fix: what happened, what was found, and the next thing to do."""

    def __init__(self, what: str, *, fix: str, goes_on: bool = False) -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix
        self.goes_on = goes_on
        """whether the same command again is all that is needed"""

    def __str__(self) -> str:
        return f"{self.what}\n  fix: {self.fix}"
