"""Probes of operators."""
