"""Probes of CANN's runtime: streams, events, captures, replays, task groups, updates."""
