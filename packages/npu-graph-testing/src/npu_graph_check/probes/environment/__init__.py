"""Probes of the group environment."""
