"""The updater in Python: CANN's kernels of a plan, called past torch."""
