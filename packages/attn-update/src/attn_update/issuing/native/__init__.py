"""The updater in C++: all launches of a plan in one call."""
