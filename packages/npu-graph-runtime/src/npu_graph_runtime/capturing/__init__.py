"""Capture and replay of one callable: the session, graphs by key, and what runs eagerly between."""
