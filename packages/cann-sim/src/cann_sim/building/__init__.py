"""The native libraries: their sources, and how they are compiled once and kept."""
