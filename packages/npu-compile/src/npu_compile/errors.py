"""Errors of npu_compile. Each also derives from the built-in error that matches its kind."""


class NpuCompileError(Exception):
    """Base of all errors raised by this package."""


class ConfigError(NpuCompileError, ValueError):
    """A configuration is invalid, or a call contradicts it; the message names the key."""


class InputError(NpuCompileError, ValueError):
    """An input of a step does not have its declared name, shape or dtype."""


class OutputError(NpuCompileError, ValueError):
    """An output of the model does not have one row for each row of the batch."""


class RunnerStateError(NpuCompileError, RuntimeError):
    """The operation is not allowed in the present state of the runner."""


class SiblingVersionError(NpuCompileError, RuntimeError):
    """The installed version of a package that npu-compile uses is outside the declared range."""


class CompileCacheWarning(UserWarning):
    """A file of the compile cache, or the whole folder, is ignored; the message says why."""
