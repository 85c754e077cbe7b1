"""Probes of open questions."""
