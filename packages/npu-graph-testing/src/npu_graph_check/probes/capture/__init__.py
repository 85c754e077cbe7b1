"""Probes of the group capture."""
