"""What a user can put right. Everything else is a bug of ours and keeps its stack trace."""


class Problem(Exception):
    """Something the user can fix: what happened, what was found, and the next thing to do."""

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\n  fix: {self.fix}"
