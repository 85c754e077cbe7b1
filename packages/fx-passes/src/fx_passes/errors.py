"""The errors of this package; each is also the built-in error that fits best."""

from __future__ import annotations

__all__ = [
    "ConditionError",
    "ConvergenceError",
    "FingerprintError",
    "FxPassesError",
    "ObserverError",
    "PassError",
    "PatternError",
    "PipelineError",
    "RuleError",
    "TraceError",
]


class FxPassesError(Exception):
    """Everything that this package raises on purpose."""


class PatternError(FxPassesError, ValueError):
    """A pattern cannot be traced, or says something that no graph can match."""


class RuleError(FxPassesError, RuntimeError):
    """The `check` or the `rewrite` of a rule failed or broke its contract."""


class PassError(FxPassesError, RuntimeError):
    """A pass failed; the message names it and the passes that ran before it."""


class ConditionError(PassError):
    """A condition of a pass does not hold, or a rule that a run requires matched nothing."""


class ConvergenceError(PassError):
    """The passes still changed the graph after the last permitted round."""


class ObserverError(PassError):
    """An observer found something wrong with the graph between two passes."""


class PipelineError(FxPassesError, ValueError):
    """A pipeline is put together wrongly."""


class FingerprintError(FxPassesError, TypeError):
    """A function has content that no stable fingerprint can be made of."""


class TraceError(FxPassesError, RuntimeError):
    """A call cannot be a graph of operators; the message says what it did."""
