"""Options of a compilation: the configuration, its validation, and aliases of other engines."""
