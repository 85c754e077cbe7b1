"""Probes of versions, device and settings."""
