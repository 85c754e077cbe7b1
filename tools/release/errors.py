"""The error that ends a command with one message instead of a traceback."""


class ReleaseError(Exception):
    """A release, or a check before one, cannot continue; the message says what to do."""
