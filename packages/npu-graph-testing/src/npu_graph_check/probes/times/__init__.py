"""Probes of times."""
