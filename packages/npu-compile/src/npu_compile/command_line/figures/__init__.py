"""Pictures of what commands found, drawn by matplotlib, which the extra ``plot`` brings."""
