"""Errors of this package; each also derives from a built-in exception."""


class PiecewiseSplitError(Exception):
    """Base of all errors of this package."""


class SplittingOpError(PiecewiseSplitError, ValueError):
    """A splitting op is malformed, ambiguous or absent, or lacks its side input.

    Attributes:
        absent: The names that no node calls, as ``ns::op`` or ``ns::op.overload``; empty for other
            errors.
    """

    def __init__(self, message: str, *, absent: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.absent = absent


class UnsupportedGraphError(PiecewiseSplitError, ValueError):
    """The graph contains something that cannot be split without changing its meaning."""


class PlanError(PiecewiseSplitError, ValueError):
    """A plan cannot be read from its text, or is used without its graph."""
