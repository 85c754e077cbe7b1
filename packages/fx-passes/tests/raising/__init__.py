"""Code that is raised, and look-alikes that are not."""
