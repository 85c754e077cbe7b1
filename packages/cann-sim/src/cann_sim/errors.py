"""Errors of the package; messages say what was done, expected and found, and how to fix it."""

from __future__ import annotations


class InstallationError(RuntimeError):
    """torch or torch_npu is not installed, or the installed versions do not fit."""


class CompilerNotFoundError(RuntimeError):
    """The native libraries have to be built and there is no C++ compiler that can do it."""


class CompilationError(RuntimeError):
    """The C++ compiler refused a source of the native libraries; the message has its output."""


class CacheError(RuntimeError):
    """Built files cannot be written: no permission, or no room."""


class ActivationError(RuntimeError):
    """The simulated libraries cannot be put under torch_npu in this process."""


class InactiveError(RuntimeError):
    """The simulator is not loaded in this process."""


class SettingError(ValueError):
    """An environment variable of the simulator has a value that is not one of the expected."""
