"""The error of the tools that read packages."""


class WorkspaceError(Exception):
    """A package lacks something that the tools need; the message says what, and the remedy."""
