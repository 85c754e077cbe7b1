"""Probes of memory."""
