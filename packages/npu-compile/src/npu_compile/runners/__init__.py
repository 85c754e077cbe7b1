"""Steps of an engine on a compiled model: static inputs, captured steps, a runner for each kind."""
