"""Errors of npu_compile; each is also the built-in error that its kind suggests."""


class NpuCompileError(Exception):
    """Base of all errors raised by this package."""


class ConfigError(NpuCompileError, ValueError):
    """A configuration, or a call that contradicts it, cannot be used; the message names the key."""


class InputError(NpuCompileError, ValueError):
    """An input of a step does not have the name, shape or dtype that was declared for it."""


class OutputError(NpuCompileError, ValueError):
    """An output of the model does not have one row for each row of the batch."""


class RunnerStateError(NpuCompileError, RuntimeError):
    """A runner was asked for something that its present state does not allow."""


class SiblingVersionError(NpuCompileError, RuntimeError):
    """A package that npu-compile joins was imported in a version outside of the stated range."""


class CompileCacheWarning(UserWarning):
    """A file of the compile cache, or all of the folder, is left aside; the message says why."""
