"""What cannot be kept, because it cannot be shown when it would be wrong."""


class UncacheableError(Exception):
    """A compilation depends on something that cannot be compared in another process."""
