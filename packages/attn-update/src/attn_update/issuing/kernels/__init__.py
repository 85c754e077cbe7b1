"""The updater in Python, which calls CANN's kernels without torch."""
