"""Runs an engine's steps on a compiled model: captured steps, decode and prefill runners."""
