"""Calls of the simulated device in this process: counters, faults, the order of its streams."""
