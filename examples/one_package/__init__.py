"""Each of the four leaves adopted alone, by an engine that keeps all else as it was."""
