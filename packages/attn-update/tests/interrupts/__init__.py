"""Exceptions of signal handlers, at places that a test chooses and at any time."""
