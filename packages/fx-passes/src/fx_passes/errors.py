"""The errors of this package; each is also the built-in error that fits best."""

from __future__ import annotations


class FxPassesError(Exception):
    """Everything that this package raises on purpose."""


class PatternError(FxPassesError, ValueError):
    """A pattern cannot be traced, or says something that no graph can match."""


class RuleError(FxPassesError, RuntimeError):
    """The `check` or the `rewrite` of a rule failed, or a required rule matched nothing."""


class PassError(FxPassesError, RuntimeError):
    """A pass failed, never ends, or left a graph in which an observer found something wrong."""


class PipelineError(FxPassesError, ValueError):
    """A pipeline is put together wrongly."""


class FingerprintError(FxPassesError, TypeError):
    """A function has content that no stable fingerprint can be made of."""


class TraceError(FxPassesError, RuntimeError):
    """A call cannot be represented as a graph of operators; the message says why."""
