"""Probes of attention kinds."""
