"""Wraps a function: captured at the first call with each signature, replayed afterwards."""
