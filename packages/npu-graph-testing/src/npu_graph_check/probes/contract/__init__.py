"""Probes of the device contract."""
