"""Fusions that begin with a norm."""
