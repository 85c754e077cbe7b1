"""Errors of this package; each one is also a built-in exception."""


class PiecewiseSplitError(Exception):
    """Root of every error that this package raises on purpose."""


class SplittingOpNameError(PiecewiseSplitError, ValueError):
    """The name of a splitting op is malformed, or cannot be decided on the graph at hand."""


class SplittingOpAbsentError(PiecewiseSplitError, ValueError):
    """A splitting op occurs nowhere in the graph.

    Attributes:
        absent: The names that no node calls, as ``ns::op`` or ``ns::op.overload``.
    """

    def __init__(self, message: str, *, absent: tuple[str, ...]) -> None:
        super().__init__(message)
        self.absent = absent


class SideInputError(PiecewiseSplitError, ValueError):
    """A declared side input names no value, no splitting op, or a value that comes too late."""


class SizeMetadataError(PiecewiseSplitError, ValueError):
    """A ``torch.Size`` would cross a cut and nothing says what its dimensions are."""


class UnsupportedGraphError(PiecewiseSplitError, ValueError):
    """The graph holds something that cannot be split without changing its meaning."""


class PlanMismatchError(PiecewiseSplitError, ValueError):
    """A plan was made for another graph, or was edited into something that cannot run."""


class CompiledPieceError(PiecewiseSplitError, TypeError):
    """The caller's ``compile_piece`` returned something that cannot be called."""
