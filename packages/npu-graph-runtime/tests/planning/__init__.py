"""The planner of capture sizes."""
