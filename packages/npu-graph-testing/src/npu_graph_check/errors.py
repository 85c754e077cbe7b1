"""What the command says in one line instead of doing its work."""


class CheckError(Exception):
    """Base of the errors of this package."""


class UnknownProbeError(CheckError, ValueError):
    """A name that no probe or group has."""


class ResultFileError(CheckError, ValueError):
    """A file that cannot be read as results, or not be written."""


class NoDeviceError(CheckError, RuntimeError):
    """There is no device that probes could look at."""
