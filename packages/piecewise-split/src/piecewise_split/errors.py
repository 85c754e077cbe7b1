"""Errors of this package; each one is also a built-in exception."""


class PiecewiseSplitError(Exception):
    """Root of every error that this package raises on purpose."""


class SplittingOpError(PiecewiseSplitError, ValueError):
    """A splitting op is malformed, cannot be decided, occurs nowhere, or lacks its side input.

    Attributes:
        absent: The names that no node calls, as ``ns::op`` or ``ns::op.overload``; empty where
            something else is wrong.
    """

    def __init__(self, message: str, *, absent: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.absent = absent


class UnsupportedGraphError(PiecewiseSplitError, ValueError):
    """The graph contains something that cannot be split without changing its meaning."""


class PlanError(PiecewiseSplitError, ValueError):
    """A plan cannot be read from its text, or is used without its graph."""
