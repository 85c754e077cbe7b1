"""Captures and replays one callable: sessions, graphs by key, and eager functions in between."""
