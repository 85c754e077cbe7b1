"""Probes of decoding."""
