"""Compilations kept on disk: what is kept, what it depends on, and how it is found again."""
