"""Steps of an engine on a compiled model: captured steps, a runner for each kind."""
