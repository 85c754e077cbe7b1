"""Probes of the runtime."""
