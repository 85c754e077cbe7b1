"""Memory that a graph uses but does not own: recorded at its capture, watched afterwards."""
