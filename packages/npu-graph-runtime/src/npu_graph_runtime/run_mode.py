"""The run mode of a call of a model, chosen by the caller."""

from __future__ import annotations

import enum


class RunMode(enum.Enum):
    """How the current call runs.

    A :class:`~npu_graph_runtime.GraphedCallable` captures and replays only in its own run mode, and
    calls its function in every other one. A ``FULL`` wrapper can therefore contain ``PIECEWISE``
    ones.
    """

    EAGER = "eager"
    """No graph: every wrapper calls through."""

    PIECEWISE = "piecewise"
    """The pieces between splitting ops replay; the splitting ops run eagerly."""

    BREAKABLE = "breakable"
    """The whole callable replays but for functions marked by ``runs_eagerly``, which are called."""

    FULL = "full"
    """The whole callable replays as one graph."""
