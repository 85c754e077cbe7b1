"""Patterns, and the places of a graph where they fit."""
