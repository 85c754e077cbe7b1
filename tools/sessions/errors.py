"""The error of the tools that read packages."""


class WorkspaceError(Exception):
    """A package does not have what its tools go by; the message says what, and the remedy."""
