"""Writes an observer's events as a trace that Perfetto opens."""
