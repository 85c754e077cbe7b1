"""What is raised, and what only looks like it."""
