"""The errors of the engine; each is also the built-in error that a caller may expect."""

from __future__ import annotations


class EngineError(Exception):
    """Any error that this package raises."""


class ConfigError(EngineError, ValueError):
    """A config.json or an engine setting that the engine cannot serve."""


class CheckpointError(EngineError, ValueError):
    """A checkpoint folder whose tensors do not fit its config.json."""


class MissingCheckpointFileError(CheckpointError, FileNotFoundError):
    """A file of a checkpoint folder that is not there."""


class RequestError(EngineError, ValueError):
    """A request that cannot be served; the engine keeps it as the reason of a refusal."""


class BatchError(EngineError, ValueError):
    """A batch or its lengths that contradict the tensors they are used with."""


class OutOfBlocksError(EngineError, RuntimeError):
    """More blocks of the key/value cache were wanted than are free."""
