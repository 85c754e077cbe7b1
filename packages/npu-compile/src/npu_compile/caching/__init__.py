"""Caches compilations on disk: their content, their dependencies, and how they are found again."""
