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


class SizeRangeError(PiecewiseSplitError, ValueError):
    """Ranges of sizes that no piece can be compiled by, or a size that is in none of them."""


class FailedNodeError(PiecewiseSplitError, RuntimeError):
    """A node of a piece failed while pieces are run node by node.

    Attributes:
        piece: Name of the piece, ``piece_<index>``.
        node: Name of the node in the graph that was split.
        source: Line of the model that it came from, as ``folder/file.py:12``, or None.
    """

    def __init__(self, message: str, *, piece: str, node: str, source: str | None) -> None:
        super().__init__(message)
        self.piece = piece
        self.node = node
        self.source = source
