"""Running probes, each in a process of its own, and keeping what they saw."""
