"""Runs probes, each in a separate process, and stores their observations."""
