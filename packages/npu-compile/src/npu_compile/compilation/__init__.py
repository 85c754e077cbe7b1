"""Fuses and splits a model, prepares it for capture, and reports what was done."""
