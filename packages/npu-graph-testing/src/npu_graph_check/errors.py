"""Errors that the command reports in one line."""


class CheckError(Exception):
    """Base of the errors of this package."""


class UnknownProbeError(CheckError, ValueError):
    """A name that no probe or group has."""


class ResultFileError(CheckError, ValueError):
    """A file that cannot be read as results, or not be written."""


class NoDeviceError(CheckError, RuntimeError):
    """There is no device that probes could look at."""
