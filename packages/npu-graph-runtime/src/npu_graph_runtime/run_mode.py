"""The run mode that a caller chooses for each call of a model."""

from __future__ import annotations

import enum


class RunMode(enum.Enum):
    """How the current call is to be run.

    A :class:`~npu_graph_runtime.GraphedCallable` captures and replays only in its own run mode and
    calls through in every other, which is what lets a ``FULL`` wrapper contain ``PIECEWISE`` ones.
    """

    EAGER = "eager"
    """No graph: every wrapper calls through."""

    PIECEWISE = "piecewise"
    """The pieces between splitting ops replay; the splitting ops run eagerly."""

    BREAKABLE = "breakable"
    """The whole callable replays but for functions marked by ``runs_eagerly``, which are called."""

    FULL = "full"
    """The whole callable replays as one graph."""
