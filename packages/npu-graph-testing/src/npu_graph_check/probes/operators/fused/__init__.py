"""Probes of the fused operators that engines call."""
