"""Failures that users of engines reported, re-created on the simulated device, each by name."""
