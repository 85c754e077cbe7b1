"""Probes of fusions."""
