"""The error for compilations that cannot be cached, because staleness could not be detected."""


class UncacheableError(Exception):
    """A compilation depends on something that another process cannot compare."""
