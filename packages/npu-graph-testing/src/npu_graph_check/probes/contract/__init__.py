"""Probes of the group contract."""
