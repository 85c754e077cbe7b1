"""Errors of the package: what was being done, what was expected and found, and the remedy."""

from __future__ import annotations


class InstallationError(RuntimeError):
    """torch or torch_npu is not installed, or the installed versions do not fit."""


class CompilerNotFoundError(RuntimeError):
    """The native libraries have to be built and there is no C++ compiler that can do it."""


class CompilationError(RuntimeError):
    """The C++ compiler refused a source of the native libraries; the message has its output."""


class CacheError(RuntimeError):
    """What is built cannot be written: no permission, or no room."""


class ActivationError(RuntimeError):
    """The simulated libraries cannot be put under torch_npu in this process."""


class InactiveError(RuntimeError):
    """The simulator was asked for something in a process in which it is not loaded."""


class SettingError(ValueError):
    """An environment variable of the simulator has a value that is not one of the expected."""
